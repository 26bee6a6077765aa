package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

// checkStep is the step whose random numbers say which batches are checked, and in which order their parts run then.
const checkStep = "check determinism"

// checks tells whether a batch belongs to the share that is computed twice. It is a function of the batch's seed and txid, so that
// another attempt of the batch is checked, too.
func (x *Executor) checks(b *batch.Batch) bool {
	if x.cfg.Check <= 0 {
		return false
	}
	return b.Rand(checkStep, batch.Partition{}, int64(b.Txid)).Float64() < x.cfg.Check
}

// check computes batch f a second time, in other circumstances, and compares what it came to: input, event times, rows turned
// away and every write. earlier and windows are what the first run had. Nothing of either run has been written.
func (x *Executor) check(ctx context.Context, f *flight, earlier []*flight, windows windowSet) error {
	s := x.shadow(f.b)
	g := s.again(f)
	err := s.runRanges(ctx, g)
	if err == nil {
		seen := make([]int64, len(g.results))
		for i, r := range g.results {
			seen[i] = r.eventTime
			g.counts.Read += r.input.Records
			g.counts.Filtered += r.filtered
			g.countRejected(r.rejected, x.sourcePolicy(&g.b.Ranges[i]))
		}
		g.times = g.left.next(x.plan, g.b, seen)
		err = s.stateStage(ctx, g, earlier, windows)
	}
	if err != nil {
		return x.failedAgain(err)
	}
	for i, r := range f.results {
		if again := g.results[i].input; r.input != again {
			rg := f.b.Ranges[i]
			return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "check",
				fmt.Errorf("[%d,%d) held %d records with digest %016x when it was read first, and %d with digest %016x a moment later", rg.Start, rg.End,
					r.input.Records, r.input.Digest, again.Records, again.Digest),
				"find out who changes the source below what has been read").At(rg.Partition, rg.Start)
		}
	}
	if x.equal(f, g) {
		if x.cfg.OnChecked != nil {
			x.cfg.OnChecked(f.b.Txid)
		}
		return nil
	}
	c := &comparison{x: x, s: s, f: f, g: g}
	return c.explain(ctx)
}

// shadow returns an executor that runs batches as x does, with as little in common as can be: its tasks are new, it works on another
// number of parts at once, begins them in another order, and gets its records in other pieces. It commits nothing.
func (x *Executor) shadow(b *batch.Batch) *Executor {
	rng := b.Rand(checkStep, batch.Partition{}, batch.NoOffset)
	s := &Executor{
		cfg: x.cfg, plan: x.plan, log: x.log, sourceAt: x.sourceAt, windowed: x.windowed, timed: x.timed, onBad: x.onBad,
		tasks: make([]taskPool, len(x.tasks)), outs: outPool{n: x.outs.n},
	}
	for i := range x.tasks {
		s.tasks[i].make = x.tasks[i].make
	}
	for _, em := range x.emitters {
		s.emitters = append(s.emitters, recut{em, b})
	}
	if s.alone = x.cfg.Procs > 1 && rng.IntN(2) == 0; s.alone {
		s.cfg.Procs = 1
	} else {
		s.cfg.Procs = max(4, 2*x.cfg.Procs, 2*runtime.GOMAXPROCS(0))
	}
	s.taskSlots, s.shardSlots = make(chan struct{}, s.cfg.Procs), make(chan struct{}, s.cfg.Procs)
	s.turns = func(n int) []int {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		// Drawn by the batch and n alone: shards of several exchanges ask in no certain order.
		r := b.Rand(checkStep, batch.Partition{Number: int32(n)}, batch.NoOffset)
		for i := n - 1; i > 0; i-- {
			j := r.IntN(i + 1)
			order[i], order[j] = order[j], order[i]
		}
		return order
	}
	return s
}

// recut passes on what an emitter reads in other chunks.
type recut struct {
	emitter.Emitter
	b *batch.Batch
}

