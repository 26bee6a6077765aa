package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/model"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/window"
)

// nowhere is a source whose records the test brings.
type nowhere struct{}

func (nowhere) Describe() string { return "nowhere" }
func (nowhere) Open(string, emitter.Framing, emitter.Env) (emitter.Emitter, error) {
	return nil, errors.New("the test brings the records")
}

type (
	row    = model.Row
	stream = engine.Stream[row]
	group  = engine.Grouped[string, row]
	states = engine.State[string]
)

// kept is the row of a persist.
type kept struct{ Seen, Last int64 }

// noted is the key of a row in a watched stream's state.
type noted struct{ Txid, Row int64 }

// kit is what is done with an aggregate, whose result has a type of its own.
type kit struct {
	aggregate func(g group, name string) *states
	results   func(st *states, closed bool) stream
	perBatch  func(g group, name string) stream
	all       func(s stream, name string) stream
	partial   func(s stream) stream
	query     func(s stream, st *states, key func(row) string) stream
	window    func(s stream, st *states, key func(row) engine.Windowed[string]) stream
	keepAll   func(s stream, name string)
	readAll   func(ctx context.Context, snap *pebblestate.Snapshot, name string) (map[string]string, error)
	read      func(ctx context.Context, snap *pebblestate.Snapshot, name string, w model.Window) (map[string]string, error)
}

func kitOf[R any](a agg.Aggregation[row], values func(R) []int64) kit {
	found := func(r row, v *R) row {
		if v == nil {
			return model.Found(r, nil)
		}
		return model.Found(r, values(*v))
	}
	return kit{
		aggregate: func(g group, name string) *states { return engine.Aggregate(g, name, a) },
		results: func(st *states, closed bool) stream {
			var s engine.Stream[engine.Result[string, R]]
			if closed {
				s = engine.Closed[R](st)
			} else {
				s = engine.Updates[R](st)
			}
			return engine.Map(s, func(r engine.Result[string, R]) row {
				start, end := r.Window.First, r.Window.Limit
				if !r.Window.Start.IsZero() {
					start, end = r.Window.Start.UnixNano(), r.Window.End.UnixNano()
				}
				return model.ResultRow(r.Key, start, end, values(r.Value))
			})
		},
		perBatch: func(g group, name string) stream {
			return engine.Map(engine.BatchAggregate[R](g, name, a), func(t engine.Total[string, R]) row {
				return row{K: t.Key, N: model.Digest(values(t.Value))}
			})
		},
		all: func(s stream, name string) stream {
			return engine.Map(engine.BatchAggregateAll[R](s, name, a), func(r R) row { return row{K: "all", N: model.Digest(values(r))} })
		},
		partial: func(s stream) stream {
			return engine.Map(engine.PartitionAggregate[R](s, a), func(r R) row { return row{K: "p", N: model.Digest(values(r))} })
		},
		query: func(s stream, st *states, key func(row) string) stream { return engine.StateQuery(s, st, key, found) },
		window: func(s stream, st *states, key func(row) engine.Windowed[string]) stream {
			return engine.WindowQuery(s, st, key, found)
		},
		keepAll: func(s stream, name string) { engine.AggregateAll(s, name, a) },
		readAll: func(ctx context.Context, snap *pebblestate.Snapshot, name string) (map[string]string, error) {
			return readRows(ctx, snap, name, func(bool) string { return model.KeyText(model.Window{}, "all", 0, 0) }, values)
		},
		read: func(ctx context.Context, snap *pebblestate.Snapshot, name string, w model.Window) (map[string]string, error) {
			switch w.Shape {
			case model.NoWindow:
				return readRows(ctx, snap, name, func(k string) string { return model.KeyText(w, k, 0, 0) }, values)
			case model.Tumbling, model.Days, model.ByBatchTime:
				return readRows(ctx, snap, name, func(k engine.Windowed[string]) string {
					return model.KeyText(w, k.Key, k.Start.UnixNano(), 0)
				}, values)
			case model.ByCount:
				return readRows(ctx, snap, name, func(k engine.Spanned[string]) string {
					return model.KeyText(w, k.Key, k.Window.First, k.Window.Limit)
				}, values)
			default:
			}
			return readRows(ctx, snap, name, func(k engine.Spanned[string]) string {
				return model.KeyText(w, k.Key, k.Window.Start.UnixNano(), k.Window.End.UnixNano())
			}, values)
		},
	}
}

