// Package model says what a pipeline comes to: a second, slow and obvious reading of the engine's semantics, which shares no code
// with it. It works on one record after the other, in one place, keeps every value that a key ever had and computes what they come to
// anew each time. No batch overlaps another, nothing is combined beforehand, nothing fails but what a pipeline says.
//
// A pipeline is described by a Pipeline, its input by Batches; a Machine takes the batches and tells what each leaves. The package's
// tests draw pipelines, input and faults at random, and compare: states, what is turned away, records for sinks, and answers to queries.
//
// All of the Go API's functions on streams, groups, states and tables take part, but for those that a test of the package lists with the
// reason. Pipelines in YAML don't: their steps (sort, limit, repartition, distinct and the others) have tests of their own in package spec.
package model

import (
	"fmt"
	"strings"
)

// Row is what all streams carry.
type Row struct {
	K  string `json:"k"`
	N  int64  `json:"n"`
	At int64  `json:"at"` // seconds since 1970: the event time where a source has one
}

// Op is an operator.
type Op uint8

// The operators. What a Node's fields mean for each stands behind it.
const (
	Source         Op = iota // Timed, Seconds: the lateness
	Map                      // F
	TryMap                   // F: fails for some values
	PanicMap                 // F: panics for some values
	Flaky                    // fails in passing, once
	Filter                   // F
	FlatMap                  // F
	Merge                    //
	Aggregate                // Key, Agg, Window, TTL without one
	Updates                  // Of
	Closed                   // Of
	Late                     // Of
	BatchAggregate           // Key, Agg
	AggregateAll             // Agg
	PartitionAgg             // Agg
	InnerJoin                // Key
	LeftJoin                 // Key
	RightJoin                // Key
	FullJoin                 // Key
	AntiJoin                 // Key
	JoinWithin               // Key, F: which join, Seconds: how far apart
	MultiJoin                // Key, F: which sides are outer, bit by bit
	MultiReduce              // Key, F as in MultiJoin
	Shuffle                  // Parts
	PartitionBy              // Key, Parts
	Partition                // Parts; F: some values have a wrong partition
	Broadcast                // Parts
	Global                   //
	BatchGlobal              // Parts
	Persist                  //
	PersistEmit              //
	Latest                   // Key, TTL
	LatestEntries            // some values remove their key; TTL by batch time
	Lookup                   // Of, Key
	StateQuery               // Of, Key
	WindowQuery              // Of, Key
	KeepAll                  // Agg
	Extreme                  // F: which, of which order
	Arrange                  // F: sorted, in which order, or limited to how many
	LimitBy                  // F: to how many, Key
	Pass                     // F: an operator that changes nothing
	TryFilter                // F: fails for some values
	StaticLookup             // Of, Key
	Sink                     // F: some values can't be written
	Watch                    // notes what comes, by batch
	Static                   // F: which table
	Args                     // of a query: its arguments
	Answer                   // of a query: its rows
)

var opNames = [...]string{
	"source", "map", "try_map", "panic_map", "flaky", "filter", "flat_map", "merge", "aggregate", "updates", "closed", "late",
	"batch_aggregate", "batch_aggregate_all", "partition_aggregate", "join", "left_join", "right_join", "full_join", "anti_join", "join_within",
	"multi_join", "multi_reduce", "shuffle", "partition_by", "partition", "broadcast", "global", "batch_global", "partition_persist",
	"partition_persist_emit", "latest", "latest_entries", "lookup", "state_query", "window_query", "aggregate_all", "extreme", "arrange", "limit_by", "pass", "try_filter",
	"static_lookup", "sink", "watch", "static", "args", "answer",
}

func (o Op) String() string { return opNames[o] }

// Refers tells whether the operator is about the state of a node.
func (o Op) Refers() bool {
	switch o {
	case Updates, Closed, Late, Lookup, StateQuery, WindowQuery, StaticLookup:
		return true
	default:
		return false
	}
}

// Agg is an aggregate of the values N.
type Agg uint8

// The aggregates.
const (
	Count Agg = iota
	Sum
	Min
	Max
	First
	Last
	CountOdd
	Distinct
	MinBy // At of the value with the least N
	MaxBy
	Collect
	FirstTwo
	LastTwo
	TopTwo
	Fields // count, sum, greatest, last and mean
	Combine
	Fold
)

var aggNames = [...]string{
	"count", "sum", "min", "max", "first", "last", "count_odd", "distinct", "min_by", "max_by", "collect", "first_2", "last_2", "top_2",
	"fields", "combine", "fold",
}

func (a Agg) String() string { return aggNames[a] }

// Shape is a shape of windows.
type Shape uint8

// The shapes.
const (
	NoWindow Shape = iota
	Tumbling
	Sliding
	Days // in Berlin
	Session
	ByCount
	ByBatchTime // tumbling
)

// Window is a window. Times are in seconds.
type Window struct {
	Shape        Shape
	Size         int64 // of sessions, the gap; ByCount: how many values
	Slide        int64 // ByCount: how many values lie between two
	Offset       int64
	Retention    int64 // 0: the default
	RetentionSet bool
}

// ByEvents tells of windows that event time closes.
func (w Window) ByEvents() bool {
	return w.Shape == Tumbling || w.Shape == Sliding || w.Shape == Days || w.Shape == Session
}

// ByTime tells of windows whose borders are fixed.
func (w Window) ByTime() bool { return w.ByEvents() && w.Shape != Session || w.Shape == ByBatchTime }

