package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/txstate"
)

// rec is the record (or, in a later stage, the row) that is on its way through a chain.
type rec struct {
	tc     *plan.TaskContext
	r      *batch.Record // nil in later stages
	key    []byte        // of the row, encoded; in later stages
	offset int64
	time   int64 // event time in nanoseconds; txstate.NoTime if there is none
	// mayBeLate says of a row of a later stage that its time is that of records: results of windows are never late.
	mayBeLate bool
	from      *origin // where the row was repartitioned; nil for records and for rows that stand for several
	wire      []byte  // such a row, encoded
	err       error   // stops the task
}

// origin is the place that a row had in the task that handed it over.
type origin struct {
	part   batch.Partition
	offset int64
}

// fail stops the task. The first failure counts.
func (rc *rec) fail(err error) {
	if rc.err == nil {
		rc.err = err
	}
}

// bad turns the record away, or stops the task, as the policy says.
func (rc *rec) bad(step string, cause error) {
	part, offset := rc.tc.Partition, rc.offset
	if rc.from != nil {
		part, offset = rc.from.part, rc.from.offset
	}
	if t := asTransient(cause, step); t != nil {
		rc.fail(t.At(part, offset))
		return
	}
	if rc.tc.OnBad != plan.Stop {
		if rc.from != nil {
			cause = fmt.Errorf("row of %s at offset %d: %w", part, offset, cause)
		}
		rc.reject(plan.RejectBad, step, cause.Error())
		return
	}
	if rc.key != nil {
		cause = fmt.Errorf("key %s: %w", value.KeyText(rc.key), cause)
	}
	rc.fail(batch.NewError(batch.Permanent, batch.CodeBadRecord, step, cause,
		"mend the record or the function, or let bad records be skipped or become dead letters").At(part, offset))
}

func (rc *rec) reject(kind plan.RejectKind, step, cause string) {
	rej := plan.Rejected{Kind: kind, Offset: rc.offset, Step: step, Cause: cause}
	if rc.r != nil {
		rej.Timestamp = rc.r.Timestamp
		rej.Key, rej.Value = bytes.Clone(rc.r.Key), bytes.Clone(rc.r.Value)
		if rc.tc.OnBad == plan.DeadLetter {
			rej.Headers = batch.CloneHeaders(rc.r.Headers)
		}
	}
	if rc.key != nil {
		rej.Key = []byte(value.KeyText(rc.key))
	}
	if rc.wire != nil {
		if v, _, err := value.DecodeBinary(rc.wire); err == nil {
			rej.Value = value.AppendJSON(nil, v)
		}
	}
	rc.tc.Rejected = append(rc.tc.Rejected, rej)
}

// guard calls a user's function; a panic in it is a bad record of the step.
func (rc *rec) guard(step string, f func()) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			rc.bad(step, panicError(v))
			ok = false
		}
	}()
	f()
	return true
}

// try calls a function that can fail; its error, or a panic if the task is careful, is a bad record of the step.
func (rc *rec) try(b *builder, step string, f func() error) (ok bool) {
	var err error
	if !b.careful {
		err = f()
	} else if !rc.guard(step, func() { err = f() }) {
		return false
	}
	if err != nil {
		rc.bad(step, err)
	}
	return err == nil
}

// push hands a value on.
type push[T any] func(rc *rec, v T)

// node is a point in the graph to which consumers attach.
type node[T any] struct {
	stepName
	outs []func(b *builder) push[T]
}

// builder makes the closures of one task. Each task has its own: what they keep is no one else's.
type builder struct {
	careful bool
	memo    map[any]any
	begin   []func(rc *rec)
	// end runs backwards. Whoever adds to it has built what lies behind before, so that whoever hands on values at the end of a
	// batch does so before those behind it end.
	end   []func(rc *rec)
	trace *tracer // nil: the chain notes nothing
}

// build returns the function that takes the node's values. Within one task it is built once, also where several
// ways lead to the node.
func (n *node[T]) build(b *builder) push[T] {
	if b.trace != nil {
		b.trace.enter(n, n.step)
	}
	if f, ok := b.memo[n]; ok {
		return f.(push[T])
	}
	sinks := make([]push[T], len(n.outs))
	for i, o := range n.outs {
		sinks[i] = o(b)
	}
	var f push[T]
	switch len(sinks) {
	case 0:
		f = func(*rec, T) {}
	case 1:
		f = sinks[0]
	default:
		f = func(rc *rec, v T) {
			for _, s := range sinks {
				s(rc, v)
			}
		}
	}
	if b.trace != nil {
		f = traced(b.trace, f)
	}
	b.memo[n] = f
	return f
}

// chain is a node with everything behind it, for one task.
type chain[T any] struct {
	push       push[T]
	begin, end []func(rc *rec)
}

func (n *node[T]) chain(careful bool, trace *plan.Trace) *chain[T] {
	b := &builder{careful: careful, memo: map[any]any{}}
	if trace != nil {
		b.trace = &tracer{out: trace, ids: map[any]int{}}
	}
	f := n.build(b)
	return &chain[T]{push: f, begin: b.begin, end: b.end}
}

// chains holds a task's two variants: the fast one lets panics through to the executor, which runs the batch again
// with the careful one. That guards every user function by itself.
type chains[T any] struct {
	n             *node[T]
	fast, careful *chain[T]
	cur           *chain[T]
	rc            rec
}

func (c *chains[T]) start(tc *plan.TaskContext) error {
	c.rc = rec{tc: tc, time: txstate.NoTime}
	which := &c.fast
	if tc.Careful {
		which = &c.careful
	}
	switch {
	case tc.Trace != nil: // for this batch only
		c.cur = c.n.chain(tc.Careful, tc.Trace)
	case *which == nil:
		*which = c.n.chain(tc.Careful, nil)
		fallthrough
	default:
		c.cur = *which
	}
	for _, f := range c.cur.begin {
		f(&c.rc)
	}
	return c.rc.err
}

func (c *chains[T]) finish() error {
	turnedAway := len(c.rc.tc.Rejected)
	for _, f := range slices.Backward(c.cur.end) {
		if c.rc.err != nil {
			break
		}
		f(&c.rc)
	}
	if all := c.rc.tc.Rejected; len(all) > turnedAway { // what is handed on at the end has the offset of an earlier record
		slices.SortStableFunc(all, func(a, b plan.Rejected) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return c.rc.err
}

// sourceTask decodes the records of one partition and pushes them through its chain.
type sourceTask[T any] struct {
	chains[T]
	dec    codec.Decode[T]
	fields []string
	header bool // fields have been given to dec
	v      T
}

func (t *sourceTask[T]) Begin(tc *plan.TaskContext) error { return t.start(tc) }

func (t *sourceTask[T]) Process(c *batch.Chunk) error {
	if !t.header || !slices.Equal(t.fields, c.Fields) {
		t.fields, t.header = slices.Clone(c.Fields), true
		if err := t.dec.Begin(t.fields); err != nil {
			t.header = false
			return batch.NewError(batch.Permanent, batch.CodeBadRecord, "decode", err, "").At(t.rc.tc.Partition, batch.NoOffset)
		}
	}
	rc, f := &t.rc, t.cur.push
	var zero T
	for i := range c.Records {
		r := &c.Records[i]
		rc.r, rc.offset, rc.time = r, r.Offset, txstate.NoTime
		t.v = zero
		if err := t.dec.Decode(r, &t.v); err != nil {
			rc.bad("decode", err)
		} else {
			f(rc, t.v)
		}
		if rc.err != nil {
			return rc.err
		}
	}
	return nil
}

func (t *sourceTask[T]) End() error { return t.finish() }
