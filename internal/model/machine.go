package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	_ "time/tzdata" // the zone of Days, wherever the tests run
)

const noTime = math.MinInt64

// Start is the clock of the first batch.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// futureBound is how far ahead of the batch's clock an event time may lie.
const futureBound = int64(time.Hour)

// Rejected is a row that was turned away: the record's place, or the stage and shard of a row behind one, with the txid as its offset.
type Rejected struct {
	Kind      string // bad, late, future
	Source    string
	Partition int64
	Offset    int64
	Step      string
	Txid      int64
}

// Machine takes the batches of a pipeline, one after the other.
type Machine struct {
	p *Pipeline
	// What follows from the pipeline.
	outs      map[int][]edge // by node: who takes its values, in the order in which they were attached
	behind    map[int][]int  // by state: the nodes that take its rows
	late      map[int]int    // by state with windows whose borders are fixed: the node that takes late values
	exchanges []int
	persists  []int
	placed    map[int]int   // by persist: before how many-th exchange it runs
	sources   map[int][]int // by node: the sources that its values come of
	berlin    *time.Location

	// What the batches so far have left.
	txid    int64
	marks   map[int]int64                // by source: its watermark
	seen    map[place]int64              // the largest event time
	offsets map[place]int64              // where the next batch begins
	kept    map[int]*contents            // by state
	waiting map[int]map[string][]waiting // by join in event time, and key

	// The batch that is worked on.
	batch    *Batch
	now      int64 // its clock
	pending  map[int][]delta
	rows     map[int][][]Row // by persist: what the tasks have for it
	rejected []Rejected
	failed   bool
	outputs  map[int][]Output // by sink

	outer    *Machine // of a query: that of the pipeline
	mutation Mutation
}

// edge leads to a node's input.
type edge struct{ node, side int }

// place is a partition of a source.
type place struct{ source, part int }

// contents is what a state holds.
type contents struct {
	rows    map[string]*entry  // by encoded key
	windows map[int64]int64    // by start of windows of time: the clock at which they closed; 0: open
	keys    map[string]*keyed  // of sessions and windows of values: by key
	table   map[string][]int64 // of tables, persists and watched streams: by encoded key
	shown   map[string]string  // of these: the key as text
	until   map[string]int64   // by encoded key: when a row expires
}

// entry is a row of an aggregate.
type entry struct {
	key        string
	start, end int64
	rows       []Row // all that it was made of
}

// keyed is what is open of a key.
type keyed struct {
	open   []session
	closed []session
	seen   []Row
}

type session struct {
	start, end int64 // of a window of values: their numbers
	rows       []Row
	changed    bool
	until      int64 // of a closed window of values: when its row is forgotten
}

// delta is what a task has for an exchange.
type delta struct {
	key        string // encoded
	text       string
	row        Row
	side       int
	at         int64 // event time
	may        bool  // be late
	start, end int64
}

// Output is a record for a sink.
type Output struct {
	Row
	Millis int64 // its timestamp
}

// task is the work on a partition of a source or on a shard of a stage.
type task struct {
	source, topic string
	part          int64
	stage         bool
	offset        int64 // of the record or row that is on its way
	sent          int64
	aggs          map[int][]Row
	rows          map[int][]Row // by persist
	outputs       map[int][]Output
	shuffled      map[int]*[2]int64
}

// value is on its way through a task.
type value struct {
	Row
	at  int64
	may bool // be late
}

// New returns a machine before the first batch. Its mutation is Right but in tests of the comparison itself.
func New(p *Pipeline, mutation Mutation) *Machine { return newMachine(p, mutation, nil) }

