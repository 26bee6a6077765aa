package engine_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
)

// A pipeline over a file, run to its end, and its state.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(dir+"/lines.txt", []byte("to be or\nnot to be\n"), 0o644); err != nil {
		panic(err)
	}

	p := engine.New("words")
	lines := engine.From(p, "lines", file.Paths(dir+"/lines.txt"), codec.String())
	words := engine.FlatMap(lines, strings.Fields)
	byWord := engine.GroupBy(words, func(w string) string { return w }, "word")
	engine.Aggregate(byWord, "counts", agg.Count[string]("n"))

	ctx := context.Background()
	h, err := engine.Start(ctx, p, engine.Options{DataDir: dir + "/data"})
	if err != nil {
		panic(err)
	}
	if err := h.WaitFor(ctx, 1); err != nil { // until txid 1 has committed
		panic(err)
	}
	counts, txid, err := engine.ReadState[string, int64](ctx, h, "counts")
	if err != nil {
		panic(err)
	}
	var rows []string
	for w, n := range counts {
		rows = append(rows, fmt.Sprintf("%s=%d", w, n))
	}
	slices.Sort(rows)
	fmt.Println("txid", txid, rows)

	h.Drain() // finish what is in flight
	fmt.Println(h.Wait())
	// Output:
	// txid 1 [be=2 not=1 or=1 to=2]
	// <nil>
}
