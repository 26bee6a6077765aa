package exec

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Difference is a batch that didn't come out as its ledger entry says.
type Difference struct {
	Txid batch.Txid
	What string // "state <name>", "counts", …
	Want string
	Got  string
	// Keys are the first writes that differ, by state and key, where the recorded ones had been kept.
	Keys []KeyDifference
	// Kept says that the batch came out as its entry says: only the changes kept beside it differ.
	Kept bool
}

func (d *Difference) Error() string {
	return fmt.Sprintf("txid %d: %s differs: recorded %s, now %s", d.Txid, d.What, d.Want, d.Got)
}

// Drive runs the batches of entries, which follow the last committed one, over their recorded ranges, with so
// many in flight. Where an entry carries digests (its Chain isn't zero), the batch must come out equal: the first
// that doesn't is returned as a *Difference, and nothing of it is committed. It stands in for the coordinator
// where the order of everything is known beforehand: replay, and tests.
func (x *Executor) Drive(ctx context.Context, entries []txstate.Entry, pending int) error {
	_, err := x.DriveWith(ctx, func(yield func(txstate.Entry, error) bool) {
		for i := range entries {
			if !yield(entries[i], nil) {
				return
			}
		}
	}, DriveOptions{Pending: pending})
	return err
}

// DriveOptions are the settings of DriveWith.
type DriveOptions struct {
	Pending int
	// From is the first batch whose outcome must be as recorded. That of those before is compared, too, and told; the input of
	// all must be.
	From batch.Txid
	// Kept returns what a batch had written, if that was kept, as pebblestate.DB.Changes does; nil if nothing was.
	Kept func(ctx context.Context, txid batch.Txid) ([]*state.WriteSet, bool, error)
}

// DriveWith is Drive with other settings. It takes each entry when its batch is to begin, and keeps it until that has committed. It
// also returns the first batch below o.From that didn't come out as recorded.
func (x *Executor) DriveWith(ctx context.Context, entries iter.Seq2[txstate.Entry, error], o DriveOptions) (before *Difference, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type running struct {
		b    *batch.Batch
		e    *txstate.Entry
		was  uint64 // the recorded chain of the entry before; 0 where there is none
		done chan error
		kept *Difference // set once done has been sent to
	}
	var flying []*running
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
	// chain is what a batch is chained to: the recorded chain, so that a difference shows in the batch where it arises.
	chain := func(was uint64) uint64 {
		if was != 0 {
			return was
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.chain
	}
	// differs takes the outcome of a batch and tells whether it ends the drive.
	differs := func(e *txstate.Entry, d *Difference) bool {
		if d == nil || e.Txid >= o.From {
			return d != nil
		}
		if before == nil {
			before = d
		}
		return false
	}
	commit := func() error {
		r := flying[0]
		if err := <-r.done; err != nil {
			r.done <- err
			return drop(err)
		}
		e := r.e
		d := x.difference(r.b, e, chain(r.was))
		switch {
		case d != nil && r.kept != nil:
			d.Keys = r.kept.Keys
		case d == nil && before == nil: // else the values are made of others
			d = r.kept
		}
		if differs(e, d) {
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
	var last uint64
	for entry, err := range entries {
		if err != nil {
			return before, drop(err)
		}
		e, was := &entry, last
		last = e.Chain
		if len(flying) == max(o.Pending, 1) {
			if err := commit(); err != nil {
				return before, err
			}
		}
		if e.Reset {
			for len(flying) > 0 {
				if err := commit(); err != nil {
					return before, err
				}
			}
			d, err := x.redo(ctx, e, chain(was), e.Txid >= o.From)
			if err != nil {
				return before, err
			}
			if differs(e, d) {
				return before, d
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
			return before, drop(err)
		}
		r := &running{b: b, e: e, was: was, done: make(chan error, 1)}
		flying = append(flying, r)
		go func() {
			err := x.Process(ctx, b)
			if err == nil && o.Kept != nil {
				r.kept, err = x.compareKept(ctx, b, o.Kept)
			}
			r.done <- err
		}()
	}
	for len(flying) > 0 {
		if err := commit(); err != nil {
			return before, err
		}
	}
	return before, nil
}

// difference compares what a processed batch came to with its ledger entry, which follows one with the given chain.
func (x *Executor) difference(b *batch.Batch, want *txstate.Entry, before uint64) *Difference {
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
	// An entry of a build that didn't list them has them in the digest of the state _sinks alone.
	if len(want.Sinks) > 0 || !slices.ContainsFunc(want.States, func(s txstate.StateDigest) bool { return s.State == SinksState }) {
		if name, w, g, ok := differentSink(want.Sinks, got.Sinks); ok {
			return diff("sink "+name, w, g)
		}
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
	if want.Counts.Filtered == txstate.Uncounted {
		got.Counts.Filtered = txstate.Uncounted
	}
	if got.Counts != want.Counts {
		return diff("counts", fmt.Sprintf("%+v", want.Counts), fmt.Sprintf("%+v", got.Counts))
	}
	if chain := chainOf(before, got); chain != want.Chain {
		return diff("chain", fmt.Sprintf("%016x", want.Chain), fmt.Sprintf("%016x", chain))
	}
	return nil
}

// differentSink finds the first sink, by name, that was given something else than recorded.
func differentSink(want, got []txstate.SinkDigest) (name, wantText, gotText string, ok bool) {
	text := func(s *txstate.SinkDigest) string { return fmt.Sprintf("%d records, digest %016x", s.Records, s.Chain) }
	const nothing = "no record"
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(got) == 0 || len(want) > 0 && want[0].Sink < got[0].Sink:
			return want[0].Sink, text(&want[0]), nothing, true
		case len(want) == 0 || got[0].Sink < want[0].Sink:
			return got[0].Sink, nothing, text(&got[0]), true
		case want[0] != got[0]:
			return want[0].Sink, text(&want[0]), text(&got[0]), true
		}
		want, got = want[1:], got[1:]
	}
	return "", "", "", false
}