func newMachine(p *Pipeline, mutation Mutation, outer *Machine) *Machine {
	m := &Machine{
		p: p, mutation: mutation, outer: outer, outs: map[int][]edge{}, behind: map[int][]int{}, late: map[int]int{}, placed: map[int]int{}, sources: map[int][]int{},
		marks: map[int]int64{}, seen: map[place]int64{}, offsets: map[place]int64{}, kept: map[int]*contents{}, waiting: map[int]map[string][]waiting{},
	}
	var err error
	if m.berlin, err = time.LoadLocation("Europe/Berlin"); err != nil {
		panic(err)
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for side, in := range n.In {
			m.outs[in] = append(m.outs[in], edge{i, side})
			m.sources[i] = append(m.sources[i], m.sources[in]...)
		}
		switch n.Op {
		case Source:
			m.sources[i] = []int{i}
			m.marks[i] = noTime
		case Updates, Closed, Late:
			m.sources[i] = m.sources[n.Of]
			if n.Op == Late && p.Nodes[n.Of].Window.ByTime() {
				m.late[n.Of] = i
			} else {
				m.behind[n.Of] = append(m.behind[n.Of], i)
			}
		case Persist, PersistEmit, Watch, Answer:
			m.persists = append(m.persists, i)
			if n.Op == PersistEmit {
				m.placed[i] = len(m.exchanges)
			}
		case Lookup:
			if outer != nil {
				break // it reads what has committed
			}
			if o := p.Nodes[n.Of].Op; o == Persist || o == PersistEmit {
				if _, ok := m.placed[n.Of]; !ok {
					m.placed[n.Of] = len(m.exchanges)
				}
			}
		default:
		}
		if n.Exchanges() {
			m.exchanges = append(m.exchanges, i)
		}
		if n.Keeps() {
			m.kept[i] = &contents{
				rows: map[string]*entry{}, windows: map[int64]int64{}, keys: map[string]*keyed{}, table: map[string][]int64{}, shown: map[string]string{},
				until: map[string]int64{},
			}
		}
	}
	return m
}

// Exchanges tells whether the node's values go from task to task.
func (n *Node) Exchanges() bool {
	switch n.Op {
	case Aggregate, BatchAggregate, AggregateAll, InnerJoin, LeftJoin, RightJoin, FullJoin, AntiJoin, JoinWithin, MultiJoin, MultiReduce,
		Shuffle, PartitionBy, Partition, Broadcast, Global, BatchGlobal, Latest, LatestEntries, Lookup, StateQuery, WindowQuery, KeepAll, Extreme, Arrange, LimitBy:
		return true
	default:
		return false
	}
}

// Keeps tells whether the node keeps a state.
func (n *Node) Keeps() bool {
	switch n.Op {
	case Aggregate, Persist, PersistEmit, Latest, LatestEntries, Watch, KeepAll:
		return true
	default:
		return false
	}
}

// Take works on a batch; next is the one behind it, if any. It returns false if the pipeline stops at it: then nothing of it counts.
func (m *Machine) Take(b, next *Batch) bool {
	m.txid++
	m.batch, m.now = b, Start.Add(time.Duration(b.Clock)*time.Second).UnixNano()
	m.pending, m.rows, m.outputs = map[int][]delta{}, map[int][][]Row{}, map[int][]Output{}
	for i := range m.p.Nodes {
		if m.p.Nodes[i].Op == Source {
			for part := range b.Records[i] {
				if m.mutation == TasksBackwards {
					part = len(b.Records[i]) - 1 - part
				}
				if records := b.Records[i][part]; len(records) > 0 {
					m.read(i, part, records)
				}
			}
		}
	}
	for at := 0; at <= len(m.exchanges); at++ {
		for _, i := range m.persists {
			if before, ok := m.placed[i]; ok && before == at {
				m.persist(i)
			}
		}
		if at < len(m.exchanges) {
			m.exchange(m.exchanges[at])
		}
	}
	for _, i := range m.persists {
		if _, ok := m.placed[i]; !ok {
			m.persist(i)
		}
	}
	for _, i := range m.exchanges {
		if m.p.Nodes[i].Window.ByTime() {
			m.forget(i)
		}
	}
	m.advance(b, next)
	return !m.failed
}

// Outputs lists what the last batch has for a sink, in order.
func (m *Machine) Outputs(node int) []Output { return m.outputs[node] }

// Ask answers a query with what the last batch has left; ok is false if the call fails.
func (m *Machine) Ask(query int, args Row) (rows []Row, ok bool) {
	q := newMachine(&Pipeline{Nodes: m.p.Queries[query].Nodes}, m.mutation, m)
	q.txid, q.now, q.batch = m.txid, m.now, m.batch
	q.pending, q.rows = map[int][]delta{}, map[int][][]Row{}
	t := q.task(QueryName(query), 0)
	t.stage = false
	q.push(t, 0, value{args, noTime, true})
	q.end(t, q.outs[0])
	for _, i := range q.exchanges {
		q.exchange(i)
	}
	for _, i := range q.persists {
		for _, part := range q.rows[i] {
			rows = append(rows, part...)
		}
	}
	return rows, !q.failed
}

