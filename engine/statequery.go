package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// A query of a state, be it a Lookup in a table that moves or a StateQuery, brings the values of a stream to the shards that hold
// their keys and reads there, as a join does. Within a batch it sees the state as the batch's own updates have left it. Which
// updates these are is up to the borders of batches; they are recorded, so that a replay gives the same.
//
// The values that had been in the order of their partitions come out in the order of shards and keys. They keep their event
// times. Their types must be of exported fields throughout, as they go from task to task.

// StateQuery hands each value to f with the row that a state has for its key; nil if there is none. It is Trident's stateQuery
// with MapGet. The row is shared and must not be changed. V is the aggregate's value (int64 for a count), or the struct of
// accumulators given to agg.Fields. A windowed state is asked by WindowQuery.
func StateQuery[V, R, T any, K comparable](s Stream[T], st *State[K], key func(T) K, f func(v T, row *V) R) Stream[R] {
	if st.exchange != nil && st.state().Schema.Window != nil {
		s.p.errorf("StateQuery: state %s has windows; use WindowQuery", st.name)
		return derive[R](s)
	}
	return queryAggregate(s, st, f, func(dst []byte, v T) ([]byte, error) { return st.key.Encode(dst, key(v)) })
}

// WindowQuery is StateQuery for a state that has windows: the key names the window by its start, too.
func WindowQuery[V, R, T any, K comparable](s Stream[T], st *State[K], key func(T) Windowed[K], f func(v T, row *V) R) Stream[R] {
	if st.exchange != nil && st.keyed == nil && st.state().Schema.Window == nil {
		s.p.errorf("WindowQuery: state %s has no windows; use StateQuery", st.name)
		return derive[R](s)
	}
	return queryAggregate(s, st, f, func(dst []byte, v T) ([]byte, error) {
		k := key(v)
		start, err := value.Nanos(k.Start)
		if err != nil {
			return dst, err
		}
		dst = value.AppendKeyTime(dst, start)
		if w := st.state().Schema.Window; w.Slide != 0 {
			dst = value.AppendKeyTime(dst, w.End(start))
		}
		return st.key.Encode(dst, k.Key)
	})
}

func queryAggregate[V, R, T any, K comparable](s Stream[T], st *State[K], f func(v T, row *V) R, key func(dst []byte, v T) ([]byte, error)) Stream[R] {
	if st.exchange == nil {
		return derive[R](s) // Aggregate has said why
	}
	if st.keyed != nil {
		s.p.errorf("query of state %s: where its windows (%s) begin and end is up to the values in them, so no key names one; use Updates or Closed", st.name, st.keyed)
		return derive[R](s)
	}
	cols := st.state().Schema.Values
	if _, err := decoderOf[V](cols); err != nil {
		s.p.errorf("query of state %s: %w", st.name, err)
		return derive[R](s)
	}
	if st.p == s.p {
		st.state().Mergeable = false
	}
	return queryRows(s, "state_query", st.p, st.name, key, f, func() func([]byte, *V) error {
		dec, err := decoderOf[V](cols)
		if err != nil {
			panic(err) // it was tried above
		}
		return dec
	})
}

// RowsOf returns the rows that a PartitionPersist keeps in the state called name, which must be declared before, as a table that can be
// looked up.
func RowsOf[K comparable, V any](p *Pipeline, name string) Table[K, V] {
	t := Table[K, V]{p: p, name: name}
	at := slices.IndexFunc(p.persists, func(q *plan.Persist) bool { return q.Name == name })
	if at < 0 {
		p.errorf("RowsOf: no PartitionPersist has declared a state %q", name)
		return t
	}
	q := p.persists[at]
	keys, err := value.KeyOf[K]()
	if err != nil {
		p.errorf("RowsOf %s: key: %w", name, err)
		return t
	}
	rows, err := value.RowOf[V]()
	if err != nil {
		p.errorf("RowsOf %s: value: %w", name, err)
		return t
	}
	for _, c := range []struct {
		what      string
		have, ask []state.Column
	}{{"keys", q.Schema.Key, keys.Columns()}, {"values", q.Schema.Values, rows.Columns()}} {
		if !slices.EqualFunc(c.have, c.ask, func(a, b state.Column) bool { return a.Type == b.Type }) {
			p.errorf("RowsOf %s: it has %s %s, not %s", name, c.what, typedColumns(c.have), typedColumns(c.ask))
			return t
		}
	}
	if _, placed := p.placed[q]; !placed {
		p.placed[q] = len(p.exchanges)
	}
	t.moving = &plan.State{Schema: q.Schema}
	return t
}

