package daemon

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/server"
)

// roundEvery is how often a running pipeline is asked for what has committed meanwhile: each time it has a copy made.
const roundEvery = time.Second

// untilDifferent verifies a pipeline, and goes on in the same replayed store with what commits, until a batch differs, no process
// works on the pipeline any more, or a signal comes. Final states are compared once it is at rest.
func (a *app) untilDifferent(ctx context.Context, t *target, f *replayFlags) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, remove, err := scratch.Make("", "tridentd-replay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	seen := newReplayProgress(a.err)
	defer seen.stop()
	o := a.replayOptions(f)
	o.Dir, o.Scratch, o.Committed = filepath.Join(dir, "store"), true, seen.committed
	var total replay.Report
	for {
		live := committedLive(ctx, t.dir)
		o.SkipStates = live != nil
		err := withStore(ctx, t.dir, func(db *pebblestate.DB) error {
			o.Store = db
			begun := ""
			if !o.Base {
				o.Savepoint = a.savepointFor(t, db, &begun)
			}
			rep, err := replay.Verify(ctx, t.pipeline, o)
			if rep.Before != nil && total.Before == nil {
				total.Before = rep.Before
				fmt.Fprintf(a.err, "something before txid %d differs: %s\n", f.from, rep.Before)
			}
			total.Batches, total.Records, total.Took = total.Batches+rep.Batches, total.Records+rep.Records, total.Took+rep.Took
			total.To, total.States, total.Kept = rep.To, rep.States, total.Kept+rep.Kept
			return err
		})
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(a.out, replayLine(total))
			return nil
		case err != nil:
			return replayError(err)
		case live == nil:
			fmt.Fprintln(a.out, replayLine(total))
			return nil
		}
		o.Base = true
		// The next round is worth it once something has committed, or the process has gone.
		for live != nil && *live <= total.To && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(roundEvery):
			}
			live = committedLive(ctx, t.dir)
		}
	}
}

// committedLive is the last txid that the process in dir has committed; nil if none runs the pipeline there.
func committedLive(ctx context.Context, dir string) *batch.Txid {
	client, err := server.Dial(dir)
	if err != nil {
		return nil
	}
	defer client.Close()
	st, err := client.Status(ctx)
	if err != nil || st.Committed == 0 && st.LastError != nil { // it only stays up to tell its failure
		return nil
	}
	return &st.Committed
}
