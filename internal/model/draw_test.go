package model_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/internal/model"
)

// sample is a pipeline with its input.
type sample struct {
	p       *model.Pipeline
	batches []model.Batch
	args    []model.Row // that queries are asked with
}

// drawing draws a pipeline, node by node.
type drawing struct {
	t *rapid.T
	p *model.Pipeline
	// By node, for those with a stream: whether its values have event times, and about how many there are in a batch.
	timed map[int]bool
	rows  map[int]float64
	late  map[int]bool // states whose late values have a stream
	parts map[int]int  // of sources
	days  bool         // a unit of time is hours, not seconds
	outer *drawing     // of a query: that of the pipeline
}

const maxRows = 400 // in a batch, at most: joins multiply

func drawSample(t *rapid.T) *sample {
	d := &drawing{
		t: t, p: &model.Pipeline{Skip: rapid.IntRange(0, 3).Draw(t, "skip") > 0}, timed: map[int]bool{}, rows: map[int]float64{}, late: map[int]bool{},
		parts: map[int]int{}, days: rapid.IntRange(0, 4).Draw(t, "days") == 4,
	}
	for range rapid.IntRange(1, 2).Draw(t, "sources") {
		d.source()
	}
	if rapid.Bool().Draw(t, "static table") {
		d.p.Nodes = append(d.p.Nodes, model.Node{Op: model.Static, F: rapid.IntRange(0, model.Functions-1).Draw(t, "rows")})
	}
	for range rapid.IntRange(1, 9).Draw(t, "nodes") {
		d.node()
	}
	// What comes along the streams that nothing takes.
	for i := range len(d.p.Nodes) {
		if _, ok := d.rows[i]; ok && !slices.ContainsFunc(d.p.Nodes, func(n model.Node) bool { return slices.Contains(n.In, i) }) {
			d.p.Nodes = append(d.p.Nodes, model.Node{Op: model.Watch, In: []int{i}})
		}
	}
	s := &sample{p: d.p, batches: d.batches()}
	for range rapid.IntRange(0, 2).Draw(t, "queries") {
		d.query()
	}
	for range 3 {
		s.args = append(s.args, d.record(s.around()).Row)
	}
	return s
}

// around is a time near those of the records.
func (s *sample) around() int64 {
	for _, b := range s.batches {
		for i := range s.p.Nodes {
			for _, records := range b.Records[i] {
				if len(records) > 0 {
					return records[0].At
				}
			}
		}
	}
	return 0
}

// query draws a query stream over what the pipeline keeps.
func (d *drawing) query() {
	in := &drawing{t: d.t, p: &model.Pipeline{Nodes: []model.Node{{Op: model.Args}}}, timed: map[int]bool{}, rows: map[int]float64{0: 1}, late: map[int]bool{}, outer: d, days: d.days}
	for range rapid.IntRange(1, 5).Draw(d.t, "nodes of a query") {
		in.node()
	}
	streams := in.streams()
	in.p.Nodes = append(in.p.Nodes, model.Node{Op: model.Answer, In: []int{streams[len(streams)-1]}})
	d.p.Queries = append(d.p.Queries, model.Query{Nodes: in.p.Nodes})
}

func (d *drawing) source() {
	i := len(d.p.Nodes)
	n := model.Node{Op: model.Source, Timed: rapid.IntRange(0, 3).Draw(d.t, "timed") > 0}
	if n.Timed {
		n.Seconds = rapid.Int64Range(0, 3).Draw(d.t, "lateness") * d.unit()
	}
	d.parts[i] = rapid.IntRange(1, 2).Draw(d.t, "partitions")
	d.p.Nodes = append(d.p.Nodes, n)
	d.timed[i], d.rows[i] = n.Timed, 4*float64(d.parts[i])
}

// unit is about how far apart event times are, in seconds.
func (d *drawing) unit() int64 {
	if d.days {
		return 4 * 3600
	}
	return 1
}

