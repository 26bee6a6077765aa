package exec

import (
	"context"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Difference is a batch that didn't come out as its ledger entry says.
type Difference struct {
	Txid batch.Txid
	What string // "input", "state <name>", …
	Want string
	Got  string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("txid %d: %s differs: recorded %s, now %s", d.Txid, d.What, d.Want, d.Got)
}

// Drive runs the batches of entries, which follow the last committed one, over their recorded ranges, with so
// many in flight. Where an entry carries digests (its Chain isn't zero), the batch must come out equal: the first
// that doesn't is returned as a *Difference, and nothing of it is committed. It stands in for the coordinator
// where the order of everything is known beforehand: replay, and tests.
func (x *Executor) Drive(ctx context.Context, entries []txstate.Entry, pending int) error {
	return x.DriveFrom(ctx, entries, 0, pending)
}

// DriveFrom is Drive, but that the outcome of batches below from isn't compared; their input is.
func (x *Executor) DriveFrom(ctx context.Context, entries []txstate.Entry, from batch.Txid, pending int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type running struct {
		b    *batch.Batch
		done chan error
	}
	var flying []running
	drop := func(err error) error {
		cancel()
		var bs []*batch.Batch
		for _, f := range slices.Backward(flying) {
			<-f.done //nolint:errcheck // the first failure is what is reported
			bs = append(bs, f.b)
		}
		x.Abort(bs)
		return err
	}
	commit := func() error {
		r := flying[0]
		if err := <-r.done; err != nil {
			r.done <- err
			return drop(err)
		}
		e := &entries[r.b.Txid-entries[0].Txid]
		if d := x.difference(r.b, e); d != nil && e.Txid >= from {
			r.done <- nil
			return drop(d)
		}
		if err := x.Commit(ctx, []*batch.Batch{r.b}); err != nil {
			r.done <- err
			return drop(err)
		}
		x.Success(r.b)
		flying = flying[1:]
		return nil
	}
	for i := range entries {
		e := &entries[i]
		if len(flying) == max(pending, 1) {
			if err := commit(); err != nil {
				return err
			}
		}
		if e.Reset {
			for len(flying) > 0 {
				if err := commit(); err != nil {
					return err
				}
			}
			if err := x.redo(ctx, e, e.Txid >= from); err != nil {
				return err
			}
			continue
		}
		b := &batch.Batch{Txid: e.Txid, Attempt: e.Attempt, Time: e.Time, Seed: e.Seed, Idle: e.Idle, Joined: e.Joined}
		for _, r := range e.Ranges {
			b.Ranges = append(b.Ranges, r.Range)
		}
		if e.Chain != 0 {
			x.mu.Lock()
			x.recorded[e.Txid] = *e
			x.mu.Unlock()
		}
		if _, err := x.Plan(ctx, b, true); err != nil {
			return drop(err)
		}
		r := running{b, make(chan error, 1)}
		flying = append(flying, r)
		go func() { r.done <- x.Process(ctx, b) }()
	}
	for len(flying) > 0 {
		if err := commit(); err != nil {
			return err
		}
	}
	return nil
}

// difference compares what a processed batch came to with its ledger entry.
func (x *Executor) difference(b *batch.Batch, want *txstate.Entry) *Difference {
	if want.Chain == 0 {
		return nil
	}
	x.mu.Lock()
	f := x.flights[b.Txid]
	x.mu.Unlock()
	got := x.entryOf(f)
	diff := func(what string, want, got any) *Difference {
		return &Difference{Txid: b.Txid, What: what, Want: fmt.Sprint(want), Got: fmt.Sprint(got)}
	}
	digests := map[string]txstate.StateDigest{}
	for _, s := range got.States {
		digests[s.State] = s
	}
	for _, w := range want.States {
		g, ok := digests[w.State]
		if !ok || g != w {
			return diff("state "+w.State, fmt.Sprintf("%d writes, digest %016x", w.Writes, w.Digest), fmt.Sprintf("%d writes, digest %016x", g.Writes, g.Digest))
		}
		delete(digests, w.State)
	}
	for _, s := range got.States {
		if _, extra := digests[s.State]; extra {
			return diff("state "+s.State, "no write", fmt.Sprintf("%d writes", s.Writes))
		}
	}
	if got.Counts != want.Counts {
		return diff("counts", fmt.Sprintf("%+v", want.Counts), fmt.Sprintf("%+v", got.Counts))
	}
	if chain := chainOf(x.chain, got); chain != want.Chain {
		return diff("chain", fmt.Sprintf("%016x", want.Chain), fmt.Sprintf("%016x", chain))
	}
	return nil
}
