package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// exchange brings together what tasks have for a node, and works on the stage behind it.
func (m *Machine) exchange(i int) {
	n := &m.p.Nodes[i]
	deltas := m.pending[i]
	switch n.Op {
	case KeepAll:
		m.totals(i, deltas)
		return
	case Extreme:
		m.extreme(i, deltas)
		return
	case Arrange:
		m.arrange(i, deltas)
		return
	case Aggregate:
		switch n.Window.Shape {
		case Session:
			m.operate(i, deltas, m.sessions)
		case ByCount:
			m.operate(i, deltas, m.counted)
		default:
			m.totals(i, deltas)
		}
		return
	case JoinWithin:
		m.joinWithin(i, deltas)
		return
	case Latest, LatestEntries:
		m.table(i, deltas)
		return
	case Shuffle, PartitionBy, Partition, Broadcast, Global, BatchGlobal:
		m.repartition(i, deltas)
		return
	default:
	}
	groups := byShard(deltas)
	for _, shard := range sortedKeys(groups) {
		t := m.task(Name(i), int64(shard))
		for _, key := range sortedKeys(groups[shard]) {
			m.group(t, i, groups[shard][key])
		}
		m.end(t, m.outs[i])
	}
}

// repartition hands each partition's values on.
func (m *Machine) repartition(i int, deltas []delta) {
	parts := map[int64][]delta{}
	for _, d := range deltas {
		parts[d.start] = append(parts[d.start], d)
	}
	for _, part := range sortedKeys(parts) {
		t := m.task(Name(i), part)
		for _, d := range parts[part] {
			m.send(t, i, d.row, d.at, d.may)
		}
		m.end(t, m.outs[i])
	}
}

// extreme hands on the least value of the batch, or the greatest; of equals the first.
func (m *Machine) extreme(i int, deltas []delta) {
	if len(deltas) == 0 {
		return
	}
	n := &m.p.Nodes[i]
	best := 0
	for k := range deltas {
		a, b := deltas[k].row, deltas[best].row
		if n.F%2 == 1 { // the greatest
			a, b = b, a
		}
		if Before(n.F, a, b) || m.mutation == LastOfEquals && !Before(n.F, b, a) {
			best = k
		}
	}
	t := m.task(Name(i), 0)
	m.send(t, i, deltas[best].row, deltas[best].at, deltas[best].may)
	m.end(t, m.outs[i])
}

// arrange hands on the batch's rows in another order, or the first of them.
func (m *Machine) arrange(i int, deltas []delta) {
	if len(deltas) == 0 {
		return
	}
	t := m.task(Name(i), 0)
	f := m.p.Nodes[i].F
	rows := slices.Clone(deltas)
	if Limits(f) > 0 {
		rows = m.limit(rows, Limits(f))
	} else {
		slices.SortStableFunc(rows, func(a, b delta) int { return Compare(f*2, a.row, b.row) })
	}
	for _, d := range rows {
		m.send(t, i, d.row, d.at, d.may)
	}
	m.end(t, m.outs[i])
}

// limit returns the first n.
func (m *Machine) limit(deltas []delta, n int) []delta {
	n = min(n, len(deltas))
	if m.mutation == LastPass {
		return deltas[len(deltas)-n:]
	}
	return deltas[:n]
}

// static is a row of a static table; nil: there is none.
func (m *Machine) static(node int, key string) []int64 {
	for _, r := range TableRows(m.p.Nodes[node].F) {
		if r.K == key && m.mutation != TableIsEmpty {
			return []int64{r.N, r.At}
		}
	}
	return nil
}

// send hands on a row of a stage.
func (m *Machine) send(t *task, node int, r Row, at int64, may bool) {
	t.offset = t.sent
	t.sent++
	m.push(t, node, value{r, at, may})
}