// Rejected lists what the batches have turned away.
func (m *Machine) Rejected() []Rejected { return m.rejected }

// advance brings the watermarks on.
func (m *Machine) advance(b, next *Batch) {
	for i, mark := range m.marks { // order: each source by itself
		if !m.p.Nodes[i].Timed {
			continue
		}
		if next != nil && next.Advance {
			m.marks[i] = max(mark, next.AdvanceTo*1e9)
			continue
		}
		least := int64(math.MaxInt64)
		for part := range b.Records[i] {
			at, ok := m.seen[place{i, part}]
			if !ok {
				at = noTime
			}
			if m.mutation == WatermarkOfOne && part > 0 {
				continue
			}
			least = min(least, at)
		}
		if least != noTime && least != math.MaxInt64 {
			m.marks[i] = max(mark, least-m.p.Nodes[i].Seconds*1e9)
		}
	}
}

// mark is the watermark of a node: the least of its sources'.
func (m *Machine) mark(node int) int64 {
	mark := int64(math.MaxInt64)
	for _, s := range m.sources[node] {
		mark = min(mark, m.marks[s])
	}
	return mark
}

// read is the work on a partition of a source.
func (m *Machine) read(source, part int, records []Record) {
	n := &m.p.Nodes[source]
	t := m.task(Name(source), int64(part))
	t.topic, t.stage = t.source, false
	at := place{source, part}
	for _, r := range records {
		t.offset = m.offsets[at]
		m.offsets[at]++
		if r.Bad {
			m.bad(t, "decode")
			continue
		}
		v := value{r.Row, noTime, true}
		if n.Timed {
			v.at = r.At * 1e9
			if v.at > m.now+futureBound {
				m.reject(t, "future", "event time")
				continue
			}
			if was, ok := m.seen[at]; !ok || v.at > was {
				m.seen[at] = v.at
			}
		}
		m.push(t, source, v)
	}
	m.end(t, m.outs[source])
}

func (m *Machine) task(source string, part int64) *task {
	return &task{source: source, part: part, stage: true, aggs: map[int][]Row{}, rows: map[int][]Row{}, outputs: map[int][]Output{}, shuffled: map[int]*[2]int64{}}
}

// end ends the task whose values begin on their way along edges.
func (m *Machine) end(t *task, edges []edge) {
	var order []int
	m.ends(map[int]bool{}, edges, &order)
	for _, i := range slices.Backward(order) {
		if rows := t.aggs[i]; len(rows) > 0 {
			m.push(t, i, value{Row{K: "p", N: Digest(m.p.Nodes[i].Agg.of(rows))}, noTime, false})
		}
	}
	for _, i := range m.persists {
		if rows := t.rows[i]; len(rows) > 0 {
			m.rows[i] = append(m.rows[i], rows)
		}
	}
	for i, all := range t.outputs { // order: each sink by itself
		m.outputs[i] = append(m.outputs[i], all...)
	}
}

// ends lists the nodes that have something to say at a task's end, those that stand behind others first.
func (m *Machine) ends(met map[int]bool, edges []edge, order *[]int) {
	for _, e := range edges {
		n := &m.p.Nodes[e.node]
		next := e.node
		if late, ok := m.late[e.node]; ok {
			next = late
		} else if n.Exchanges() || n.Keeps() {
			continue
		}
		if met[next] {
			continue
		}
		met[next] = true
		m.ends(met, m.outs[next], order)
		if n.Op == PartitionAgg {
			*order = append(*order, e.node)
		}
	}
}

func (m *Machine) bad(t *task, step string) {
	if !m.p.Skip {
		m.failed = true
		return
	}
	if m.mutation != BadInSilence {
		m.reject(t, "bad", step)
	}
}

func (m *Machine) reject(t *task, kind, step string) {
	r := Rejected{kind, t.source, t.part, t.offset, step, m.txid}
	if t.stage {
		r.Offset = m.txid
	}
	m.rejected = append(m.rejected, r)
}