func typedColumns(cols []state.Column) string {
	texts := make([]string, len(cols))
	for i, c := range cols {
		texts[i] = c.Name + " " + c.Type
	}
	return fmt.Sprint(texts)
}

// lookupMoving is Lookup in a table that changes while the pipeline runs.
func lookupMoving[T any, K comparable, V, R any](s Stream[T], t Table[K, V], key func(T) K, f func(v T, row *V) R) Stream[R] {
	keys, err := value.KeyOf[K]()
	if err != nil {
		return derive[R](s) // its table has said so
	}
	rows, err := value.RowOf[V]()
	if err != nil {
		return derive[R](s)
	}
	return queryRows(s, "lookup", t.p, t.name, func(dst []byte, v T) ([]byte, error) { return keys.Encode(dst, key(v)) }, f,
		func() func([]byte, *V) error { return rows.DecodeInto })
}

// queryRows brings values to the rows of a state.
func queryRows[T, V, R any](
	s Stream[T], kind string, owner *Pipeline, name string,
	key func(dst []byte, v T) ([]byte, error), f func(v T, row *V) R, decoder func() func([]byte, *V) error,
) Stream[R] {
	p := s.p
	out, e, index := rowsStage[R](p, kind, " in "+name)
	after(&out, s)
	step := kind + " in " + name
	out.trail.step = &step
	wire, err := value.WireOf[T]()
	switch {
	case err != nil:
		p.errorf("%s in %s: %w", kind, name, err)
		return out
	case !p.sees(owner):
		p.errorf("%s in %s: the state belongs to another pipeline, %s", kind, name, owner.name)
		return out
	}
	p.reads = append(p.reads, name)
	sendRows(s, e, index, 0, 0, wire, func(b *builder) placer[T] {
		var buf []byte
		return func(rc *rec, v T, put func([]byte) bool) {
			var err error
			if !b.careful {
				buf, err = key(buf[:0], v)
			} else if !rc.guard(e.Name, func() { buf, err = key(buf[:0], v) }) {
				return
			}
			if err != nil {
				rc.bad(e.Name, err)
				return
			}
			put(buf)
		}
	})
	e.Next = func() plan.StageTask {
		vals := &sideOf[T]{wire: wire}
		decode := decoder()
		t := &rowsTask[R]{chains: chains[R]{n: out.n}, stage: e, sides: []side{vals}}
		t.take = func(t *rowsTask[R], key []byte, rows []row) error {
			// The key is found in the state of the batch, or of the snapshot: nothing is waited for.
			b, ok, err := t.rc.tc.State(name).Get(context.Background(), key)
			if err != nil {
				return err
			}
			var found *V
			if ok {
				found = new(V)
				if err := decode(b, found); err != nil {
					return batch.NewError(batch.Permanent, batch.CodeInternal, e.Name, fmt.Errorf("state %s, key %s: %w", name, value.KeyText(key), err), "")
				}
			}
			for i := range rows {
				var r R
				t.rc.from, t.rc.wire = rows[i].from, rows[i].wire
				if ok := t.rc.guard(e.Name, func() { r = f(vals.vals[rows[i].at], found) }); ok {
					t.pass(r, &rows[i])
				}
				t.rc.from, t.rc.wire = nil, nil
				if t.rc.err != nil {
					break
				}
			}
			return nil
		}
		return t
	}
	return out
}

// sees tells whether streams of p may read what q keeps.
func (p *Pipeline) sees(q *Pipeline) bool { return p == q || p.outer != nil && p.outer == q }

// At is the key of a window's row.
func At[K comparable](start time.Time, key K) Windowed[K] { return Windowed[K]{Start: start, Key: key} }