// group works on what came for a key.
func (m *Machine) group(t *task, i int, deltas []delta) {
	n := &m.p.Nodes[i]
	t.offset = t.sent
	sides := make([][]Row, len(n.In))
	at, may := int64(noTime), true
	for _, d := range deltas {
		sides[d.side] = append(sides[d.side], d.row)
		at, may = max(at, d.at), may && d.may
	}
	outer := n.F
	switch n.Op {
	case LeftJoin, AntiJoin:
		outer = 0b10
	case RightJoin:
		outer = 0b01
	case FullJoin:
		outer = 0b11
	case BatchAggregate, AggregateAll:
		m.send(t, i, Row{K: deltas[0].text, N: Digest(n.Agg.of(sides[0]))}, noTime, false)
		return
	case Lookup, StateQuery, WindowQuery:
		found := m.find(n.Of, deltas[0].key)
		for _, d := range deltas {
			m.send(t, i, Found(d.row, found), d.at, d.may)
		}
		return
	case LimitBy:
		for _, d := range m.limit(deltas, 1+n.F) {
			m.send(t, i, d.row, d.at, d.may)
		}
		return
	case InnerJoin:
		outer = 0
	default:
	}
	for side, rows := range sides {
		if len(rows) == 0 && outer&(1<<side) == 0 {
			return
		}
	}
	switch n.Op {
	case AntiJoin:
		if len(sides[1]) > 0 {
			return
		}
		for _, d := range deltas {
			m.send(t, i, d.row, d.at, d.may)
		}
	case MultiReduce:
		rows, err := Reduced(deltas[0].text, sides)
		if err != nil {
			m.bad(t, Name(i))
			return
		}
		for _, r := range rows {
			m.send(t, i, r, at, may)
		}
	default:
		m.join(t, i, deltas)
	}
}

// find is a row that a node keeps; nil: there is none.
func (m *Machine) find(node int, key string) []int64 {
	if m.outer != nil {
		if m.mutation == QueriesFindNothing {
			return nil
		}
		return m.outer.find(node, key)
	}
	c := m.kept[node]
	if e := c.rows[key]; e != nil && m.mutation != NothingFound {
		return m.p.Nodes[node].Agg.of(e.rows)
	}
	return c.table[key]
}

// join makes all combinations of one value of each side that has any, in the order of their latest value, then of the next.
func (m *Machine) join(t *task, i int, deltas []delta) {
	combinations := [][]int{nil} // numbers of deltas
	for side := range m.p.Nodes[i].In {
		var more [][]int
		for _, c := range combinations {
			for at, d := range deltas {
				if d.side == side {
					more = append(more, append(slices.Clone(c), at))
				}
			}
		}
		if more != nil {
			combinations = more
		}
	}
	latestFirst := func(c []int) []int {
		if m.mutation == JoinBySides {
			return c
		}
		c = slices.Sorted(slices.Values(c))
		slices.Reverse(c)
		return c
	}
	slices.SortFunc(combinations, func(a, b []int) int {
		return slices.Compare(latestFirst(a), latestFirst(b))
	})
	for _, c := range combinations {
		rows := make([]*Row, len(m.p.Nodes[i].In))
		at, may := int64(noTime), true
		for _, k := range c {
			d := &deltas[k]
			rows[d.side] = &d.row
			at, may = max(at, d.at), may && d.may
		}
		m.send(t, i, Joined(rows...), at, may)
	}
}

// table keeps the last value of each key.
func (m *Machine) table(i int, deltas []delta) {
	c := m.kept[i]
	m.expire(i)
	if m.mutation == FirstIsLatest {
		slices.Reverse(deltas)
	}
	for _, d := range deltas {
		if m.p.Nodes[i].Op == LatestEntries && Removes(d.row) {
			delete(c.table, d.key)
			delete(c.until, d.key)
			continue
		}
		m.touch(i, d.key, d.at)
		c.table[d.key], c.shown[d.key] = []int64{d.row.N, d.row.At}, fmt.Sprintf("%q", d.text)
	}
}

