package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestEndReads: a query whose reader hangs is cut off, so that the store can be closed; others are refused with the reason.
func TestEndReads(t *testing.T) {
	b := newBackend()
	b.grow(2_000_000) // more than any buffer between the two holds
	b.ended = make(chan struct{}, 1)
	s := start(t, Config{Backend: b, Listen: "127.0.0.1:0"})
	resp, err := http.Get("http://" + s.Addr() + "/api/v1/states/counts")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil { // and no more
		t.Fatal(err)
	}
	s.EndReads()
	select {
	case <-b.ended:
	case <-time.After(time.Minute):
		t.Fatal("the query still runs")
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("what was cut off looks whole to its reader")
	}
	for _, path := range []string{"/api/v1/states/counts", "/api/v1/ledger"} {
		if resp, body := get(t, s, path); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "the pipeline is ending") {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	if resp, _ := get(t, s, "/api/v1/status"); resp.StatusCode != http.StatusOK {
		t.Errorf("status: %s", resp.Status)
	}
}