func (e recut) Read(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	rng := e.b.Rand(checkStep, r.Partition, r.Start)
	return e.Emitter.Read(ctx, r, func(c *batch.Chunk) error {
		cut := rng.IntN(len(c.Records) + 1)
		for _, recs := range [][]batch.Record{c.Records[:cut], c.Records[cut:]} {
			if len(recs) == 0 {
				continue
			}
			if err := yield(&batch.Chunk{Records: recs, Fields: c.Fields}); err != nil {
				return err
			}
		}
		return nil
	})
}

// again returns a flight for another run of f's batch.
func (x *Executor) again(f *flight) *flight {
	return &flight{b: f.b, expect: f.expect, known: f.known, left: f.left, tables: f.tables, given: f.given, was: f.was, again: true, overlays: map[string]*overlay{}}
}

// failedAgain is the failure of a second run whose first one succeeded.
func (x *Executor) failedAgain(err error) error {
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Kind != batch.Permanent {
		return err
	}
	switch e.Code {
	case batch.CodeBadRecord, batch.CodeUserError, batch.CodeOverflow:
		return batch.NewError(batch.Permanent, batch.CodeNotDeterministic, "check",
			fmt.Errorf("computed twice, the batch came to two results: it succeeded, then step %s failed: %w", e.Op, e.Err), notDeterministicRemedy).At(e.Partition, e.Offset)
	}
	return err
}

const notDeterministicRemedy = "mend the function: it must depend on nothing but its arguments, Batch.Time and Batch.Rand (no clock, random number, map order, nor what it keeps between calls); nothing of this batch was applied"

// equal compares two runs of a batch whose input was the same.
func (x *Executor) equal(f, g *flight) bool {
	if f.counts != g.counts || !slices.Equal(f.times.watermarks(x.plan), g.times.watermarks(x.plan)) || len(f.sets) != len(g.sets) {
		return false
	}
	for i := range f.results {
		if f.results[i].eventTime != g.results[i].eventTime {
			return false
		}
	}
	for i, a := range f.sets {
		b := g.sets[i]
		if a.State != b.State || a.Digest != b.Digest || a.Writes != b.Writes || !slices.EqualFunc(a.DropWindows, b.DropWindows, bytes.Equal) {
			return false
		}
		// The digest is over what the batch brought; what became of it with the old value must be the same, too.
		for shard := range a.Shards {
			if !slices.EqualFunc(a.Shards[shard], b.Shards[shard], equalWrites) {
				return false
			}
		}
	}
	return true
}