// The kinds of rows that a state hands on.
type kind int

const (
	update kind = iota
	final
	tooLate
)

// hand gives a row of a state to those that stand behind it.
func (m *Machine) hand(t *task, i int, k kind, key string, start, end int64, rows []Row) {
	n := &m.p.Nodes[i]
	wanted := false
	for _, b := range m.behind[i] {
		wanted = wanted || m.p.Nodes[b].Op == []Op{Updates, Closed, Late}[k]
	}
	if !wanted {
		return
	}
	at := int64(noTime)
	if n.Window.ByEvents() {
		at = end - 1
	}
	t.offset = t.sent
	t.sent++
	for _, b := range m.behind[i] {
		if m.p.Nodes[b].Op == []Op{Updates, Closed, Late}[k] {
			m.push(t, b, value{ResultRow(key, start, end, n.Agg.of(rows)), at, false})
		}
	}
}

func (m *Machine) edgesBehind(i int) []edge {
	var all []edge
	for _, b := range m.behind[i] {
		all = append(all, edge{b, 0})
	}
	return all
}

// totals adds deltas to an aggregate's rows, and hands on those of windows that close.
func (m *Machine) totals(i int, deltas []delta) {
	n, c := &m.p.Nodes[i], m.kept[i]
	m.expire(i)
	groups := byShard(deltas)
	closing := map[int64]bool{}
	if n.Window.ByTime() {
		for _, d := range deltas {
			closing[d.start] = d.end <= m.clock(i)
		}
		for start, closed := range c.windows { // order: each by itself
			if closed == 0 {
				closing[start] = m.endOf(n.Window, start) <= m.clock(i)
			}
		}
	}
	for shard := range shards {
		t := m.task(Name(i), int64(shard))
		for _, key := range sortedKeys(groups[shard]) {
			e := c.rows[key]
			for _, d := range groups[shard][key] {
				if e == nil {
					e = &entry{key: d.text, start: d.start, end: d.end}
					c.rows[key] = e
				}
				e.rows = append(e.rows, d.row)
				m.touch(i, key, d.at)
			}
			m.hand(t, i, update, e.key, e.start, e.end, e.rows)
		}
		for _, key := range sortedKeys(c.rows) {
			if e := c.rows[key]; n.Window.ByTime() && closing[e.start] && shardOf(key) == shard {
				m.hand(t, i, final, e.key, e.start, e.end, e.rows)
			}
		}
		m.end(t, m.edgesBehind(i))
	}
}

// clock is what the windows of a node go by.
func (m *Machine) clock(i int) int64 {
	if m.p.Nodes[i].Window.ByEvents() {
		return m.mark(i)
	}
	return m.now
}

func (m *Machine) endOf(w Window, start int64) int64 {
	return m.windowsOf(w, start)[len(m.windowsOf(w, start))-1].end
}

func (w Window) retention() int64 {
	if w.RetentionSet {
		return w.Retention * int64(time.Second)
	}
	return 7 * 24 * int64(time.Hour)
}

// forget notes which windows have closed, and drops those that have been closed for their retention.
func (m *Machine) forget(i int) {
	n, c := &m.p.Nodes[i], m.kept[i]
	written := map[int64]bool{}
	for _, d := range m.pending[i] {
		written[d.start] = true
		if closed, ok := c.windows[d.start]; !ok || closed != 0 && m.closes(i) {
			c.windows[d.start] = 0
		}
	}
	for start, closed := range c.windows { // order: each by itself
		switch {
		case closed == 0 && m.endOf(n.Window, start) <= m.clock(i) && m.mutation != NeverCloses:
			c.windows[start] = m.now
		case closed != 0 && !written[start] && closed+n.Window.retention() <= m.now:
			delete(c.windows, start)
			maps.DeleteFunc(c.rows, func(_ string, e *entry) bool { return e.start == start })
		}
	}
}