func readRows[K comparable, V any](
	ctx context.Context, snap *pebblestate.Snapshot, name string, key func(K) string, values func(V) []int64,
) (map[string]string, error) {
	rows, err := engine.ReadSnapshot[K, V](ctx, snap, name)
	all := map[string]string{}
	for k, v := range rows { // order: a map is made
		all[key(k)] = fmt.Sprint(values(v))
	}
	return all, err
}

func one(n int64) []int64    { return []int64{n} }
func many(n []int64) []int64 { return n }
func number(r row) int64     { return r.N }
func at(r row) int64         { return r.At }

// totals are the columns of the aggregate Fields.
type totals struct {
	Count, Sum, Most, Last int64
	Mean                   float64
}

type accumulators struct {
	Count agg.Counter
	Sum   agg.Sum[int64]
	Most  agg.Max[int64]
	Last  agg.Last[int64]
	Mean  agg.Mean[int64]
}

func ends(e model.Ends) []int64 { return []int64{e.F, e.L, e.S} }

var kits = map[model.Agg]kit{
	model.Count:    kitOf(agg.Count[row]("v"), one),
	model.Sum:      kitOf(agg.SumOf("v", number), one),
	model.Min:      kitOf(agg.MinOf("v", number), one),
	model.Max:      kitOf(agg.MaxOf("v", number), one),
	model.First:    kitOf(agg.FirstOf("v", number), one),
	model.Last:     kitOf(agg.LastOf("v", number), one),
	model.CountOdd: kitOf(agg.CountIf("v", func(r row) bool { return r.N%2 != 0 }), one),
	model.Distinct: kitOf(agg.DistinctOf("v", number), one),
	model.MinBy:    kitOf(agg.MinByOf("v", at, number), one),
	model.MaxBy:    kitOf(agg.MaxByOf("v", at, number), one),
	model.Collect:  kitOf(agg.CollectOf("v", number), many),
	model.FirstTwo: kitOf(agg.FirstNOf("v", 2, number), many),
	model.LastTwo:  kitOf(agg.LastNOf("v", 2, number), many),
	model.TopTwo:   kitOf(agg.TopOf("v", 2, number), many),
	model.Fields: kitOf(agg.Fields(func(a *accumulators, r row) {
		a.Count.Inc()
		a.Sum.Add(r.N)
		a.Most.Add(r.N)
		a.Last.Add(r.N)
		a.Mean.Add(r.N)
	}), func(t totals) []int64 {
		return []int64{t.Count, t.Sum, t.Most, t.Last, int64(math.Float64bits(t.Mean))}
	}),
	model.Combine: kitOf(agg.Combine("v", model.Lift, model.Together), ends),
	model.Fold:    kitOf(agg.Fold("v", func() model.Ends { return model.Ends{} }, model.FoldIn), ends),
}

// builder makes an engine's pipeline of a described one.
type builder struct {
	p       *model.Pipeline
	out     *engine.Pipeline
	streams map[int]stream
	groups  map[int]group
	states  map[int]*states
	rows    map[int]engine.Table[string, row]
	static  map[int]engine.Table[string, row]
	failing *atomic.Int64 // how often functions still fail in passing
	outer   *builder      // of a query: that of the pipeline
	answer  stream        // of a query
}

type queries = []*engine.QueryStream[row, row]

func build(p *model.Pipeline, failing int64) (*engine.Pipeline, queries) {
	policy := engine.Stop
	if p.Skip {
		policy = engine.Skip
	}
	b := &builder{
		p: p, out: engine.New("model", engine.OnBadRecord(policy)), streams: map[int]stream{}, groups: map[int]group{}, states: map[int]*states{},
		rows: map[int]engine.Table[string, row]{}, static: map[int]engine.Table[string, row]{}, failing: &atomic.Int64{},
	}
	b.failing.Store(failing)
	for i := range p.Nodes {
		b.add(i, &p.Nodes[i])
	}
	var all queries
	for i := range p.Queries {
		all = append(all, engine.Query(b.out, model.QueryName(i), func(args stream) stream {
			q := &builder{p: &model.Pipeline{Nodes: p.Queries[i].Nodes}, streams: map[int]stream{0: args}, outer: b}
			for k := range q.p.Nodes {
				if k > 0 {
					q.add(k, &q.p.Nodes[k])
				}
			}
			return q.answer
		}))
	}
	return b.out, all
}

