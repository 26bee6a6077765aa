package model

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"time"
)

// The joins in event time, as F has them.
const (
	WithinInner = iota
	WithinLeft
	WithinRight
	WithinFull
	WithinAnti
)

// waiting is a value that waits for a partner.
type waiting struct {
	delta
	met bool
}

// compare is the order in which values come: of their times, then of their bytes, then of sides.
func (w *waiting) compare(v *waiting) int {
	return cmp.Or(cmp.Compare(w.at, v.at), bytes.Compare(w.bytes(), v.bytes()), cmp.Compare(w.side, v.side))
}

func (w *waiting) bytes() []byte {
	b := append(binary.AppendUvarint(nil, uint64(len(w.row.K))), w.row.K...)
	return binary.AppendVarint(binary.AppendVarint(b, w.row.N), w.row.At)
}

// joinWithin brings values together whose times are no more than a duration apart.
func (m *Machine) joinWithin(i int, deltas []delta) {
	within := m.p.Nodes[i].Seconds * int64(time.Second)
	if m.waiting[i] == nil {
		m.waiting[i] = map[string][]waiting{}
	}
	all := m.waiting[i]
	groups := byShard(deltas)
	for key, rows := range all { // order: a map is filled
		shard := shardOf(key)
		if groups[shard][key] != nil || !slices.ContainsFunc(rows, func(w waiting) bool { return w.at+within < m.mark(i) }) {
			continue
		}
		if groups[shard] == nil {
			groups[shard] = map[string][]delta{}
		}
		groups[shard][key] = []delta{}
	}
	for _, shard := range sortedKeys(groups) {
		t := m.task(Name(i), int64(shard))
		for _, key := range sortedKeys(groups[shard]) {
			var fresh []waiting
			for _, d := range groups[shard][key] {
				fresh = append(fresh, waiting{delta: d})
			}
			slices.SortStableFunc(fresh, func(a, b waiting) int { return a.compare(&b) })
			for _, w := range fresh {
				all[key] = m.meet(t, i, all[key], w)
			}
			all[key] = slices.DeleteFunc(all[key], func(w waiting) bool {
				done := w.at+within < m.mark(i)
				if done && !w.met && m.mutation != NoneIsAlone {
					m.alone(t, i, &w)
				}
				return done
			})
		}
		m.end(t, m.outs[i])
	}
}

// meet pairs a value with all those that wait within the duration, and has it wait, too.
func (m *Machine) meet(t *task, i int, rows []waiting, w waiting) []waiting {
	n := &m.p.Nodes[i]
	for k := range rows {
		v := &rows[k]
		if apart := max(w.at, v.at) - min(w.at, v.at); v.side == w.side || apart > n.Seconds*int64(time.Second) {
			continue
		}
		v.met, w.met = true, true
		if n.F == WithinAnti {
			continue
		}
		left, right := v.row, w.row
		if w.side == 0 {
			left, right = w.row, v.row
		}
		m.send(t, i, Joined(&left, &right), max(w.at, v.at), false)
	}
	rows = append(rows, w)
	slices.SortStableFunc(rows, func(a, b waiting) int { return a.compare(&b) })
	return rows
}

// alone hands on a value that has met none, if the join is for that.
func (m *Machine) alone(t *task, i int, w *waiting) {
	n := &m.p.Nodes[i]
	at := w.at + n.Seconds*int64(time.Second)
	switch {
	case n.F == WithinAnti && w.side == 0:
		m.send(t, i, w.row, at, false)
	case w.side == 0 && (n.F == WithinLeft || n.F == WithinFull):
		m.send(t, i, Joined(&w.row, nil), at, false)
	case w.side == 1 && (n.F == WithinRight || n.F == WithinFull):
		m.send(t, i, Joined(nil, &w.row), at, false)
	}
}