// closes tells whether the rows of a state's closed windows are handed on.
func (m *Machine) closes(i int) bool {
	return slices.ContainsFunc(m.behind[i], func(b int) bool { return m.p.Nodes[b].Op == Closed })
}

// operate works on the keys that something came for, or whose time has come.
func (m *Machine) operate(i int, deltas []delta, f func(t *task, i int, key string, deltas []delta)) {
	c := m.kept[i]
	groups := byShard(deltas)
	for key, k := range c.keys { // order: a map is filled
		enc := textKey(key)
		shard := shardOf(enc)
		if m.due(i, k) && groups[shard][enc] == nil {
			if groups[shard] == nil {
				groups[shard] = map[string][]delta{}
			}
			groups[shard][enc] = []delta{}
		}
	}
	text := map[string]string{}
	for key := range c.keys { // order: a map is made
		text[textKey(key)] = key
	}
	for _, d := range deltas {
		text[d.key] = d.text
	}
	for _, shard := range sortedKeys(groups) {
		t := m.task(Name(i), int64(shard))
		for _, key := range sortedKeys(groups[shard]) {
			if c.keys[text[key]] == nil {
				c.keys[text[key]] = &keyed{}
			}
			f(t, i, text[key], groups[shard][key])
		}
		m.end(t, m.edgesBehind(i))
	}
}

// due tells whether a session has to be closed, or its row to be forgotten.
func (m *Machine) due(i int, k *keyed) bool {
	w := m.p.Nodes[i].Window
	if w.Shape != Session {
		return slices.ContainsFunc(k.closed, func(s session) bool { return s.until <= m.now })
	}
	now := m.mark(i)
	return slices.ContainsFunc(k.open, func(s session) bool { return s.end <= now }) ||
		slices.ContainsFunc(k.closed, func(s session) bool { return s.end+w.retention() <= now })
}

// sessions works on a key of sessions.
func (m *Machine) sessions(t *task, i int, key string, deltas []delta) {
	w, c := m.p.Nodes[i].Window, m.kept[i]
	k, now, gap := c.keys[key], m.mark(i), m.p.Nodes[i].Window.Size*int64(time.Second)
	was := slices.Clone(k.open)
	touches := func(s session, at int64) bool {
		return at < s.end && s.start < at+gap || m.mutation == GapIncluded && (at == s.end || s.start == at+gap)
	}
	take := func(d delta) {
		one := session{start: d.at, end: d.at + gap, changed: true}
		var rest []session
		for _, s := range k.open { // in the order of their times
			if !touches(s, d.at) {
				rest = append(rest, s)
				continue
			}
			one.start, one.end = min(one.start, s.start), max(one.end, s.end)
			one.rows = append(one.rows, s.rows...)
		}
		one.rows = append(one.rows, d.row)
		k.open = append(rest, one)
		slices.SortFunc(k.open, func(a, b session) int { return cmp.Compare(a.start, b.start) })
	}
	var late []delta
	for _, d := range deltas {
		if d.may && d.at+gap <= now && m.mutation != SessionsTakeAll {
			late = append(late, d)
			continue
		}
		take(d)
	}
	for _, d := range late {
		if slices.ContainsFunc(k.open, func(s session) bool { return touches(s, d.at) }) {
			take(d)
			continue
		}
		if !m.handLate(t, i, d) {
			m.reject(t, "late", Name(i))
		}
	}
	for _, s := range was {
		delete(c.rows, windowKey(w, s.start, s.end, key))
	}
	for j := range k.open {
		s := &k.open[j]
		c.rows[windowKey(w, s.start, s.end, key)] = &entry{key, s.start, s.end, s.rows}
		if s.changed {
			m.hand(t, i, update, key, s.start, s.end, s.rows)
		}
		s.changed = false
	}
	open := k.open
	k.open = nil
	for _, s := range open {
		if s.end > now {
			k.open = append(k.open, s)
			continue
		}
		m.hand(t, i, final, key, s.start, s.end, s.rows)
		k.closed = append(k.closed, s)
	}
	k.closed = slices.DeleteFunc(k.closed, func(s session) bool {
		gone := s.end+w.retention() <= now
		if gone {
			delete(c.rows, windowKey(w, s.start, s.end, key))
		}
		return gone
	})
	if len(k.open)+len(k.closed) == 0 {
		delete(c.keys, key)
	}
}

