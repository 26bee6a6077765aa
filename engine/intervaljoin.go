package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/windowop"
)

// Joins of this file bring values together that have equal keys and event times no more than a duration apart, in either direction, in
// whichever batches they come. Both streams need event times. Null keys are equal to each other, as in GroupBy.
//
// A value waits, in a state of the join's own, until the watermark of both streams has passed its time by that duration. Pairs are sent
// in the batch that brings the later of their values; a value that an outer join has without a partner, once it has waited, by
// which a batch begins even if there are no records. Which values meet doesn't depend on where batches begin and end, nor on which
// stream is written first. A value is late, and goes to the state _rejected, if its time lies before the watermark that the batch
// before left; results of windows never are.
//
// A pair's event time is the later one of its values'; that of a value without a partner is the latest at which one could have come. Neither
// is late in a window behind. Within a batch, the rows of a key come in the order of their values' times.
//
// The values go from task to task: their types must be of exported fields throughout. All that waits for one key is read and
// written together, so that keys shouldn't have many thousands of values within the duration. The state is called after the
// operator: a join that Stream.Name calls "paid" keeps it in paid.join.

// Join joins the values of a and b that have equal keys and lie at most within apart: an inner join.
func Join[K comparable, A, B, R any](a Stream[A], b Stream[B], within time.Duration, keyA func(A) K, keyB func(B) K, f func(a A, b B) R) Stream[R] {
	j := intervalJoin[A, B, R]{kind: "join", op: windowop.Join{Pairs: true}, f: func(a *A, b *B) R { return f(*a, *b) }}
	return joinWithin(j, a, b, within, keyA, keyB)
}

// LeftJoin is Join with each value of a, also where b has none for it: f is given nil then.
func LeftJoin[K comparable, A, B, R any](a Stream[A], b Stream[B], within time.Duration, keyA func(A) K, keyB func(B) K, f func(a A, b *B) R) Stream[R] {
	j := intervalJoin[A, B, R]{kind: "left_join", op: windowop.Join{Pairs: true, Alone: [2]bool{true, false}}, f: func(a *A, b *B) R { return f(*a, b) }}
	return joinWithin(j, a, b, within, keyA, keyB)
}

// RightJoin is Join with each value of b, also where a has none for it: f is given nil then.
func RightJoin[K comparable, A, B, R any](a Stream[A], b Stream[B], within time.Duration, keyA func(A) K, keyB func(B) K, f func(a *A, b B) R) Stream[R] {
	j := intervalJoin[A, B, R]{kind: "right_join", op: windowop.Join{Pairs: true, Alone: [2]bool{false, true}}, f: func(a *A, b *B) R { return f(a, *b) }}
	return joinWithin(j, a, b, within, keyA, keyB)
}

// FullJoin is Join with each value of both streams: f is given nil where the other has none for it.
func FullJoin[K comparable, A, B, R any](a Stream[A], b Stream[B], within time.Duration, keyA func(A) K, keyB func(B) K, f func(a *A, b *B) R) Stream[R] {
	j := intervalJoin[A, B, R]{kind: "full_join", op: windowop.Join{Pairs: true, Alone: [2]bool{true, true}}, f: f}
	return joinWithin(j, a, b, within, keyA, keyB)
}

// AntiJoin keeps the values of a for which b has none with the same key at most within apart. They are sent when it is certain that
// none comes.
func AntiJoin[K comparable, A, B any](a Stream[A], b Stream[B], within time.Duration, keyA func(A) K, keyB func(B) K) Stream[A] {
	j := intervalJoin[A, B, A]{kind: "anti_join", op: windowop.Join{Alone: [2]bool{true, false}}, f: func(a *A, _ *B) A { return *a }}
	return joinWithin(j, a, b, within, keyA, keyB)
}

// intervalJoin is what tells the joins apart.
type intervalJoin[A, B, R any] struct {
	kind string
	op   windowop.Join
	f    func(a *A, b *B) R
}