// streams lists the nodes with streams.
func (d *drawing) streams() []int {
	var all []int
	for i := range d.p.Nodes {
		if _, ok := d.rows[i]; ok {
			all = append(all, i)
		}
	}
	return all
}

// states lists the nodes that may be referred to by an operator.
func (d *drawing) states(op model.Op) []int {
	var all []int
	if d.outer != nil {
		return d.outer.states(op)
	}
	for i := range d.p.Nodes {
		n := &d.p.Nodes[i]
		var fits bool
		switch op {
		case model.Updates:
			fits = n.Op == model.Aggregate
		case model.Closed:
			fits = n.Op == model.Aggregate && n.Window.Shape != model.NoWindow
		case model.Late:
			fits = n.Op == model.Aggregate && n.Window.ByEvents() && !d.late[i]
		case model.Lookup:
			fits = n.Op == model.Latest || n.Op == model.LatestEntries || n.Op == model.Persist || n.Op == model.PersistEmit
		case model.StateQuery:
			fits = n.Op == model.Aggregate && n.Window.Shape == model.NoWindow
		case model.WindowQuery:
			fits = n.Op == model.Aggregate && n.Window.ByTime()
		case model.StaticLookup:
			fits = n.Op == model.Static
		default:
		}
		if fits {
			all = append(all, i)
		}
	}
	return all
}

// drawn are the operators to draw from, some of them more often.
var drawn = func() []model.Op {
	var all []model.Op
	for op := model.Map; op < model.Watch; op++ {
		all = append(all, op)
	}
	for range 6 {
		all = append(all, model.Aggregate)
	}
	for range 3 {
		all = append(all, model.JoinWithin, model.Updates, model.Closed, model.Late, model.Lookup, model.StateQuery, model.WindowQuery, model.StaticLookup)
	}
	return all
}()

// answers tells whether a query may have an operator: such as keep nothing and wait for nothing.
func answers(op model.Op) bool {
	switch op {
	case model.Map, model.TryMap, model.PanicMap, model.Filter, model.TryFilter, model.FlatMap, model.Merge, model.Pass, model.Extreme, model.Arrange, model.LimitBy, model.BatchAggregate,
		model.AggregateAll, model.PartitionAgg, model.InnerJoin, model.LeftJoin, model.RightJoin, model.FullJoin, model.AntiJoin, model.MultiJoin,
		model.MultiReduce, model.Shuffle, model.PartitionBy, model.Partition, model.Broadcast, model.Global, model.BatchGlobal,
		model.Lookup, model.StateQuery, model.WindowQuery, model.StaticLookup:
		return true
	default:
		return false
	}
}

