// Command ownsink writes its output to a place that tridentd knows nothing of: a file of bbolt, an embedded key-value store. It has a
// sink of its own (bolt.go), held to the conformance suite of sinks (bolt_test.go). It has all of tridentd's commands; run it in this
// folder:
//
//	go run . run --until caught-up
//	go run . entries
//
// Kill it at any moment and start it again: no entry is missing, and none is there twice.
package main

import (
	"fmt"
	"os"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
)

// Movement is one line of the data: so many pieces came to a shelf, or left it.
type Movement struct {
	Shelf  string
	Pieces int64
}

// Stock keeps how many pieces lie on each shelf, and enters each change of it in a file.
func Stock(f *File) *engine.Pipeline {
	p := engine.New("stock", engine.WithBatching(engine.Batching{MaxRecords: 4}))
	movements := engine.From(p, "movements", file.Paths("data/movements.jsonl"), codec.JSON[Movement]())
	stock := engine.Aggregate(engine.GroupBy(movements, func(m Movement) string { return m.Shelf }, "shelf"), "stock",
		agg.SumOf("pieces", func(m Movement) int64 { return m.Pieces }))
	lines := engine.Map(engine.Updates[int64](stock), func(r engine.Result[string, int64]) string {
		return fmt.Sprintf("%s %d", r.Key, r.Value)
	})
	engine.To(lines, "entries", f.To())
	return p
}

func main() {
	f := &File{Path: "stock.bolt"}
	if len(os.Args) == 2 && os.Args[1] == "entries" {
		all, err := f.Entries()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, e := range all {
			fmt.Println(e)
		}
		return
	}
	daemon.Main(Stock(f))
}