// handLate gives a late value to those that take it, if any do.
func (m *Machine) handLate(t *task, i int, d delta) bool {
	taken := false
	for _, b := range m.behind[i] {
		if m.p.Nodes[b].Op != Late {
			continue
		}
		if !taken {
			t.offset = t.sent
			t.sent++
		}
		taken = true
		m.push(t, b, value{d.row, d.at, true})
	}
	return taken
}

// counted works on a key of windows of values.
func (m *Machine) counted(t *task, i int, key string, deltas []delta) {
	w, c := m.p.Nodes[i].Window, m.kept[i]
	k := c.keys[key]
	if m.mutation == NumbersBegin {
		k.seen = nil
	}
	put := func(first int64) []Row {
		rows := k.seen[first:min(first+w.Size, int64(len(k.seen)))]
		c.rows[windowKey(w, first, first+w.Size, key)] = &entry{key, first, first + w.Size, rows}
		return rows
	}
	for _, d := range deltas {
		k.seen = append(k.seen, d.row)
		if first := int64(len(k.seen)) - w.Size; first >= 0 && first%w.Slide == 0 {
			rows := put(first)
			m.hand(t, i, update, key, first, first+w.Size, rows)
			m.hand(t, i, final, key, first, first+w.Size, rows)
			k.closed = append(k.closed, session{start: first, end: first + w.Size, until: roundedUp(m.now+w.retention(), w.retention()/32)})
		}
	}
	k.closed = slices.DeleteFunc(k.closed, func(s session) bool {
		if s.until <= m.now {
			delete(c.rows, windowKey(w, s.start, s.end, key))
		}
		return s.until <= m.now
	})
	for first := int64(0); len(deltas) > 0 && first < int64(len(k.seen)); first += w.Slide {
		if first+w.Size > int64(len(k.seen)) {
			rows := put(first)
			m.hand(t, i, update, key, first, first+w.Size, rows)
		}
	}
}

// persist applies what tasks have for a persist, and hands on what it emits.
func (m *Machine) persist(i int) {
	n, c := &m.p.Nodes[i], m.kept[i]
	var emitted [][]Row
	noted := int64(0)
	for _, rows := range m.rows[i] {
		var out []Row
		for _, r := range rows {
			if n.Op == Watch {
				key := fmt.Sprintf("txid %d, row %d", m.txid, noted)
				c.table[key], c.shown[key] = WatchedRow(r), key
				noted++
				continue
			}
			key := textKey(r.K)
			if Forgets(r) {
				delete(c.table, key)
				out = append(out, Row{K: r.K, At: r.At})
				continue
			}
			v := c.table[key]
			if v == nil {
				v = []int64{0, 0}
			}
			seen, last := Persisted(v[0], v[1], r)
			c.table[key], c.shown[key] = []int64{seen, last}, fmt.Sprintf("%q", r.K)
			out = append(out, Row{K: r.K, N: bounded(seen*100 + last), At: r.At})
		}
		emitted = append(emitted, out)
	}
	if n.Op != PersistEmit {
		return
	}
	for number, rows := range emitted {
		t := m.task(Name(i), int64(number))
		for _, r := range rows {
			m.send(t, i, r, noTime, false)
		}
		m.end(t, m.outs[i])
	}
}

// roundedUp is how long a window of values is kept: that is told in parts of its retention.
func roundedUp(at, part int64) int64 { return (at + part - 1) / part * part }
