package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
)

func get(t *testing.T, s *Server, path string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.Addr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestAPI(t *testing.T) {
	s := start(t, Config{Backend: newBackend(), Listen: "127.0.0.1:0"})
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/healthz", "ok\n", 200},
		{"/readyz", "ready\n", 200},
		{"/api/v1/states/counts", "[\n" +
			`{"word":"a\"b","n":2,"total":"1.5"}` + "\n" + `,{"word":"the","n":4611686018427387905,"total":null}` + "\n]\n", 200},
		{"/api/v1/states/counts?key=the", "[\n" + `{"word":"the","n":4611686018427387905,"total":null}` + "\n]\n", 200},
		{"/api/v1/states/counts?key=none", "[]\n", 200},
		{"/api/v1/states/count", `{"error":{"kind":"transient","code":"unavailable","message":"no state \"count\""}}` + "\n", 404},
		{
			"/api/v1/states/counts?key=a&key=b",
			`{"error":{"kind":"permanent","code":"configuration","message":"query: the key has one column","remedy":"give one key"}}` + "\n", 400,
		},
		{"/api/v1/ledger?from=9", "[]\n", 200},
		{"/api/v1/ledger?from=x", `{"error":{"kind":"permanent","code":"configuration","message":"from=\"x\" is not a txid","remedy":"give a whole number"}}` + "\n", 400},
	} {
		resp, body := get(t, s, c.path)
		if resp.StatusCode != c.code || body != c.body {
			t.Errorf("GET %s: %d\n%s\nwant %d\n%s", c.path, resp.StatusCode, body, c.code, c.body)
		}
	}

	resp, _ := get(t, s, "/api/v1/states/counts")
	if got := resp.Header.Get(TxidHeader); got != "3" {
		t.Errorf("%s is %q, want 3", TxidHeader, got)
	}
	if resp, _ := get(t, s, "/api/v1/stop"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("stop over TCP: %d", resp.StatusCode)
	}
}

func TestStatusJSON(t *testing.T) {
	b := newBackend()
	s := start(t, Config{Backend: b, Listen: "127.0.0.1:0"})
	_, body := get(t, s, "/api/v1/status")
	var st Status
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatal(err)
	}
	if st.Listen != s.Addr() || st.Committed != 3 || len(st.Partitions) != 2 || st.Partitions[0].Lag != 5 || st.Partitions[1].Lag != Unknown {
		t.Errorf("status %s", body)
	}
	if strings.Contains(body, "committed_at") {
		t.Errorf("a time that isn't known is shown: %s", body)
	}

	b.status.Store(&Status{Pipeline: "words"})
	_, body = get(t, s, "/api/v1/status")
	if !strings.Contains(body, `"in_flight":[]`) || !strings.Contains(body, `"partitions":[]`) {
		t.Errorf("empty lists aren't lists: %s", body)
	}
}

func TestReadyzTellsReasons(t *testing.T) {
	b := newBackend()
	s := start(t, Config{Backend: b, Listen: "127.0.0.1:0"})
	b.status.Store(&Status{Reasons: []string{"kafka 127.0.0.1:9092 can't be reached", "lines/t-1: no leader"}})
	resp, body := get(t, s, "/readyz")
	if resp.StatusCode != http.StatusServiceUnavailable || body != "kafka 127.0.0.1:9092 can't be reached\nlines/t-1: no leader\n" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	if resp, _ := get(t, s, "/healthz"); resp.StatusCode != 200 {
		t.Errorf("healthz of a pipeline that isn't ready: %d", resp.StatusCode)
	}
}

func TestLedgerJSON(t *testing.T) {
	s := start(t, Config{Backend: newBackend(), Listen: "127.0.0.1:0"})
	_, body := get(t, s, "/api/v1/ledger?from=2&to=3")
	var got []LedgerEntry
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if len(got) != 2 || got[0].Txid != 2 || got[1].Ranges[0].Start != 20 || got[1].Ranges[0].Records != 9 {
		t.Errorf("entries %+v", got)
	}
	if got[0].Seed != "8000000000000001" || got[0].Attempt != "7.2" || got[0].Took.Commit != 0.004 {
		t.Errorf("entry %+v", got[0])
	}
}

// What fails after the first row can't be told by the status code any more: the reader must see a broken answer, not
// a short one.
func TestErrorsUnderWayBreakTheAnswer(t *testing.T) {
	b := newBackend()
	b.grow(10_000)
	b.failAt, b.err = 9_999, errors.New("disk gone")
	s := start(t, Config{Backend: b, Listen: "127.0.0.1:0"})
	for _, path := range []string{"/api/v1/states/counts", "/api/v1/ledger"} {
		resp, err := http.Get("http://" + s.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("GET %s ended with %v and %q, want an unexpected end", path, err, body)
		}
	}
	b.failAt = 2 // nothing has left the buffer: it is an ordinary error still
	for _, path := range []string{"/api/v1/states/counts", "/api/v1/ledger"} {
		resp, body := get(t, s, path)
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(body, `{"error":`) || !strings.Contains(body, "disk gone") {
			t.Errorf("GET %s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// A page under a name that its owner lets resolve to 127.0.0.1 may not read anything.
func TestForeignHostsAreRefused(t *testing.T) {
	b := newBackend()
	s := start(t, Config{Backend: b, Listen: "127.0.0.1:0"})
	h := loopbackHostOnly(s.handler(false))
	for host, code := range map[string]int{
		"127.0.0.1:8642": 200, "localhost:8642": 200, "localhost": 200, "[::1]:8642": 200, "[::1]": 200, "127.8.9.1": 200,
		"evil.example:8642": 403, "evil.example": 403, "10.0.0.1:8642": 403, "localhost.evil.example": 403, "": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("host %q: %d, want %d", host, w.Code, code)
		}
	}
}

func TestErrorStatusKeepsTheError(t *testing.T) {
	p := batch.Partition{Source: "lines", Topic: "t", Number: 2}
	e := batch.NewError(batch.Permanent, batch.CodeBadRecord, "decode", errors.New("no JSON"), "mend the record").At(p, 41)
	e.Txid = 9
	st := ErrorStatusOf(e, started)
	if st.Message != "txid 9: lines/t-2 offset 41: decode: no JSON" || st.Remedy != "mend the record" || st.Txid != 9 {
		t.Errorf("status %+v", st)
	}
	back := st.Err()
	if back.Error() != e.Error() || batch.KindOf(back) != batch.Permanent || batch.CodeOf(back) != batch.CodeBadRecord {
		t.Errorf("back as %q, want %q", back, e)
	}
	if e.Remedy == "" {
		t.Error("the error itself was changed")
	}
	if st := ErrorStatusOf(errors.New("x"), time.Time{}); st.Kind != "transient" || st.Code != batch.CodeUnavailable {
		t.Errorf("status of a plain error %+v", st)
	}
}