func (m *Machine) push(t *task, node int, v value) {
	for _, e := range m.outs[node] {
		m.take(t, e, v)
	}
}

// take hands a value to a node.
func (m *Machine) take(t *task, e edge, v value) {
	i := e.node
	n := &m.p.Nodes[i]
	view := View{Txid: m.txid, Seconds: m.batch.Clock, Partition: t.part, Offset: t.offset}
	d := delta{text: KeyOf(n.Key, v.Row), row: v.Row, side: e.side, at: v.at, may: v.may && v.at != noTime}
	d.key = textKey(d.text)
	switch n.Op {
	case Map:
		v.Row = MapRow(n.F, view, v.Row)
		m.push(t, i, v)
	case TryMap, PanicMap:
		if Fails(n.F, v.Row) {
			m.bad(t, Name(i))
			return
		}
		v.Row = MapRow(n.F%2, view, v.Row)
		m.push(t, i, v)
	case Flaky, Merge, Pass:
		m.push(t, i, v)
	case TryFilter:
		if Fails(n.F, v.Row) {
			m.bad(t, Name(i))
		} else if Keep(n.F, v.Row) {
			m.push(t, i, v)
		}
	case StaticLookup:
		of := m
		if m.outer != nil {
			of = m.outer
		}
		v.Row = Found(v.Row, of.static(n.Of, d.text))
		m.push(t, i, v)
	case Sink:
		if n.F%2 == 1 && Fails(n.F, v.Row) {
			m.bad(t, "sink "+Name(i))
			return
		}
		out := Output{v.Row, m.now / 1e6}
		if v.at != noTime && m.mutation != OutputByClock {
			out.Millis = v.at / 1e6
		}
		t.outputs[i] = append(t.outputs[i], out)
	case KeepAll:
		d.key, d.text = trueKey, "all"
		m.add(i, d)
	case Extreme, Arrange:
		m.add(i, inPart(d, 0))
	case Filter:
		if Keep(n.F, v.Row) {
			m.push(t, i, v)
		}
	case FlatMap:
		for _, r := range Spread(n.F, v.Row) {
			v.Row = r
			m.push(t, i, v)
		}
	case PartitionAgg:
		t.aggs[i] = append(t.aggs[i], v.Row)
	case Persist, PersistEmit, Watch, Answer:
		t.rows[i] = append(t.rows[i], v.Row)
	case Aggregate:
		m.aggregate(t, i, v, d)
	case AggregateAll:
		d.key, d.text = trueKey, "all"
		m.add(i, d)
	case Shuffle:
		m.add(i, inPart(d, m.shuffle(t, i, n.Parts)))
	case PartitionBy:
		m.add(i, inPart(d, int64(hash([]byte(d.key))%uint64(n.Parts))))
	case Partition:
		to := PartOf(n.F, n.Parts, v.Row)
		if to < 0 || to >= n.Parts {
			m.bad(t, Name(i))
			return
		}
		m.add(i, inPart(d, int64(to)))
	case Broadcast:
		for to := range n.Parts {
			m.add(i, inPart(d, int64(to)))
		}
	case Global:
		m.add(i, inPart(d, 0))
	case BatchGlobal:
		m.add(i, inPart(d, m.txid%int64(n.Parts)))
	case JoinWithin:
		if v.may && v.at < m.mark(i) {
			m.reject(t, "late", Name(i))
			return
		}
		m.add(i, d)
	case LatestEntries:
		d.text = v.K
		d.key = textKey(d.text)
		m.add(i, d)
	case WindowQuery:
		of := m.nodeOf(n).Window
		start := WindowAsked(of, v.Row) * 1e9
		d.key = timeKey(start)
		if of.Shape == Sliding {
			d.key += timeKey(start + of.Size*1e9)
		}
		d.key += textKey(d.text)
		m.add(i, d)
	default: // BatchAggregate, joins, Latest, Lookup, StateQuery, LimitBy
		m.add(i, d)
	}
}

// nodeOf is the node whose state another is about.
func (m *Machine) nodeOf(n *Node) *Node {
	if m.outer != nil {
		return &m.outer.p.Nodes[n.Of]
	}
	return &m.p.Nodes[n.Of]
}

func (m *Machine) add(node int, d delta) { m.pending[node] = append(m.pending[node], d) }