// keeps is the builder that has what a node keeps.
func (b *builder) keeps() *builder {
	if b.outer != nil {
		return b.outer
	}
	return b
}

// nowhereElse is a target whose records the test takes.
type nowhereElse struct {
	nowhere
	f int
}

func (s nowhereElse) Encode(r row, out *sink.Record) error {
	if s.f%2 == 1 && model.Fails(s.f, r) {
		return errors.New("no")
	}
	var err error
	out.Key = []byte(r.K)
	out.Value, err = json.Marshal(r)
	return err
}

func (nowhereElse) Open(string, string, emitter.Env) (sink.Sink, error) {
	return nil, errors.New("the test takes the records")
}

// same adds an operator, where a hint alone would leave the stream the same and what reads it in another order.
func same(s stream) stream { return engine.Map(s, func(r row) row { return r }) }

// pass adds an operator that changes nothing.
func pass(s stream, f int) stream {
	switch f {
	case 0:
		return s.Peek(func(*engine.Batch, row) {})
	case 1:
		return same(s.IdentityPartition())
	case 2:
		return engine.Apply(s.Apply(func(s stream) stream { return s }), same)
	}
	return same(s.Parallelism(1))
}

func extreme(s stream, f int) stream {
	by := func(r row) int64 { return r.N }
	order := func(a, b row) int { return model.Compare(f, a, b) }
	switch f {
	case 0:
		return s.BatchMin(order)
	case 1:
		return s.BatchMax(order)
	case 2:
		return engine.BatchMinBy(s, by)
	}
	return engine.BatchMaxBy(s, by)
}

func arrange(s stream, f int) stream {
	switch {
	case model.Limits(f) > 0:
		return s.BatchLimit(model.Limits(f))
	case f == 0:
		return s.BatchSort(func(a, b row) int { return model.Compare(0, a, b) })
	}
	return engine.BatchSortBy(s, func(r row) int64 { return r.N })
}

// tableText is a static table's records.
func tableText(f int) []batch.Record {
	var all []batch.Record
	for _, r := range model.TableRows(f) {
		b, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		all = append(all, batch.Record{Value: b})
	}
	return all
}

func viewOf(b *engine.Batch) model.View {
	return model.View{
		Txid: int64(b.Txid()), Seconds: int64(b.Time().Sub(model.Start) / time.Second), Partition: int64(b.Partition().Number), Offset: b.Offset(),
	}
}

