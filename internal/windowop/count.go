package windowop

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tridentd/tridentd/internal/plan"
)

// Count is the operator of windows of so many values of a key: window k holds the N values from the one numbered k*Every on. Values
// are numbered in the order in which the ledger has them: batch by batch, within a batch by source, partition and offset. A
// window closes with its last value, in the same batch. A delta is the value's cells.
type Count struct {
	Aggregate
	N, Every  int64 // 0 < Every <= N
	Retention int64 // nanoseconds of batch time for which the rows of a closed window are kept
	Emit      plan.Emit

	seen   int64
	open   []counted
	closed []run
	val    []byte
	key    []byte
	row    []byte
}

// counted is an open window.
type counted struct {
	start   int64
	cells   []byte
	changed bool
}

// run is windows that closed at about the same time: those that begin at from, from+Every, … before to.
type run struct{ from, to, until int64 }

// grains is how finely a retention is told: a closed window is kept for up to a part in grains longer, so that a key's windows can be
// told apart by few times.
const grains = 32

// Key is part of plan.Operator.
func (o *Count) Key(c *plan.KeyContext, key, old []byte, deltas [][]byte) ([]byte, bool, error) {
	if err := o.load(old); err != nil {
		return nil, false, fmt.Errorf("what is kept of it: %w", err)
	}
	for _, d := range deltas {
		if o.seen%o.Every == 0 {
			o.open = append(o.open, counted{start: o.seen})
		}
		o.seen++
		for i := range o.open {
			w := &o.open[i]
			cells, err := o.Update(nil, w.cells, d)
			if err != nil {
				return nil, false, err
			}
			w.cells, w.changed = cells, true
		}
		for len(o.open) > 0 && o.open[0].start+o.N <= o.seen { // more than one only where N has been changed
			if err := o.close(c, key, &o.open[0]); err != nil {
				return nil, false, err
			}
			o.open = o.open[1:]
		}
	}
	for i := range o.open {
		w := &o.open[i]
		if !w.changed {
			continue
		}
		o.key = countKey(o.key[:0], w.start, w.start+o.N, key)
		c.Put(o.key, w.cells)
		if err := o.send(c, Update, plan.EmitUpdates, w); err != nil {
			return nil, false, err
		}
	}
	n := 0
	for ; n < len(o.closed) && o.closed[n].until <= c.Now; n++ {
		for start := o.closed[n].from; start < o.closed[n].to; start += o.Every {
			o.key = countKey(o.key[:0], start, start+o.N, key)
			c.Delete(o.key)
		}
	}
	o.closed = o.closed[n:]
	o.val = o.store(o.val[:0])
	return o.val, true, nil // also without windows: the numbers go on
}

// close hands on a window that is full.
func (o *Count) close(c *plan.KeyContext, key []byte, w *counted) error {
	o.key = countKey(o.key[:0], w.start, w.start+o.N, key)
	c.Put(o.key, w.cells)
	if err := o.send(c, Update, plan.EmitUpdates, w); err != nil {
		return err
	}
	if err := o.send(c, Final, plan.EmitCloses, w); err != nil {
		return err
	}
	grain := max(o.Retention/grains, 1)
	until := plus(c.Now, o.Retention)
	if rest := until % grain; rest > 0 {
		until = plus(until, grain-rest)
	}
	if n := len(o.closed); n > 0 && o.closed[n-1].until == until && o.closed[n-1].to == w.start {
		o.closed[n-1].to = w.start + o.Every
		return nil
	}
	o.closed = append(o.closed, run{w.start, w.start + o.Every, until})
	return nil
}

func (o *Count) send(c *plan.KeyContext, kind RowKind, why plan.Emit, w *counted) error {
	if o.Emit&why == 0 {
		return nil
	}
	o.row = appendRow(o.row[:0], Row{Kind: kind, Start: w.start, End: w.start + o.N, Cells: w.cells})
	return c.Emit(o.row)
}

// Wake is part of plan.Operator.
func (o *Count) Wake(val []byte) int64 {
	r := reader{b: val}
	r.varint()
	for range r.count() {
		r.varint()
		r.sized()
	}
	if r.count() == 0 {
		return plan.NoWake
	}
	r.varint()
	r.varint()
	until := r.varint()
	if until == math.MaxInt64 {
		return plan.NoWake
	}
	return until
}

// A key's value: how many values have come (varint); the number of open windows, of each its start (varint) and its cells with
// their length; the number of runs of closed ones, of each three varints, the first to be forgotten first.

func (o *Count) store(dst []byte) []byte {
	dst = binary.AppendVarint(dst, o.seen)
	dst = binary.AppendUvarint(dst, uint64(len(o.open)))
	for i := range o.open {
		dst = binary.AppendVarint(dst, o.open[i].start)
		dst = appendSized(dst, o.open[i].cells)
	}
	dst = binary.AppendUvarint(dst, uint64(len(o.closed)))
	for _, r := range o.closed {
		dst = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, r.from), r.to), r.until)
	}
	return dst
}

func (o *Count) load(b []byte) error {
	o.seen, o.open, o.closed = 0, nil, nil
	if b == nil {
		return nil
	}
	r := reader{b: b}
	o.seen = r.varint()
	for range r.count() {
		o.open = append(o.open, counted{start: r.varint(), cells: slices.Clip(r.sized())})
	}
	for range r.count() {
		o.closed = append(o.closed, run{r.varint(), r.varint(), r.varint()})
	}
	if len(r.b) > 0 && r.err == nil {
		return fmt.Errorf("%d bytes follow it", len(r.b))
	}
	return r.err
}
