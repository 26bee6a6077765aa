package coordtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
)

// play performs a machine's actions at once and in order against a World whose calls have the fates that a test
// chooses, and notes what was done.
type play struct {
	t       *testing.T
	w       *World
	cfg     coordinator.Config
	m       *coordinator.Machine
	now     time.Time
	timer   time.Time
	batches map[batch.Txid]*batch.Batch
	begun   []coordinator.Begin
	done    []string
	ended   bool
	// crash decides whether the process dies before a step (from 0) of a call.
	crash func(call string, txid batch.Txid, step int) bool
}

func newPlay(t *testing.T, cfg coordinator.Config, records int64) *play {
	t.Helper()
	if cfg.MaxPending == 0 {
		cfg.MaxPending = 2
	}
	w := NewWorld(WorldConfig{Partitions: 1, MaxRecords: 10, Outside: cfg.Outside, MaxPending: cfg.MaxPending}, 1)
	w.Calm()
	w.Produce(0, records)
	w.Fetch()
	return &play{t: t, w: w, cfg: cfg, now: Base}
}

// fates chooses what becomes of calls; all others go well.
func (p *play) fates(choose func(call string, id coordinator.ID) fate) { p.w.plot = choose }

// start starts a process, whatever became of the one before, and lets it run until nothing is left to do.
func (p *play) start() {
	p.t.Helper()
	m, err := coordinator.New(p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.m, p.ended, p.timer = m, false, time.Time{}
	p.batches = map[batch.Txid]*batch.Batch{}
	p.tell(startOf(p.w.Start()), coordinator.DataReady{})
}

// tell gives the machine events and lets it run until nothing is left to do or the process has ended.
func (p *play) tell(events ...coordinator.Event) {
	p.t.Helper()
	for n := 0; !p.ended; n++ {
		if n == 10_000 {
			p.t.Fatalf("no end in sight:\n%s", strings.Join(p.done[len(p.done)-50:], "\n"))
		}
		if len(events) == 0 {
			if p.timer.IsZero() {
				break
			}
			p.now, p.timer = p.timer, time.Time{}
			events = append(events, coordinator.Tick{})
		}
		actions := slices.Clone(p.m.Step(p.now, events[0]))
		events = events[1:]
		for _, a := range actions {
			p.done = append(p.done, FormatAction(a))
			if ev := p.perform(a); ev != nil {
				events = append(events, ev)
			}
			if p.ended {
				break
			}
		}
		p.now = p.now.Add(time.Millisecond)
	}
	if err := p.w.Err(); err != nil {
		p.t.Fatalf("%v:\n%s", err, strings.Join(p.done, "\n"))
	}
}

func (p *play) perform(a coordinator.Action) coordinator.Event {
	switch a := a.(type) {
	case coordinator.Begin:
		b := a.Batch
		p.begun = append(p.begun, a)
		p.batches[b.Txid] = &b
		id := coordinator.ID{Txid: b.Txid, Attempt: b.Attempt}
		var ok bool
		ev := p.call(p.w.plan(&b, a.Recorded, &ok), b.Txid, answer(id, coordinator.Planned{ID: id, Plan: a.Plan}))
		if pl, isPlan := ev.(coordinator.Planned); isPlan {
			pl.OK, pl.Ranges = ok, b.Ranges
			return pl
		}
		return ev
	case coordinator.Process:
		return p.call(p.w.process(p.batches[a.Txid]), a.Txid, answer(a.ID, coordinator.Processed{ID: a.ID}))
	case coordinator.Record:
		return p.call(p.w.record(p.batches[a.Txid]), a.Txid, answer(a.ID, coordinator.Recorded{ID: a.ID}))
	case coordinator.Commit:
		var bs []*batch.Batch
		for _, id := range a.Batches {
			bs = append(bs, p.batches[id.Txid])
		}
		last := a.Batches[len(a.Batches)-1]
		return p.call(p.w.commit(bs), last.Txid, answer(last, coordinator.Committed{ID: last}))
	case coordinator.Abort:
		p.w.drop(a.Batches)
		return coordinator.Aborted{Abort: a.Abort}
	case coordinator.Success:
		p.w.success(a.ID)
	case coordinator.Reopen:
		var txid batch.Txid
		ev := p.call(p.w.reopen(a.Reopen, &txid), 0, func(err error) coordinator.Event {
			if err != nil {
				return coordinator.ReopenFailed{Reopen: a.Reopen, Err: err}
			}
			return coordinator.Reopened{Reopen: a.Reopen, Txid: txid}
		})
		return ev
	case coordinator.SetTimer:
		p.timer = a.At
	case coordinator.Stopped:
		p.ended = true
	}
	return nil
}

func (p *play) call(o *op, txid batch.Txid, answer func(error) coordinator.Event) coordinator.Event {
	for i := 0; ; i++ {
		if p.crash != nil && p.crash(o.name, txid, i) {
			p.w.Crash()
			p.done = append(p.done, "crash")
			p.ended = true
			return nil
		}
		if done, err := o.step(); done {
			return answer(err)
		}
	}
}

// beginnings of a txid, in order.
func (p *play) beginnings(txid batch.Txid) []coordinator.Begin {
	var bs []coordinator.Begin
	for _, b := range p.begun {
		if b.Batch.Txid == txid {
			bs = append(bs, b)
		}
	}
	return bs
}

// inOrder fails the test unless actions that begin with these words were done, in this order.
func (p *play) inOrder(actions ...string) {
	p.t.Helper()
	rest := p.done
	for i, a := range actions {
		at := slices.IndexFunc(rest, func(d string) bool { return d == a || strings.HasPrefix(d, a+" ") })
		if at < 0 {
			p.t.Fatalf("%q is not done after %q:\n%s", a, actions[:i], strings.Join(p.done, "\n"))
		}
		rest = rest[at+1:]
	}
}

// complete fails the test unless the ledger holds all records, each once.
func (p *play) complete() {
	p.t.Helper()
	if err := p.w.Verify(); err != nil {
		p.t.Fatalf("%v:\n%s", err, strings.Join(p.done, "\n"))
	}
}

// times gives the fate f to the first n calls that cond chooses.
func times(n int, cond func(call string, id coordinator.ID) bool, f fate) func(string, coordinator.ID) fate {
	return func(call string, id coordinator.ID) fate {
		if n > 0 && cond(call, id) {
			n--
			return f
		}
		return good
	}
}

func of(call string, txid batch.Txid) func(string, coordinator.ID) bool {
	return func(c string, id coordinator.ID) bool { return c == call && id.Txid == txid }
}

func ledgerRanges(ledger []batch.Batch) []string {
	var rs []string
	for _, b := range ledger {
		rs = append(rs, fmt.Sprintf("%d%s", b.Txid, formatRanges(b.Ranges)))
	}
	return rs
}