// node draws an operator. One of too many rows becomes a Map.
func (d *drawing) node() {
	t := d.t
	i := len(d.p.Nodes)
	n := model.Node{Op: rapid.SampledFrom(slices.DeleteFunc(slices.Clone(drawn), func(op model.Op) bool {
		return op.Refers() && len(d.states(op)) == 0 || d.outer != nil && !answers(op)
	})).Draw(t, "operator")}
	if n.Op == model.Updates || n.Op == model.Closed || n.Op == model.Late {
		n.Of = rapid.SampledFrom(d.states(n.Op)).Draw(t, "of")
		d.behind(i, &n)
		d.p.Nodes = append(d.p.Nodes, n)
		return
	}
	streams := d.streams()
	in := streams[len(streams)-1] // often the last, so that operators stand behind each other
	if rapid.Bool().Draw(t, "another") {
		in = rapid.SampledFrom(streams).Draw(t, "input")
	}
	n.In = []int{in}
	rows, timed := d.rows[in], d.timed[in]
	switch n.Op {
	case model.InnerJoin, model.LeftJoin, model.RightJoin, model.FullJoin, model.AntiJoin, model.JoinWithin, model.MultiJoin, model.MultiReduce, model.Merge:
		more := 1
		if n.Op == model.MultiJoin || n.Op == model.MultiReduce || n.Op == model.Merge {
			more = rapid.IntRange(1, 2).Draw(t, "more inputs")
		}
		product, sum := rows, rows
		for range more {
			other := rapid.SampledFrom(d.streams()).Draw(t, "another input")
			n.In = append(n.In, other)
			product, sum, timed = product*max(d.rows[other], 1), sum+d.rows[other], timed && d.timed[other]
		}
		if rows = product; n.Op == model.MultiReduce || n.Op == model.Merge || n.Op == model.AntiJoin {
			rows = sum
		}
	case model.FlatMap:
		rows *= 3
	case model.Lookup, model.StateQuery, model.WindowQuery, model.StaticLookup:
		n.Of = rapid.SampledFrom(d.states(n.Op)).Draw(t, "of")
	default:
	}
	if n.Op == model.JoinWithin && !timed {
		n.Op = model.InnerJoin
	}
	n.F = rapid.IntRange(0, model.Functions-1).Draw(t, "function")
	n.Key = rapid.IntRange(0, 2).Draw(t, "key")
	switch n.Op {
	case model.JoinWithin:
		n.F = rapid.IntRange(model.WithinInner, model.WithinAnti).Draw(t, "join")
		n.Seconds = rapid.Int64Range(0, 5).Draw(t, "within") * d.unit()
		rows *= 2
	case model.Shuffle, model.PartitionBy, model.Partition, model.Broadcast, model.BatchGlobal:
		n.Parts = rapid.IntRange(1, 3).Draw(t, "parts")
		if n.Op == model.Broadcast {
			rows *= float64(n.Parts)
		}
		if n.Op == model.Partition {
			n.F %= 2
		}
	case model.Aggregate, model.BatchAggregate, model.AggregateAll, model.PartitionAgg, model.KeepAll:
		n.Agg = rapid.Custom(func(t *rapid.T) model.Agg {
			return model.Agg(rapid.IntRange(0, int(model.Fold)).Draw(t, "number"))
		}).Draw(t, "aggregate")
		if n.Op == model.Aggregate {
			if n.Window = d.window(timed); n.Window.Shape == model.NoWindow {
				n.TTL = d.ttl(timed)
			}
		}
		timed = false
	case model.PersistEmit:
		timed = false
	case model.Pass:
		if d.outer != nil {
			n.F %= 3 // a query's arguments are in one task anyway
		}
	case model.Latest:
		n.TTL = d.ttl(timed)
	case model.LatestEntries:
		n.TTL = d.ttl(false)
	default:
	}
	if rows > maxRows {
		n = model.Node{Op: model.Map, In: []int{in}, F: n.F}
		rows, timed = d.rows[in], d.timed[in]
	}
	d.p.Nodes = append(d.p.Nodes, n)
	switch n.Op {
	case model.Aggregate, model.Persist, model.Latest, model.LatestEntries, model.KeepAll, model.Sink:
	default:
		d.rows[i], d.timed[i] = rows, timed
	}
}

// behind notes what comes of a state.
func (d *drawing) behind(i int, n *model.Node) {
	st := &d.p.Nodes[n.Of]
	d.rows[i] = d.rows[st.In[0]]
	if st.Window.Shape == model.Sliding || st.Window.Shape == model.ByCount {
		d.rows[i] *= 2
	}
	d.timed[i] = st.Window.ByEvents()
	if n.Op == model.Late {
		d.late[n.Of] = true
	}
}

func (d *drawing) ttl(timed bool) model.TTL {
	if rapid.Bool().Draw(d.t, "for ever") {
		return model.TTL{}
	}
	ttl, unit := model.TTL{ByBatch: !timed || rapid.Bool().Draw(d.t, "by batch")}, int64(1)
	if !ttl.ByBatch {
		unit = d.unit()
	}
	ttl.Seconds = rapid.Int64Range(1, 6).Draw(d.t, "ttl") * unit
	return ttl
}