func (b *builder) add(i int, n *model.Node) {
	name := model.Name(i)
	var s, second stream
	if len(n.In) > 0 {
		s = b.streams[n.In[0]]
	}
	if len(n.In) > 1 {
		second = b.streams[n.In[1]]
	}
	key := func(r row) string { return model.KeyOf(n.Key, r) }
	kit := kits[n.Agg]
	put := func(s stream) { b.streams[i] = s }
	switch n.Op {
	case model.Source:
		s := engine.From(b.out, name, nowhere{}, codec.JSON[row]())
		if n.Timed {
			s = s.EventTime(func(r row) time.Time { return time.Unix(r.At, 0) }, time.Duration(n.Seconds)*time.Second)
		}
		put(s)
	case model.Map:
		if n.F < 2 {
			put(engine.Map(s, func(r row) row { return model.MapRow(n.F, model.View{}, r) }).Name(name))
			return
		}
		put(engine.Each(s, func(b *engine.Batch, r row, emit func(row)) { emit(model.MapRow(n.F, viewOf(b), r)) }).Name(name))
	case model.TryMap:
		if n.F >= 2 {
			put(engine.Process(s, func(_ *engine.Batch, r row, emit func(row)) error {
				if model.Fails(n.F, r) {
					return errors.New("no")
				}
				emit(model.MapRow(n.F%2, model.View{}, r))
				return nil
			}).Name(name))
			return
		}
		put(engine.TryMap(s, func(_ *engine.Batch, r row) (row, error) {
			if model.Fails(n.F, r) {
				return r, errors.New("no")
			}
			return model.MapRow(n.F%2, model.View{}, r), nil
		}).Name(name))
	case model.PanicMap:
		put(engine.Map(s, func(r row) row {
			if model.Fails(n.F, r) {
				panic("no")
			}
			return model.MapRow(n.F%2, model.View{}, r)
		}).Name(name))
	case model.Flaky:
		put(engine.TryMap(s, func(_ *engine.Batch, r row) (row, error) {
			if r.N%2 == 0 && b.failing.Add(-1) >= 0 {
				return r, engine.Transient(errors.New("in passing"))
			}
			return r, nil
		}).Name(name))
	case model.Filter:
		put(s.Filter(func(r row) bool { return model.Keep(n.F, r) }).Name(name))
	case model.TryFilter:
		put(s.TryFilter(func(_ *engine.Batch, r row) (bool, error) {
			if model.Fails(n.F, r) {
				return true, errors.New("no")
			}
			return model.Keep(n.F, r), nil
		}).Name(name))
	case model.Pass:
		put(pass(s, n.F))
	case model.Extreme:
		put(extreme(s, n.F).Name(name))
	case model.Arrange:
		put(arrange(s, n.F).Name(name))
	case model.LimitBy:
		put(engine.BatchLimitBy(engine.GroupBy(s, key), 1+n.F).Name(name))
	case model.Sink:
		engine.To(s, name, nowhereElse{f: n.F})
	case model.Static:
		b.static[i] = engine.Static(b.out, name, nowhere{}, codec.JSON[row](), func(r row) string { return r.K })
	case model.StaticLookup:
		put(engine.Lookup(s, b.keeps().static[n.Of], key, func(r row, found *row) row {
			if found == nil {
				return model.Found(r, nil)
			}
			return model.Found(r, tableRow(*found))
		}).Name(name))
	case model.KeepAll:
		kit.keepAll(s, name)
	case model.Answer:
		b.answer = s
	case model.FlatMap:
		put(engine.FlatMap(s, func(r row) []row { return model.Spread(n.F, r) }).Name(name))
	case model.Merge:
		var others []stream
		for _, in := range n.In[1:] {
			others = append(others, b.streams[in])
		}
		put(engine.Merge(s, others...).Name(name))
	case model.Aggregate:
		b.groups[i] = b.grouped(s, n)
		b.states[i] = kit.aggregate(b.groups[i], name)
		expires(b.states[i], n.TTL)
	case model.Updates, model.Closed:
		put(kits[b.p.Nodes[n.Of].Agg].results(b.states[n.Of], n.Op == model.Closed))
	case model.Late:
		put(engine.LateOf(b.groups[n.Of]))
	case model.BatchAggregate:
		put(kit.perBatch(engine.GroupBy(s, key), name))
	case model.AggregateAll:
		put(kit.all(s, name))
	case model.PartitionAgg:
		put(kit.partial(s))
	case model.InnerJoin:
		put(engine.BatchJoin(s, second, key, key, func(a, b row) row { return model.Joined(&a, &b) }).Name(name))
	case model.LeftJoin:
		put(engine.BatchLeftJoin(s, second, key, key, func(a row, b *row) row { return model.Joined(&a, b) }).Name(name))
	case model.RightJoin:
		put(engine.BatchRightJoin(s, second, key, key, func(a *row, b row) row { return model.Joined(a, &b) }).Name(name))
	case model.FullJoin:
		put(engine.BatchFullJoin(s, second, key, key, func(a, b *row) row { return model.Joined(a, b) }).Name(name))
	case model.AntiJoin:
		put(engine.BatchAntiJoin(s, second, key, key).Name(name))
	case model.JoinWithin:
		put(joinWithin(n, s, second, key).Name(name))
	case model.MultiJoin, model.MultiReduce:
		b.multi(i, n)
	case model.Shuffle:
		put(s.Shuffle(n.Parts).Name(name))
	case model.PartitionBy:
		put(engine.PartitionBy(s, key, n.Parts).Name(name))
	case model.Partition:
		put(s.Partition(n.Parts, func(r row) int { return model.PartOf(n.F, n.Parts, r) }).Name(name))
	case model.Broadcast:
		put(s.Broadcast(n.Parts).Name(name))
	case model.Global:
		put(s.Global().Name(name))
	case model.BatchGlobal:
		put(s.BatchGlobal(n.Parts).Name(name))
	default:
		b.keep(i, n, s)
	}
}