func inPart(d delta, to int64) delta {
	d.key, d.start = numberKey(to), to
	return d
}

// shuffle tells where a value goes: as the place of its record hashes, and which of the record's values it is.
func (m *Machine) shuffle(t *task, node, parts int) int64 {
	s := t.shuffled[node]
	if s == nil {
		s = &[2]int64{-1, 0}
		t.shuffled[node] = s
	}
	if s[0] != t.offset {
		*s = [2]int64{t.offset, 0}
	}
	text := fmt.Appendf(nil, "%q %q %d", t.source, t.topic, t.part)
	text = binary.AppendVarint(binary.AppendVarint(text, t.offset), s[1])
	s[1]++
	return int64(hash(text) % uint64(parts))
}

// aggregate sends a value to its windows.
func (m *Machine) aggregate(t *task, node int, v value, d delta) {
	w := m.p.Nodes[node].Window
	if !w.ByTime() {
		m.add(node, d)
		return
	}
	at, mark := v.at, m.mark(node)
	if w.Shape == ByBatchTime {
		at, mark = m.now, noTime
	}
	late := true
	for _, s := range m.windowsOf(w, at) {
		if (s.end <= mark && v.may || m.mutation == ResultsAreLate && s.end <= mark) && (m.mutation != OpenAtEnd || s.end < mark) {
			continue
		}
		late = false
		d := d
		d.start, d.end = s.start, s.end
		d.key = windowKey(w, s.start, s.end, d.text)
		m.add(node, d)
	}
	if !late {
		return
	}
	if to, ok := m.late[node]; ok {
		m.push(t, to, v)
		return
	}
	m.reject(t, "late", Name(node))
}

// windowKey is the encoded key of a row in a state with windows: those that tumble show their start only.
func windowKey(w Window, start, end int64, key string) string {
	switch w.Shape {
	case Sliding, Session:
		return timeKey(start) + timeKey(end) + textKey(key)
	case ByCount:
		return numberKey(start) + numberKey(end) + textKey(key)
	default:
		return timeKey(start) + textKey(key)
	}
}

// windowsOf lists the windows that a time lies in, the earliest first.
func (m *Machine) windowsOf(w Window, at int64) []session {
	if w.Shape == Days {
		y, month, d := time.Unix(0, at).In(m.berlin).Date()
		day := func(d int) int64 { return time.Date(y, month, d, 0, 0, 0, 0, m.berlin).UnixNano() }
		return []session{{start: day(d), end: day(d + 1)}}
	}
	size, slide, offset := w.Size*1e9, w.Slide*1e9, w.Offset*1e9
	if w.Shape != Sliding {
		slide = size
	}
	start := (at-offset)/slide*slide + offset
	for start > at {
		start -= slide
	}
	var all []session
	for ; start+size > at || m.mutation == EndIncluded && start+size == at; start -= slide {
		all = append(all, session{start: start, end: start + size})
	}
	slices.Reverse(all)
	return all
}

// Rows lists what a state holds: key and value as text.
func (m *Machine) Rows(node int) map[string]string {
	n, c := &m.p.Nodes[node], m.kept[node]
	all := map[string]string{}
	for _, e := range c.rows { // order: a map is made
		all[KeyText(n.Window, e.key, e.start, e.end)] = fmt.Sprint(n.Agg.of(e.rows))
	}
	for k, v := range c.table { // order: a map is made
		all[c.shown[k]] = fmt.Sprint(v)
	}
	return all
}

// KeyText writes a key with its window.
func KeyText(w Window, key string, start, end int64) string {
	switch w.Shape {
	case NoWindow:
		return fmt.Sprintf("%q", key)
	case ByCount:
		return fmt.Sprintf("%q of values %d to %d", key, start, end)
	case Sliding, Session:
		return fmt.Sprintf("%q from %d to %d", key, start, end)
	default:
		return fmt.Sprintf("%q from %d", key, start)
	}
}

// byShard groups deltas: shard by shard, key by key, each in the order in which they came.
func byShard(deltas []delta) map[int]map[string][]delta {
	all := map[int]map[string][]delta{}
	for _, d := range deltas {
		s := shardOf(d.key)
		if all[s] == nil {
			all[s] = map[string][]delta{}
		}
		all[s][d.key] = append(all[s][d.key], d)
	}
	return all
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