func (w Window) String() string {
	var s string
	switch w.Shape {
	case NoWindow:
		return ""
	case Tumbling:
		s = fmt.Sprintf("tumbling %ds offset %ds", w.Size, w.Offset)
	case Sliding:
		s = fmt.Sprintf("sliding %ds by %ds", w.Size, w.Slide)
	case Days:
		s = "days in Berlin"
	case Session:
		s = fmt.Sprintf("sessions with gaps of %ds", w.Size)
	case ByCount:
		s = fmt.Sprintf("windows of %d values by %d", w.Size, w.Slide)
	case ByBatchTime:
		s = fmt.Sprintf("tumbling %ds of batch time", w.Size)
	}
	if w.RetentionSet {
		s += fmt.Sprintf(" kept %ds", w.Retention)
	}
	return s
}

// Node is an operator of a pipeline. Its stream, and what it keeps, are known by its number.
type Node struct {
	Op      Op
	In      []int // the streams that it takes
	Of      int   // the node whose state it is about
	F       int   // which function
	Key     int   // which key
	Agg     Agg
	Window  Window
	TTL     TTL
	Timed   bool
	Seconds int64
	Parts   int
}

// Pipeline is a pipeline: nodes, each after those that it refers to.
type Pipeline struct {
	Nodes []Node
	// Queries read what batches have left. Of their nodes Of is about a node of the pipeline.
	Queries []Query
	// Skip has bad records turned away; without it the batch with the first one is never applied, and ends the run.
	Skip bool
}

// Query is a query stream: nodes of which the first has the arguments, and an Answer the rows of the answer.
type Query struct{ Nodes []Node }

// QueryName is how a query is called in the engine.
func QueryName(query int) string { return fmt.Sprintf("q%02d", query) }

// Name is how a node is called in the engine: source, operator or state.
func Name(node int) string { return fmt.Sprintf("n%02d", node) }

// String writes the pipeline a line for each node.
func (p *Pipeline) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "bad records are skipped: %t\n", p.Skip)
	describe(&s, p.Nodes)
	for i, q := range p.Queries {
		fmt.Fprintf(&s, "query %s\n", QueryName(i))
		describe(&s, q.Nodes)
	}
	return s.String()
}

func describe(s *strings.Builder, nodes []Node) {
	for i, n := range nodes {
		fmt.Fprintf(s, "  %s = %s", Name(i), n.Op)
		for _, in := range n.In {
			fmt.Fprintf(s, " %s", Name(in))
		}
		switch n.Op {
		case Source:
			if n.Timed {
				fmt.Fprintf(s, " with event time, lateness %ds", n.Seconds)
			}
		case Map, TryMap, PanicMap, Filter, FlatMap, Partition, Extreme, Arrange, LimitBy, Pass, TryFilter, Sink, Static:
			fmt.Fprintf(s, " f%d", n.F)
		case JoinWithin:
			fmt.Fprintf(s, " f%d, %ds", n.F, n.Seconds)
		case MultiJoin, MultiReduce:
			fmt.Fprintf(s, " outer %b", n.F)
		default:
		}
		if n.Op.Refers() {
			fmt.Fprintf(s, " of %s", Name(n.Of))
		}
		if n.keyed() {
			fmt.Fprintf(s, " by k%d", n.Key)
		}
		switch n.Op {
		case Aggregate, BatchAggregate, AggregateAll, PartitionAgg, KeepAll:
			fmt.Fprintf(s, ", %s", n.Agg)
		default:
		}
		if n.Window.Shape != NoWindow {
			fmt.Fprintf(s, ", in %s", n.Window)
		}
		if n.TTL.Seconds > 0 {
			fmt.Fprintf(s, ", for %ds, by batch %t", n.TTL.Seconds, n.TTL.ByBatch)
		}
		if n.Parts > 0 {
			fmt.Fprintf(s, " into %d", n.Parts)
		}
		s.WriteByte('\n')
	}
}

func (n *Node) keyed() bool {
	switch n.Op {
	case Aggregate, BatchAggregate, InnerJoin, LeftJoin, RightJoin, FullJoin, AntiJoin, JoinWithin, MultiJoin, MultiReduce, PartitionBy, Latest,
		Lookup, StateQuery, WindowQuery, StaticLookup, LimitBy:
		return true
	default:
		return false
	}
}

// Record is a record of a source.
type Record struct {
	Row
	Bad bool // it can't be decoded
}

// Batch is a batch: records by source and partition, and how the clock moved since the batch before.
type Batch struct {
	Records map[int][][]Record // by node, then by partition
	Clock   int64              // seconds since the first batch
	// AdvanceTo, if Advance, is where event time came to before the batch, in all sources: seconds since 1970.
	Advance   bool
	AdvanceTo int64
}

// String writes the batch a line for each partition.
func (b *Batch) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "clock +%ds", b.Clock)
	if b.Advance {
		fmt.Fprintf(&s, ", event time comes to %d", b.AdvanceTo)
	}
	for _, node := range sortedKeys(b.Records) {
		for part, records := range b.Records[node] {
			if len(records) == 0 {
				continue
			}
			fmt.Fprintf(&s, "\n    %s/%d:", Name(node), part)
			for _, r := range records {
				if r.Bad {
					s.WriteString(" bad")
					continue
				}
				fmt.Fprintf(&s, " {%s %d @%d}", r.K, r.N, r.At)
			}
		}
	}
	return s.String()
}