// grouped is what an aggregate takes.
func (b *builder) grouped(s stream, n *model.Node) group {
	key := func(r row) string { return model.KeyOf(n.Key, r) }
	w := n.Window
	seconds := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	var shape window.Windows
	switch w.Shape {
	case model.NoWindow:
		return engine.GroupBy(s, key)
	case model.Tumbling:
		shape = window.Tumbling(seconds(w.Size)).Offset(seconds(w.Offset))
	case model.Sliding:
		shape = window.Sliding(seconds(w.Size), seconds(w.Slide)).Offset(seconds(w.Offset))
	case model.Days:
		shape = window.Tumbling(24 * time.Hour).Zone("Europe/Berlin")
	case model.Session:
		shape = window.Session(seconds(w.Size))
	case model.ByCount:
		shape = window.SlidingCount(w.Size, w.Slide)
		if w.Size == w.Slide {
			shape = window.Count(w.Size)
		}
	case model.ByBatchTime:
		shape = window.Tumbling(seconds(w.Size)).ByBatchTime()
	}
	var opts []engine.WindowOption
	if w.RetentionSet {
		opts = append(opts, engine.Retention(seconds(w.Retention)))
	}
	return engine.GroupByWindow(s, shape, key, "key", opts...)
}

func joinWithin(n *model.Node, a, b stream, key func(row) string) stream {
	within := time.Duration(n.Seconds) * time.Second
	switch n.F {
	case model.WithinInner:
		return engine.Join(a, b, within, key, key, func(a, b row) row { return model.Joined(&a, &b) })
	case model.WithinLeft:
		return engine.LeftJoin(a, b, within, key, key, func(a row, b *row) row { return model.Joined(&a, b) })
	case model.WithinRight:
		return engine.RightJoin(a, b, within, key, key, func(a *row, b row) row { return model.Joined(a, &b) })
	case model.WithinFull:
		return engine.FullJoin(a, b, within, key, key, func(a, b *row) row { return model.Joined(a, b) })
	}
	return engine.AntiJoin(a, b, within, key, key)
}

// multi adds a MultiJoin or a MultiReduce.
func (b *builder) multi(i int, n *model.Node) {
	key := func(r row) string { return model.KeyOf(n.Key, r) }
	var sides []*engine.Side[string, row]
	var all []engine.AnySide[string]
	for k, in := range n.In {
		g := engine.GroupBy(b.streams[in], key)
		side := engine.Inner(g)
		if n.F&(1<<k) != 0 {
			side = engine.Outer(g)
		}
		sides, all = append(sides, side), append(all, side)
	}
	if n.Op == model.MultiJoin {
		b.streams[i] = engine.MultiJoin(func(j *engine.Joined[string]) row {
			var rows []*row
			for _, s := range sides {
				rows = append(rows, s.Row(j))
			}
			return model.Joined(rows...)
		}, all[0], all[1:]...).Name(model.Name(i))
		return
	}
	b.streams[i] = engine.MultiReduce(func(_ *engine.Batch, g *engine.Group[string], emit func(row)) error {
		var rows [][]row
		for _, s := range sides {
			rows = append(rows, s.Rows(g))
		}
		out, err := model.Reduced(g.Key, rows)
		for _, r := range out {
			emit(r)
		}
		if err != nil {
			emit(row{K: "dropped"})
		}
		return err
	}, all[0], all[1:]...).Name(model.Name(i))
}

