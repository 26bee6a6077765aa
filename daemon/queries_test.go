package daemon_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tridentd/tridentd/server"
)

const askedFile = `pipeline: asked
batch: {max_records: 1}
sources:
  orders:
    file: {paths: [orders.jsonl]}
    decode: json
    types: {customer: string, amount: int, at: timestamp}
    time: {field: at}
streams:
  spent:
    from: orders
    steps:
      - group_by: [customer]
      - aggregate: {orders: count(), amount: sum(amount)}
  hourly:
    from: orders
    steps:
      - window: {tumbling: 1h}
      - group_by: [customer]
      - aggregate: {orders: count()}
queries:
  hour:
    args: {at: timestamp, customers: string}
    steps:
      - flat_map:
          customer: split(customers, ",")
      - lookup: {state: hourly, key: ['truncate(at, "1h")', customer], as: h, kind: inner}
      - lookup: {state: spent, key: customer, as: s}
      - set: {all: s.amount}
      - sort: [all desc]
    answer: {customer: customer, orders: h.orders, amount: s.amount, from: h.window_start}
`

// TestQueriesOverHTTP asks a query of a pipeline in YAML of a running process: what is right and what is wrong, and with a wait for a txid that commits
// later, and for one that doesn't come.
func TestQueriesOverHTTP(t *testing.T) {
	t.Parallel()
	j := newJob(t, nil, askedFile)
	j.put("orders.jsonl", `{"customer":"ann","amount":3,"at":"2026-01-01T10:10:00Z"}
{"customer":"bob","amount":9,"at":"2026-01-01T10:59:00Z"}
`)
	j.run(0)
	p := j.spawn("run", "--listen", "127.0.0.1:0", "--log-level", "info")
	var url string
	j.await("its address", func(st *server.Status) bool {
		url = "http://" + st.Listen + "/api/v1/queries"
		return st.Ready && st.Listen != ""
	})
	ask := func(method, path, body string, headers ...string) (int, string, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Tridentd-Txid"), string(b)
	}
	const both = "[\n" + `{"customer":"bob","orders":1,"amount":9,"from":"2026-01-01T10:00:00Z"}` + "\n" +
		`,{"customer":"ann","orders":1,"amount":3,"from":"2026-01-01T10:00:00Z"}` + "\n]"
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/hour?at=2026-01-01T10:30:00Z&customers=ann,zoe,bob", "", 200, both},
		{"POST", "/hour", `{"at":"2026-01-01T10:30:00Z","customers":"ann,zoe,bob"}`, 200, both},
		{"GET", "/hour?at=2026-01-01T11:30:00Z&customers=ann", "", 200, "[]"},
		{"GET", "/hour?at=noon&customers=ann", "", 400, "is not a time"},
		{"GET", "/hour?att=2026-01-01T10:30:00Z", "", 400, "there is no argument att; did you mean at?"},
		{"POST", "/hour", `{"at":"2026-01-01T10:30:00Z","customers":7}`, 400, "field customers: "},
		{"POST", "/hour", `{"customers":"ann"}`, 500, `"code":"bad_record","message":"query hour: hour step 2 (lookup): truncate() takes no nil`},
		{"GET", "/our", "", 404, `no query \"our\"; there is hour; did you mean hour?`},
		{"GET", "", "", 200, `"name":"hour","params":[{"name":"at","type":"timestamp"},{"name":"customers","type":"string"}]`},
	} {
		code, txid, got := ask(c.method, c.path, c.body)
		if got = strings.TrimSpace(got); code != c.code || !strings.Contains(got, c.want) || c.path != "" && code == 200 && (got != c.want || txid != "2") {
			t.Errorf("%s %s %s: %d at txid %s, %s; want %d, %s", c.method, c.path, c.body, code, txid, got, c.code, c.want)
		}
	}

	// Txid 3 is a batch of a record that comes while a call waits for it.
	f, err := os.OpenFile(filepath.Join(j.dir, "orders.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type answer struct {
		code       int
		txid, body string
	}
	answered := make(chan answer)
	go func() {
		code, txid, body := ask("POST", "/hour", `{"at":"2026-01-01T10:30:00Z","customers":"ann"}`, "Tridentd-At-Least", "3", "Tridentd-Timeout", "1m")
		answered <- answer{code, txid, body}
	}()
	if code, _, got := ask("GET", "/hour?at=2026-01-01T10:30:00Z&customers=ann&_at_least=99&_timeout=50ms", ""); code != 504 || !strings.Contains(got, `"code":"timeout"`) {
		t.Errorf("a txid that doesn't come: %d, %s", code, got)
	}
	if _, err := f.WriteString(`{"customer":"ann","amount":4,"at":"2026-01-01T10:20:00Z"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.code != 200 || a.txid != "3" || !strings.Contains(a.body, `{"customer":"ann","orders":2,"amount":7,"from":"2026-01-01T10:00:00Z"}`) {
		t.Errorf("a wait for txid 3: %+v", a)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(stopLimit); code != 0 {
		t.Errorf("exit %d\n%s", code, p.errs.String())
	}
}
