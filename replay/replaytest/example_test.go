package replaytest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/replay/replaytest"
)

// Words counts words.
func Words() *engine.Pipeline {
	p := engine.New("words")
	lines := engine.From(p, "lines", kafka.FromEnv().Topics("lines"), codec.String())
	words := engine.FlatMap(lines, func(s string) []string { return strings.Split(strings.ToLower(s), " ") })
	engine.Aggregate(engine.GroupBy(words, func(w string) string { return w }, "word"), "counts", agg.Count[string]("n"))
	return p
}

// What the topic holds is read once, then run again and again in all kinds of circumstances.
func ExampleVerify() {
	_ = func(t *testing.T) { // TestWords of the pipeline's package
		replaytest.Verify(t, Words, replaytest.Live{Records: 100_000})
	}
}

// A recording lies beside the test, so that it needs no broker.
func ExampleRecorded() {
	dir, err := os.MkdirTemp("", "recorded")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)                                               //nolint:errcheck // a temporary directory
	records := `{"topic":"lines","partition":0,"offset":0,"value":"a b"}` // made by replaytest.Record, or by hand
	if err := os.WriteFile(filepath.Join(dir, "lines.jsonl"), []byte(records), 0o600); err != nil {
		panic(err)
	}
	t := &reporter{}
	replaytest.Verify(t, Words, replaytest.Recorded(dir))
	fmt.Println("failed:", t.failed)
	// Output:
	// failed: false
}

// reporter stands for a test's *testing.T.
type reporter struct {
	testing.TB
	failed bool
}

func (*reporter) Helper() {}
func (r *reporter) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Printf(format+"\n", args...)
}
func (*reporter) Context() context.Context { return context.Background() }