// keep adds what keeps rows, or asks for them.
func (b *builder) keep(i int, n *model.Node, s stream) {
	name := model.Name(i)
	key := func(r row) string { return model.KeyOf(n.Key, r) }
	count := func(rows []row, st *engine.KV[string, kept], emit func(row)) error {
		for _, r := range rows {
			if model.Forgets(r) {
				if err := st.Delete(r.K); err != nil {
					return err
				}
				emit(row{K: r.K, At: r.At})
				continue
			}
			v, _, err := st.Get(r.K)
			if err != nil {
				return err
			}
			v.Seen, v.Last = model.Persisted(v.Seen, v.Last, r)
			if err := st.Set(r.K, v); err != nil {
				return err
			}
			emit(row{K: r.K, N: (v.Seen*100 + v.Last) % 10_000, At: r.At})
		}
		return nil
	}
	switch n.Op {
	case model.Persist:
		engine.PartitionPersist(s, name, func(_ *engine.Batch, rows []row, st *engine.KV[string, kept]) error {
			return count(rows, st, func(row) {})
		})
	case model.PersistEmit:
		b.streams[i] = engine.PartitionPersistEmit(s, name, func(_ *engine.Batch, rows []row, st *engine.KV[string, kept], emit func(row)) error {
			return count(rows, st, emit)
		})
	case model.Watch:
		engine.PartitionPersist(s, name, func(b *engine.Batch, rows []row, st *engine.KV[noted, row]) error {
			next := int64(0)
			for ; ; next++ {
				if _, ok, err := st.Get(noted{int64(b.Txid()), next}); err != nil {
					return err
				} else if !ok {
					break
				}
			}
			for k, r := range rows {
				if err := st.Set(noted{int64(b.Txid()), next + int64(k)}, r); err != nil {
					return err
				}
			}
			return nil
		})
	case model.Latest:
		b.rows[i] = engine.Latest(s, name, key)
		expires(b.rows[i], n.TTL)
	case model.LatestEntries:
		b.rows[i] = engine.LatestEntries(engine.Map(s, func(r row) codec.Entry[string, row] {
			if model.Removes(r) {
				return codec.Entry[string, row]{Key: r.K}
			}
			return codec.Entry[string, row]{Key: r.K, Value: codec.Of(r)}
		}), name)
		expires(b.rows[i], n.TTL)
	case model.Lookup:
		if table, ok := b.keeps().rows[n.Of]; ok {
			b.streams[i] = engine.Lookup(s, table, key, func(r row, found *row) row {
				if found == nil {
					return model.Found(r, nil)
				}
				return model.Found(r, tableRow(*found))
			}).Name(name)
			return
		}
		table := engine.RowsOf[string, kept](b.keeps().out, model.Name(n.Of))
		b.streams[i] = engine.Lookup(s, table, key, func(r row, found *kept) row {
			if found == nil {
				return model.Found(r, nil)
			}
			return model.Found(r, persisted(*found))
		}).Name(name)
	case model.StateQuery:
		b.streams[i] = kits[b.keeps().p.Nodes[n.Of].Agg].query(s, b.keeps().states[n.Of], key).Name(name)
	case model.WindowQuery:
		w := b.keeps().p.Nodes[n.Of].Window
		b.streams[i] = kits[b.keeps().p.Nodes[n.Of].Agg].window(s, b.keeps().states[n.Of], func(r row) engine.Windowed[string] {
			return engine.At(time.Unix(model.WindowAsked(w, r), 0), key(r))
		}).Name(name)
	default:
		panic("model: " + n.Op.String() + " can't be built")
	}
}

// expires makes the rows of what is kept expire.
func expires[S interface {
	TTL(ttl time.Duration) S
	TTLByBatch(ttl time.Duration) S
}](s S, ttl model.TTL) {
	after := time.Duration(ttl.Seconds) * time.Second
	switch {
	case after == 0:
	case ttl.ByBatch:
		s.TTLByBatch(after)
	default:
		s.TTL(after)
	}
}

func tableRow(r row) []int64   { return []int64{r.N, r.At} }
func persisted(k kept) []int64 { return []int64{k.Seen, k.Last} }

// read lists the rows of what a node keeps, as Machine.Rows does.
func read(ctx context.Context, snap *pebblestate.Snapshot, i int, n *model.Node) (map[string]string, error) {
	name := model.Name(i)
	quoted := func(k string) string { return model.KeyText(model.Window{}, k, 0, 0) }
	switch n.Op {
	case model.KeepAll:
		return kits[n.Agg].readAll(ctx, snap, name)
	case model.Aggregate:
		return kits[n.Agg].read(ctx, snap, name, n.Window)
	case model.Persist, model.PersistEmit:
		return readRows(ctx, snap, name, quoted, persisted)
	case model.Watch:
		return readRows(ctx, snap, name, func(k noted) string { return fmt.Sprintf("txid %d, row %d", k.Txid, k.Row) }, model.WatchedRow)
	default:
		return readRows(ctx, snap, name, quoted, tableRow)
	}
}

// text writes a record.
func text(r model.Record) string {
	if r.Bad {
		return "{"
	}
	var s strings.Builder
	fmt.Fprintf(&s, `{"k":%q,"n":%d,"at":%d}`, r.K, r.N, r.At)
	return s.String()
}
