package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/state"
)

// Keeping is an Operator that tells, for people, for how long rows are kept.
type Keeping interface {
	// Keeps tells it of the operator's own state and of its output; the latter is empty where there is none.
	Keeps() (waiting, output string)
}

// Explanation tells people how a plan runs, in the order in which it does, and what is kept for how long.
type Explanation struct{ Stages, Kept []Remark }

// Remark is one line of an explanation: what it is about, and what is said of it.
type Remark struct{ What, Says string }

// Explain tells how p runs, stage by stage, and what is kept for how long, in a store of so many shards.
func (p *Plan) Explain(shards int) Explanation {
	var x Explanation
	for _, s := range p.Sources {
		says := "a task for each partition: read, decode, all steps up to the next exchange, map-side combine"
		if s.Parallel > 0 {
			says += fmt.Sprintf("; at most %d at once", s.Parallel)
		}
		x.stage("source "+s.ID, says)
	}
	placed := func(before *Exchange) {
		for _, q := range p.Persists {
			if q.Before != before {
				continue
			}
			says := "the rows of each partition, one after the other, change state " + q.Schema.Name
			if q.Next != nil {
				says += "; what it emits goes on to later exchanges"
			}
			x.stage("persist "+q.Name, says)
		}
	}
	for _, e := range p.Exchanges {
		placed(e)
		x.stage("exchange "+e.Name, e.explain(shards))
	}
	placed(nil)
	for _, s := range p.Sinks {
		what := "rows"
		if s.Name == DeadLettersSink {
			what = "records turned away"
		}
		x.stage("sink "+s.Name, s.Describe+": the batch's "+what+", sent when it commits")
	}
	p.explainStates(&x)
	p.explainRest(&x)
	return x
}

func (x *Explanation) stage(what, says string) { x.Stages = append(x.Stages, Remark{what, says}) }
func (x *Explanation) keep(what, says string)  { x.Kept = append(x.Kept, Remark{what, says}) }

// explain tells what an exchange does.
func (e *Exchange) explain(shards int) string {
	var parts []string
	n := fmt.Sprintf("%d shards by key", shards)
	if e.Parallel > 0 {
		n += fmt.Sprintf(", at most %d at once", e.Parallel)
	}
	parts = append(parts, n)
	st := e.State
	switch {
	case e.Operator != nil && e.Output != nil:
		parts = append(parts, "an operator with timers, which waits in state "+st.Schema.Name+" and writes to state "+e.Output.Schema.Name)
	case e.Operator != nil:
		parts = append(parts, "an operator with timers, which waits in state "+st.Schema.Name)
	case st != nil && st.Mergeable:
		parts = append(parts, "state "+st.Schema.Name+" is written without being read")
	case st != nil:
		parts = append(parts, "state "+st.Schema.Name+" is read, changed and written")
	case e.Merge == nil:
		parts = append(parts, "rows of the batch brought together")
	default:
		parts = append(parts, "totals of the batch")
	}
	if e.Next != nil {
		what := "its rows"
		if st != nil && e.Operator == nil {
			switch st.Emit {
			case EmitUpdates:
				what = "the new values"
			case EmitCloses:
				what = "the rows of windows that close"
			case EmitUpdates | EmitCloses:
				what = "the new values, and the rows of windows that close"
			}
		}
		parts = append(parts, "then a task for each shard takes "+what+" on")
	}
	return strings.Join(parts, "; ")
}

// explainStates tells for how long the rows of states are kept.
func (p *Plan) explainStates(x *Explanation) {
	for _, e := range p.Exchanges {
		var waiting, output string
		if e.Operator != nil {
			waiting, output = "as its operator says", "as its operator says"
			if k, ok := e.Operator().(Keeping); ok {
				waiting, output = k.Keeps()
			}
		}
		if e.State != nil {
			x.keep("state "+e.State.Schema.Name, keptText(&e.State.Schema, waiting))
		}
		if e.Output != nil {
			x.keep("state "+e.Output.Schema.Name, keptText(&e.Output.Schema, output))
		}
	}
	for _, q := range p.Persists {
		x.keep("state "+q.Schema.Name, "until its function deletes them")
	}
	for _, t := range p.Statics {
		x.keep("table "+t.Name, "a copy of each version that a batch in the ledger has used")
	}
	x.keep("state _rejected", "for good: the rows that were turned away")
}

func keptText(s *state.Schema, says string) string {
	switch {
	case says != "":
	case s.Window != nil && s.Window.ByBatch:
		says = Duration(time.Duration(s.Window.Retention)) + " after the window has closed"
	case s.Window != nil:
		says = Duration(time.Duration(s.Window.Retention)) + " of batch time after the window has closed"
	default:
		says = "for good"
	}
	return says
}

// explainRest tells what is kept besides states.
func (p *Plan) explainRest(x *Explanation) {
	l := p.Ledger
	age, bytes := l.MaxAge, l.MaxBytes
	if age == 0 {
		age = DefaultLedgerAge
	}
	if bytes == 0 {
		bytes = DefaultLedgerBytes
	}
	var bounds []string
	if age > 0 {
		bounds = append(bounds, Duration(age))
	}
	if bytes > 0 {
		bounds = append(bounds, sizeText(bytes))
	}
	if l.MaxBatches > 0 {
		bounds = append(bounds, fmt.Sprintf("%d batches", l.MaxBatches))
	}
	says := "for good"
	switch len(bounds) {
	case 0:
	case 1:
		says = bounds[0]
	default:
		says = strings.Join(bounds, " or ") + ", whichever is less"
	}
	if l.Changes {
		says += "; with what each batch changed"
	}
	x.keep("ledger", says)
	s := p.Savepoints
	if s.To == "" {
		x.keep("savepoints", "those made by command, and before a migration")
		return
	}
	every, n := s.Every, s.Keep
	if every == 0 {
		every = DefaultSavepointEvery
	}
	if n == 0 {
		n = DefaultSavepointKeep
	}
	x.keep("savepoints", fmt.Sprintf("the last %d, one every %s", n, Duration(every)))
}

// sizeText writes a size in the largest unit that leaves it whole.
func sizeText(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := int64(1) << (30 - 10*i); n%size == 0 {
			return fmt.Sprintf("%d %s", n/size, unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Duration writes a duration without parts that are zero, with days: 7d, 1h30m, 500ms.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d <= 0 || d < time.Second {
		return d.String()
	}
	days := ""
	if d >= day {
		days = fmt.Sprintf("%dd", d/day)
		if d %= day; d == 0 {
			return days
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}