func (d *drawing) window(timed bool) model.Window {
	t := d.t
	shapes := []model.Shape{model.NoWindow, model.ByCount, model.ByBatchTime}
	if timed {
		shapes = []model.Shape{model.NoWindow, model.Tumbling, model.Sliding, model.Session, model.Tumbling, model.Sliding, model.Session, model.ByCount, model.ByBatchTime}
		if d.days {
			shapes = append(shapes, model.Days, model.Days, model.Days)
		}
	}
	w := model.Window{Shape: rapid.SampledFrom(shapes).Draw(t, "window")}
	unit := d.unit()
	if w.Shape == model.ByCount || w.Shape == model.ByBatchTime {
		unit = 1
	}
	switch w.Shape {
	case model.Tumbling, model.ByBatchTime:
		w.Size = rapid.Int64Range(1, 5).Draw(t, "size") * unit
		if w.Shape == model.Tumbling {
			w.Offset = rapid.Int64Range(0, w.Size-1).Draw(t, "offset")
		}
	case model.Session:
		w.Size = rapid.Int64Range(1, 4).Draw(t, "gap") * unit
	case model.Sliding, model.ByCount:
		w.Size = rapid.Int64Range(1, 5).Draw(t, "size")
		w.Slide = rapid.Int64Range((w.Size+2)/3, w.Size).Draw(t, "slide") * unit
		w.Size *= unit
	default:
	}
	if w.ByTime() || w.Shape == model.Session {
		if w.RetentionSet = rapid.IntRange(0, 2).Draw(t, "retention set") == 0; w.RetentionSet {
			w.Retention = rapid.Int64Range(0, 4).Draw(t, "retention")
			if w.Shape == model.Session {
				w.Retention *= unit
			}
		}
	}
	return w
}

func (d *drawing) batches() []model.Batch {
	t := d.t
	base := rapid.SampledFrom([]int64{0, -7, 1_764_590_000}).Draw(t, "base")
	if d.days {
		// Around the changes of the clocks in Berlin, in spring and in autumn.
		base = rapid.SampledFrom([]int64{1_743_206_400, 1_761_350_400}).Draw(t, "base")
	}
	var all []model.Batch
	clock, advance := int64(0), base
	timed := slices.ContainsFunc(d.p.Nodes, func(n model.Node) bool { return n.Timed })
	for k := range rapid.IntRange(1, 6).Draw(t, "batches") {
		b := model.Batch{Records: map[int][][]model.Record{}}
		if k > 0 {
			clock += rapid.SampledFrom([]int64{1, 1, 1, 2, 0, 8 * 86_400}).Draw(t, "clock")
			if timed && rapid.IntRange(0, 7).Draw(t, "advance") == 7 {
				advance += rapid.Int64Range(0, 9).Draw(t, "by") * d.unit()
				b.Advance, b.AdvanceTo = true, advance
			}
		}
		b.Clock = clock
		for i := range d.p.Nodes {
			if d.p.Nodes[i].Op != model.Source {
				continue
			}
			b.Records[i] = make([][]model.Record, d.parts[i])
			for part := range d.parts[i] {
				for range rapid.IntRange(0, 4).Draw(t, "records") {
					b.Records[i][part] = append(b.Records[i][part], d.record(base+int64(k)*4*d.unit()))
				}
			}
		}
		all = append(all, b)
	}
	for range 2 { // closes what can be closed
		b := model.Batch{Records: map[int][][]model.Record{}}
		for i, parts := range d.parts { // order: a map is made
			b.Records[i] = make([][]model.Record, parts)
		}
		clock += 3
		b.Clock = clock
		all = append(all, b)
	}
	return all
}

func (d *drawing) record(around int64) model.Record {
	t := d.t
	r := model.Record{}
	r.K = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "k")
	r.N = rapid.Int64Range(-2, 9).Draw(t, "n")
	r.At = around + rapid.Int64Range(-6, 8).Draw(t, "at")*d.unit() + rapid.Int64Range(0, d.unit()-1).Draw(t, "at, finely")
	switch rapid.IntRange(0, 39).Draw(t, "kind") {
	case 39:
		r.At = model.Start.Unix() + 30*86_400
	case 38:
		r.Bad = true
	}
	return r
}
