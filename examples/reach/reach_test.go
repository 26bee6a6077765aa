package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/daemon"
)

// TestReach runs the pipeline to its end and asks it at rest, as it was, and while it runs.
func TestReach(t *testing.T) {
	data := t.TempDir()
	reach := func(args ...string) (string, string, int) {
		t.Helper()
		var out, errs bytes.Buffer
		code := daemon.Execute(t.Context(), args, &out, &errs, Reach())
		return out.String(), errs.String(), code
	}
	if _, errs, code := reach("run", "--data", data, "--until", "caught-up", "--listen", "off"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, errs)
	}
	ask := func(want string, args ...string) {
		t.Helper()
		out, errs, code := reach(append([]string{"query", "--data", data, "--call", "reach"}, args...)...)
		if code != 0 || out != want {
			t.Errorf("%q: exit code %d\n%s%s\nwant\n%s", args, code, out, errs, want)
		}
	}
	ask("people\n     7\n", "/news")
	ask("[\n  {\"people\": 6}\n]\n", "url=/blog", "--format", "json")
	ask("people\n     2\n", "/about", "--at-least", "1")
	ask("people\n", "/nowhere", "--format", "csv")
	ask("people\n", "/news", "--at-txid", "0")
	fails := func(code int, want string, args ...string) {
		t.Helper()
		out, errs, got := reach(append([]string{"query", "--data", data}, args...)...)
		if got != code || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d, want %d\n%s%s\nwant\n%s", args, got, code, out, errs, want)
		}
	}
	fails(1, "the pipeline isn't running, and what it left ends at txid", "--call", "reach", "/news", "--at-least", "999")
	fails(2, `no query "reech"; there is reach; did you mean reach?`, "--call", "reech")
	fails(2, "the query takes url string", "--call", "reach", "/news", "/blog")
	fails(2, "arguments of query reach: ", "--call", "reach")
	fails(2, "--at-least goes with --call", "tweeters", "--at-least", "1")
}

// TestReachRunning asks the pipeline while it runs, by the command and over HTTP, and reads what has just been written.
func TestReachRunning(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS("data")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	tridentd := func(ctx context.Context, args ...string) (string, error) {
		var out, errs bytes.Buffer
		if code := daemon.Execute(ctx, args, &out, &errs, Reach()); code != 0 {
			return "", fmt.Errorf("%q: exit code %d\n%s", args, code, &errs)
		}
		return out.String(), nil
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := tridentd(ctx, "run", "--listen", "127.0.0.1:0")
		ended <- err
	}()
	var status struct {
		Listen    string `json:"listen"`
		Committed int    `json:"committed_txid"`
	}
	for deadline := time.Now().Add(time.Minute); status.Committed == 0; time.Sleep(10 * time.Millisecond) {
		out, err := tridentd(t.Context(), "status", "--format", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &status)
		}
		if time.Now().After(deadline) {
			t.Fatalf("it doesn't run: %v", err)
		}
	}
	get := func(code int, query string) string {
		t.Helper()
		resp, err := http.Get("http://" + status.Listen + "/api/v1/queries/reach?" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != code {
			t.Errorf("%s: %s, %s, %v", query, resp.Status, b, err)
		}
		return string(b)
	}
	if got, want := get(200, "url=/blog"), "[\n{\"people\":6}\n]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	get(400, "page=/blog")
	f, err := os.OpenFile("data/tweets.csv", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("/about,bob\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// The first batches may have been several, so the next txid isn't for sure that of the new line.
	for next, deadline := status.Committed+1, time.Now().Add(time.Minute); ; next++ {
		out, err := tridentd(t.Context(), "query", "--call", "reach", "/about", "--at-least", fmt.Sprint(next), "--timeout", "1m", "--format", "csv")
		if err == nil && out == "people\n5\n" {
			break
		}
		if err != nil || out != "people\n2\n" || time.Now().After(deadline) {
			t.Fatalf("%q, %v", out, err)
		}
	}
	if got := get(504, "url=/about&_at_least=999&_timeout=20ms"); !strings.Contains(got, "no answer within 20ms") {
		t.Errorf("%s", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