func equalWrites(a, b state.Write) bool {
	return a.Op == b.Op && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

// comparison finds out where two runs of a batch part.
type comparison struct {
	x, s *Executor // s ran the second
	f, g *flight
}

// finding is the first thing that differs.
type finding struct {
	what          string // "state counts", "rows turned away", …
	key           string
	first, second string
	part          batch.Partition
	offset        int64
	step          string
	detail        string         // of the step
	ranged        int            // index in the batch's ranges of the part in which it arose, -1 if none
	exchange      *plan.Exchange // in what the part hands to it the difference shows; nil: in something else
	fed           int            // its index
}

func (c *comparison) explain(ctx context.Context) error {
	d := c.find()
	if d.ranged >= 0 && d.step == "" {
		c.trace(ctx, d)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "computed twice, the batch came to two results: %s", d.what)
	if d.key != "" {
		fmt.Fprintf(&b, ", key %s", d.key)
	}
	fmt.Fprintf(&b, ": %s, then %s", orNothing(d.first), orNothing(d.second))
	if d.step != "" {
		fmt.Fprintf(&b, "; the difference arises in step %s%s", d.step, d.detail)
	}
	return batch.NewError(batch.Permanent, batch.CodeNotDeterministic, "check", errors.New(b.String()), notDeterministicRemedy).At(d.part, d.offset)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// find looks along the batch's way: rows turned away by a source's steps, what comes to each exchange, what a state makes of it.
func (c *comparison) find() *finding {
	for i, r := range c.f.results {
		p := c.f.b.Ranges[i].Partition
		if d := rejectedDiffer(r.rejected, c.g.results[i].rejected, p); d != nil {
			d.ranged = i
			return d
		}
	}
	for i, e := range c.x.plan.Exchanges {
		if d := c.exchange(i, e); d != nil {
			d.exchange, d.fed = e, i
			return d
		}
		if e.State != nil {
			if d := c.state(&e.State.Schema); d != nil {
				d.step = "aggregate " + e.Name
				return d
			}
		}
		if e.Output != nil {
			if d := c.state(&e.Output.Schema); d != nil {
				d.step = "aggregate " + e.Name
				return d
			}
		}
	}
	for k, st := range c.f.stages {
		for j := range st.parts {
			if k < len(c.g.stages) && j < len(c.g.stages[k].parts) {
				if d := rejectedDiffer(st.parts[j].rejected, c.g.stages[k].parts[j].rejected, st.partition(&st.parts[j])); d != nil {
					return d
				}
			}
		}
	}
	for i, p := range c.x.plan.Persists {
		if d := c.state(&p.Schema); d != nil {
			c.persisted(i, d)
			return d
		}
	}
	for i, r := range c.f.results {
		if a, b := r.eventTime, c.g.results[i].eventTime; a != b {
			return &finding{what: "the largest event time", first: fmt.Sprint(a), second: fmt.Sprint(b), part: c.f.b.Ranges[i].Partition, offset: batch.NoOffset, ranged: i}
		}
	}
	for _, s := range []state.Schema{RejectedSchema(), WindowsSchema(), TimersSchema(), DeadSchema(), SinksSchema()} {
		if d := c.state(&s); d != nil {
			return d
		}
	}
	return &finding{
		what: "counts", first: fmt.Sprintf("%+v", c.f.counts), second: fmt.Sprintf("%+v", c.g.counts), offset: batch.NoOffset, ranged: -1,
	}
}

// rejectedDiffer compares the rows that one part turned away.
func rejectedDiffer(a, b []plan.Rejected, p batch.Partition) *finding {
	for i := range max(len(a), len(b)) {
		var first, second *plan.Rejected
		if i < len(a) {
			first = &a[i]
		}
		if i < len(b) {
			second = &b[i]
		}
		if first != nil && second != nil && first.Offset == second.Offset && first.Kind == second.Kind && first.Step == second.Step && first.Cause == second.Cause {
			continue
		}
		// The row that only one of the runs turned away is the one in front.
		switch {
		case first != nil && second != nil && first.Offset < second.Offset:
			second = nil
		case first != nil && second != nil && second.Offset < first.Offset:
			first = nil
		}
		d := &finding{what: "rows turned away", part: p, ranged: -1}
		for _, side := range []struct {
			row  *plan.Rejected
			text *string
		}{{first, &d.first}, {second, &d.second}} {
			if side.row != nil {
				d.offset, d.step = side.row.Offset, side.row.Step
				*side.text = fmt.Sprintf("%s (%s)", side.row.Kind, side.row.Cause)
			}
		}
		return d
	}
	return nil
}

// trace runs the range in question again, a few times, and notes what each step hands on. A difference that doesn't show again isn't told.
func (c *comparison) trace(ctx context.Context, d *finding) {
	first := c.traced(ctx, d.ranged)
	if first == nil {
		return
	}
	const runs = 5
	for range runs {
		again := c.traced(ctx, d.ranged)
		if again == nil {
			return
		}
		if t, ok := first.trace.Differ(again.trace); ok {
			d.step, d.offset = t.Step, t.Offset
			d.detail = fmt.Sprintf(", which handed on %s, then %s", orNothing(t.First), orNothing(t.Second))
			return
		}
		if e := d.exchange; e != nil && c.feedsDiffer(e, feed{}, merged(e, first.out[d.fed]), merged(e, again.out[d.fed])) != nil {
			d.step, d.detail = "group by or aggregate "+e.Name, ": what came to it was the same"
			return
		}
	}
}

func (c *comparison) traced(ctx context.Context, i int) *partResult {
	r := c.f.b.Ranges[i]
	si := c.s.sourceAt[r.Source]
	res := &partResult{out: c.s.outs.get(c.s.cfg.Shards), persist: make([]any, len(c.s.plan.Persists)), trace: &plan.Trace{}}
	if err := c.s.runTask(ctx, c.s.tasks[si].make(), c.f, r, si, true, res); err != nil || len(res.trace.Steps) == 0 {
		return nil
	}
	return res
}
