package engine

import (
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/state"
)

// Latest keeps, for each key, the value that came last, in a state called name: a stream as a table. Values come in the order of
// sources by id, topic, partition and offset; for a key whose values lie in one partition, as they should, that is the order in
// which they were written. The value's type is kept as PartitionPersist keeps it: a struct's fields are the columns of the rows.
//
// The table can be looked up: Lookup, StateQuery. See LatestEntries for a table from which keys are removed.
func Latest[K comparable, V any](s Stream[V], name string, key func(V) K, keyName ...string) Table[K, V] {
	return latestOf(s, name, key, func(v *V) *V { return v }, keyName)
}

// LatestEntries is Latest for entries, which have their keys beside them: one whose value is null removes its key. Together with
// codec.KeyValue it takes a compacted topic as the table that it stands for: a record without a value, a tombstone, removes
// the row.
func LatestEntries[K comparable, V any](s Stream[codec.Entry[K, V]], name string, keyName ...string) Table[K, V] {
	return latestOf(s, name, func(e codec.Entry[K, V]) K { return e.Key }, func(e *codec.Entry[K, V]) *V {
		if !e.Value.Valid {
			return nil
		}
		return &e.Value.V
	}, keyName)
}

// latestOf keeps what pick finds in the last value of each key; nil removes the key.
func latestOf[K comparable, V, T any](s Stream[T], name string, key func(T) K, pick func(*T) *V, keyName []string) Table[K, V] {
	p := s.p
	t := Table[K, V]{p: p, name: name, of: tableOf{s.sources, s.timed}}
	p.addState(name)
	keys, err := value.KeyOf[K](keyName...)
	if err != nil {
		p.errorf("state %s: key: %w", name, err)
		return t
	}
	rows, err := value.RowOf[V]()
	if err != nil {
		p.errorf("state %s: value: %w", name, err)
		return t
	}
	x := plan.Table(name, state.Schema{Name: name, Kind: "rows", Key: keys.Columns(), Values: rows.Columns()})
	t.moving = x.State
	index := len(p.exchanges)
	p.exchanges = append(p.exchanges, x)
	p.define(s.trail, name, "latest")
	p.describe("  table %s: the latest row by %s", name, columnNames(keys.Columns()))
	s.to(func(b *builder) push[T] {
		l := &lastRows[K, V, T]{step: "latest " + name, index: index, keys: keys, rows: rows, key: key, pick: pick, careful: b.careful, timed: timedDeltas(x)}
		l.slots = map[string]int{}
		b.begin = append(b.begin, func(*rec) { l.reset() })
		b.end = append(b.end, l.flush)
		return l.add
	})
	return t
}

// lastRows are the last rows by key that one task has seen in its batch.
type lastRows[K comparable, V, T any] struct {
	step    string
	index   int // of the exchange
	keys    *value.Codec[K]
	rows    *value.Row[V]
	key     func(T) K
	pick    func(*T) *V
	careful bool

	timed    bool                 // deltas begin with times
	latest   windowop.LatestTimes // by slot, if they do
	slots    map[string]int
	names    [][]byte // by slot: the encoded key
	deltas   [][]byte // by slot
	kbuf, db []byte
}

func (l *lastRows[K, V, T]) reset() {
	clear(l.slots)
	l.names, l.deltas, l.latest = l.names[:0], l.deltas[:0], l.latest[:0]
}

func (l *lastRows[K, V, T]) add(rc *rec, v T) {
	var k K
	if !l.careful {
		k = l.key(v)
	} else if !rc.guard(l.step, func() { k = l.key(v) }) {
		return
	}
	var err error
	if l.kbuf, err = l.keys.Encode(l.kbuf[:0], k); err != nil {
		rc.bad(l.step, err)
		return
	}
	l.db = append(l.db[:0], plan.TableRemoves)
	if row := l.pick(&v); row != nil {
		l.db[0] = plan.TableSets
		if l.db, err = l.rows.Encode(l.db, *row); err != nil {
			rc.bad(l.step, err)
			return
		}
	}
	slot, ok := l.slots[string(l.kbuf)]
	if !ok {
		slot = len(l.names)
		l.slots[string(l.kbuf)] = slot
		if slot < cap(l.names) && slot < cap(l.deltas) { // keeps the memory of the batch before
			l.names, l.deltas = l.names[:slot+1], l.deltas[:slot+1]
		} else {
			l.names, l.deltas = append(l.names, nil), append(l.deltas, nil)
		}
		l.names[slot] = append(l.names[slot][:0], l.kbuf...)
	}
	if l.timed {
		l.latest.Note(slot, rc.time)
	}
	l.deltas[slot] = append(l.deltas[slot][:0], l.db...)
}

func (l *lastRows[K, V, T]) flush(rc *rec) {
	out := rc.tc.Out[l.index]
	for i, key := range l.names {
		delta := l.deltas[i]
		if l.timed {
			l.db = append(windowop.AppendTimed(l.db[:0], l.latest[i]), delta...)
			delta = l.db
		}
		if err := out.Add(key, delta); err != nil {
			rc.fail(batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, l.step, err, "lower the batch's MaxRecords"))
			return
		}
	}
}
