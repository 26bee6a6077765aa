package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// answeringBackend answers the query "echo" with what it was asked.
type answeringBackend struct{ *fakeBackend }

var echoColumns = []state.Column{{Name: "args", Type: "string"}, {Name: "at_least", Type: "int"}}

func (b answeringBackend) Queries() []QueryInfo {
	return []QueryInfo{{Name: "echo", Params: echoColumns[:1], Columns: echoColumns, States: []string{"counts"}}}
}

func (b answeringBackend) Call(ctx context.Context, c QueryCall, w RowWriter) error {
	switch {
	case c.Name == "hangs":
		<-ctx.Done()
		return fmt.Errorf("waited: %w", ctx.Err())
	case c.Name != "echo":
		return NotFound(fmt.Errorf("no query %q", c.Name))
	case c.Texts.Get("bad") != "":
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", errors.New("there is no argument bad"), "")
	}
	text := string(c.Args)
	if c.Args == nil {
		text = c.Texts.Encode()
	}
	if err := w.Begin(3, echoColumns); err != nil {
		return err
	}
	return w.Row([]value.Value{value.StringOf(text), value.IntOf(int64(c.AtLeast))})
}

func TestQueries(t *testing.T) {
	s := start(t, Config{Backend: answeringBackend{newBackend()}, Listen: "127.0.0.1:0"})
	for _, c := range []struct {
		method, path, sent string
		headers            []string
		code               int
		body               string
	}{
		{path: "", code: 200, body: `[{"name":"echo","params":[{"name":"args","type":"string"}],"columns":[{"name":"args","type":"string"},{"name":"at_least","type":"int"}],"states":["counts"]}]`},
		{path: "/echo?a=1&b=x%20y", code: 200, body: "[\n" + `{"args":"a=1&b=x+y","at_least":0}` + "\n]"},
		{path: "/echo?a=1&_at_least=7&_timeout=2s", code: 200, body: "[\n" + `{"args":"a=1","at_least":7}` + "\n]"},
		{path: "/echo", headers: []string{AtLeastHeader, "8", TimeoutHeader, "1m"}, code: 200, body: "[\n" + `{"args":"","at_least":8}` + "\n]"},
		{method: "POST", path: "/echo?_at_least=9", sent: ` {"a": [1]} `, code: 200, body: "[\n" + `{"args":"{\"a\": [1]}","at_least":9}` + "\n]"},
		{method: "POST", path: "/echo", code: 200, body: "[\n" + `{"args":"{}","at_least":0}` + "\n]"},
		{method: "POST", path: "/echo?a=1", sent: "{}", code: 400, body: "arguments stand in the body"},
		{method: "POST", path: "/echo", sent: "{", code: 400, body: "the body is no JSON"},
		{method: "PUT", path: "/echo", code: 405},
		{path: "/echo?_at_least=-1", code: 400, body: `\"-1\" is no txid`},
		{path: "/echo?_timeout=1h", code: 400, body: `is no time limit such as 5s`},
		{path: "/echo?bad=1", code: 400, body: "there is no argument bad"},
		{path: "/ekko", code: 404, body: `no query \"ekko\"`},
		{path: "/hangs?_timeout=20ms", code: 504, body: `"code":"timeout","message":"query: query hangs: no answer within 20ms","remedy":"give it more time`},
	} {
		method := c.method
		if method == "" {
			method = http.MethodGet
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+"/api/v1/queries"+c.path, strings.NewReader(c.sent))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.headers); i += 2 {
			req.Header.Set(c.headers[i], c.headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close() //nolint:errcheck // it has been read
		if err != nil {
			t.Fatal(err)
		}
		body := strings.TrimSpace(string(b))
		if resp.StatusCode != c.code || c.code == 200 && body != c.body || !strings.Contains(body, c.body) {
			t.Errorf("%s %s: %d %s, want %d %s", method, c.path, resp.StatusCode, body, c.code, c.body)
		}
	}
	plain := start(t, Config{Backend: newBackend(), Listen: "127.0.0.1:0"})
	if resp, _ := get(t, plain, "/api/v1/queries"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a backend that answers none: %s", resp.Status)
	}
}

func TestClientCall(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Backend: answeringBackend{newBackend()}, Dir: dir})
	c, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.Queries(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "echo" {
		t.Errorf("%+v, %v", all, err)
	}
	var got rowSink
	if err := c.Call(t.Context(), QueryCall{Name: "echo", Args: []byte(`{"a":1}`), AtLeast: 4}, time.Second, &got); err != nil {
		t.Fatal(err)
	}
	if got.txid != 3 || fmt.Sprint(got.rows) != `[string={"a":1} int=4 ]` {
		t.Errorf("%+v", got)
	}
	err = c.Call(t.Context(), QueryCall{Name: "hangs", Args: []byte(`{}`)}, 20*time.Millisecond, &got)
	if batch.CodeOf(err) != batch.CodeTimeout || !strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("%v", err)
	}
	if err := c.Call(t.Context(), QueryCall{Name: "x", Args: []byte(`{}`)}, time.Second, &got); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}