func joinWithin[K comparable, A, B, R any](j intervalJoin[A, B, R], a Stream[A], b Stream[B], within time.Duration, keyA func(A) K, keyB func(B) K) Stream[R] {
	p := a.p
	out, e, index := rowsStage[R](p, j.kind, " within "+within.String())
	after(&out, a)
	after(&out, b)
	keys, err := value.KeyOf[K]()
	if err != nil {
		p.errorf("%s: %w", j.kind, err)
		return out
	}
	wireA, errA := value.WireOf[A]()
	wireB, errB := value.WireOf[B]()
	switch {
	case b.p != p:
		p.strange(j.kind, b.p)
		return out
	case !a.timed || !b.timed:
		p.errorf("%s: a stream has no event time; give each source EventTime, or join within a batch: BatchJoin and its like", j.kind)
		return out
	case within < 0:
		p.errorf("%s: within %s is negative", j.kind, within)
		return out
	case errA != nil:
		p.errorf("%s: %w", j.kind, errA)
		return out
	case errB != nil:
		p.errorf("%s: %w", j.kind, errB)
		return out
	}
	op := j.op
	op.Within = int64(within)
	e.State = &plan.State{}
	e.State.Schema.Kind, e.State.Schema.Key = "opaque", keys.Columns()
	p.timed[e.State] = out.sources
	e.Operator = func() plan.Operator {
		o := op
		return &o
	}
	defined := len(p.defined)
	p.define(out.trail, "", "within "+within.String())
	out.n.renamed = func() {
		was, name := e.State.Schema.Name, joinState(out.n.step)
		delete(p.states, was)
		if p.states[name] {
			p.errorf("%s: another join keeps a state %s; give one of them a name of its own", out.n.step, name)
		}
		p.states[name] = true
		e.State.Schema.Name, p.defined[defined].Schema.Name = name, name
	}
	out.n.renamed()
	sendTimed(a, e, index, 0, &out.n.stepName, wireA, keyed(keys, keyA))
	if !op.Pairs {
		wireB = nil // these are only met
	}
	sendTimed(b, e, index, 1, &out.n.stepName, wireB, keyed(keys, keyB))
	e.Next = func() plan.StageTask {
		return &joinTask[A, B, R]{chains: chains[R]{n: out.n}, stage: e, wireA: wireA, wireB: wireB, f: j.f}
	}
	return out
}

// joinState is the name of the state in which the values of a join wait.
func joinState(step string) string { return strings.ReplaceAll(step, " ", "_") + ".join" }

// keyed returns what encodes the key of a value.
func keyed[K comparable, T any](keys *value.Codec[K], key func(T) K) func(dst []byte, v T) ([]byte, error) {
	return func(dst []byte, v T) ([]byte, error) { return keys.Encode(dst, key(v)) }
}

// sendTimed sends the values of s, which aren't late, to a join; without a wire only their times.
func sendTimed[T any](s Stream[T], e *plan.Exchange, index, side int, at *stepName, wire *value.Wire[T], key func(dst []byte, v T) ([]byte, error)) {
	s.to(func(b *builder) push[T] {
		step := at.step
		var mark int64
		var keyBuf, wireBuf, delta []byte
		b.begin = append(b.begin, func(rc *rec) {
			sources := e.State.TimeSources
			mark = rc.tc.Watermarks[sources[0]]
			for _, i := range sources[1:] {
				mark = min(mark, rc.tc.Watermarks[i])
			}
		})
		return func(rc *rec, v T) {
			if rc.time < mark && (rc.r != nil || rc.mayBeLate) {
				rc.reject(plan.RejectLate, step, fmt.Sprintf("event time %s lies before the watermark %s", nanoText(rc.time), nanoText(mark)))
				return
			}
			var err error
			if !b.careful {
				keyBuf, err = key(keyBuf[:0], v)
			} else if !rc.guard(step, func() { keyBuf, err = key(keyBuf[:0], v) }) {
				return
			}
			if wireBuf = wireBuf[:0]; err == nil && wire != nil {
				wireBuf, err = wire.Append(wireBuf, &v)
			}
			if err != nil {
				rc.bad(step, err)
				return
			}
			delta = windowop.AppendJoinDelta(delta[:0], side, rc.time, wireBuf)
			if err := rc.tc.Out[index].Add(keyBuf, delta); err != nil {
				rc.fail(batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, step, err, "lower the batch's MaxRecords"))
			}
		}
	})
}

// joinTask makes the rows of a join, in one shard.
type joinTask[A, B, R any] struct {
	chains[R]
	stage *plan.Exchange
	wireA *value.Wire[A]
	wireB *value.Wire[B]
	f     func(a *A, b *B) R
	sent  int64
}

func (t *joinTask[A, B, R]) Begin(tc *plan.TaskContext) error {
	tc.Careful = true // a panic can't be blamed on a record here, but on its step and key
	tc.Partition = batch.Partition{Source: t.stage.Name, Number: int32(tc.Shard)}
	t.sent = 0
	return t.start(tc)
}

func (t *joinTask[A, B, R]) Row(key, b []byte) error {
	rc := &t.rc
	j, err := windowop.ReadJoined(b)
	var left *A
	var right *B
	if err == nil && j.Has[0] {
		left = new(A)
		_, err = t.wireA.DecodeInto(j.Rows[0], left)
	}
	if err == nil && j.Has[1] {
		right = new(B)
		_, err = t.wireB.DecodeInto(j.Rows[1], right)
	}
	if err != nil {
		return internalError(t.stage.Name, key, err)
	}
	rc.key, rc.offset, rc.time = key, t.sent, j.Time
	t.sent++
	var r R
	if rc.guard(t.stage.Name, func() { r = t.f(left, right) }) {
		t.cur.push(rc, r)
	}
	return rc.err
}

func (t *joinTask[A, B, R]) End() error { return t.finish() }
