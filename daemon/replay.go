package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/scratch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/txstate"
)

// replayFlags are the settings of replay.
type replayFlags struct {
	anyPlan  bool
	data     string
	from, to uint64
	verify   bool
	follow   bool // --until-different
	into     string
	dump     uint64
	format   string
	procs    int
	logLevel string
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Run the recorded batches again, and compare",
		Long: "replay runs the batches of the ledger again, over the same offset ranges, in a store of its own, and compares the input,\n" +
			"what each batch changed, and the final states. It reads a store at rest, or a copy that the running daemon makes in a moment.\n" +
			"With --until-different it then goes on with what the running pipeline commits, until a batch comes out otherwise, the\n" +
			"pipeline ends, or Ctrl-C. With --into the replayed store stays: a data directory with states, offsets and ledger as of\n" +
			"txid --to. With --dump it prints the records that one batch read and what it wrote: from the changes that were kept\n" +
			"(`ledger: {changes: keep}`), or it runs the batches up to it again.\n" +
			"Exit code 3: a batch came out otherwise; 1: the input can't be read again as it was.",
		Example: "  tridentd replay flights.yaml --verify\n  tridentd replay flights.yaml --dump 3 --format json\n" +
			"  tridentd replay flights.yaml --to 3 --into other-data",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			return a.replay(cmd.Context(), t, &f)
		},
	}
	dataFlag(cmd, &f.data)
	cmd.Flags().BoolVar(&f.verify, "verify", false, "compare, and throw the replayed store away")
	cmd.Flags().BoolVar(&f.follow, "until-different", false, "compare, and go on with what the running pipeline commits until a batch differs")
	cmd.Flags().Uint64Var(&f.dump, "dump", 0, "print the input and the writes of this txid")
	cmd.Flags().StringVar(&f.format, "format", formatTable, "of --dump: table, json or csv")
	cmd.Flags().StringVar(&f.into, "into", "", "keep the replayed store: the directory below which the pipeline's data directory is made")
	cmd.Flags().Uint64Var(&f.from, "from", 1, "first txid to compare; those before are run unseen")
	cmd.Flags().Uint64Var(&f.to, "to", 0, "last txid (default: the last committed)")
	cmd.Flags().BoolVar(&f.anyPlan, "any-plan", false, "run what another plan has made, too: the first difference is what the change of the pipeline alters")
	cmd.Flags().IntVar(&f.procs, "procs", 0, "how many partitions and shards are worked on at once (default: GOMAXPROCS); no result depends on it")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "warn", "trace, debug, info, warn or error")
	return cmd
}

func (f *replayFlags) check() error {
	modes := 0
	for _, set := range []bool{f.verify, f.follow, f.into != "", f.dump != 0} {
		if set {
			modes++
		}
	}
	switch {
	case modes != 1:
		return usagef("say what the replay is for: --verify, --until-different, --into DIR, or --dump TXID")
	case f.follow && f.to != 0:
		return usagef("--until-different has no end: leave --to out")
	case f.dump != 0 && (f.from != 1 || f.to != 0):
		return usagef("--dump prints one batch: leave --from and --to out")
	case f.dump == 0 && f.format != formatTable:
		return usagef("--format is for --dump")
	case f.to != 0 && f.to < f.from:
		return usagef("--to %d is below --from %d", f.to, f.from)
	case f.procs < 0:
		return usagef("--procs %d is negative", f.procs)
	case hclog.LevelFromString(f.logLevel) == hclog.NoLevel:
		return usagef("--log-level %q: it is trace, debug, info, warn or error", f.logLevel)
	}
	return checkFormat(f.format)
}

// replay runs the ledger again.
func (a *app) replay(ctx context.Context, t *target, f *replayFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	boundHeap(defaultMemoryLimit())
	switch {
	case f.dump != 0:
		return a.dump(ctx, t, f)
	case f.follow:
		return a.untilDifferent(ctx, t, f)
	}
	return withStore(ctx, t.dir, func(db *pebblestate.DB) error { return a.replayStore(ctx, t, db, f) })
}

func (a *app) replayOptions(f *replayFlags) replay.Options {
	return replay.Options{
		From: batch.Txid(f.from), To: batch.Txid(f.to), Procs: f.procs, AnyPlan: f.anyPlan,
		Logger: hclog.New(&hclog.LoggerOptions{Name: "tridentd", Level: hclog.LevelFromString(f.logLevel), Output: a.err}),
	}
}

func (a *app) replayStore(ctx context.Context, t *target, db *pebblestate.DB, f *replayFlags) (err error) {
	o := a.replayOptions(f)
	o.Store = db
	begun := ""
	o.Savepoint = a.savepointFor(t, db, &begun)
	into := filepath.Join(f.into, t.pipeline.Name())
	if f.into != "" {
		if err := makeDir(f.into); err != nil {
			return usage(err)
		}
		if _, err := os.Lstat(into); err == nil {
			return usagef("%s is there already: choose another directory", into)
		}
		// It takes its name when it is whole and has come out equal.
		dir, remove, err := scratch.Make(f.into, t.pipeline.Name()+".partial-")
		if err != nil {
			return err
		}
		o.Dir = filepath.Join(dir, "store")
		defer func() { err = errors.Join(err, remove()) }()
	}
	seen := newReplayProgress(a.err)
	o.Committed = seen.committed
	rep, err := replay.Verify(ctx, t.pipeline, o)
	seen.stop()
	if err != nil {
		return replayError(err)
	}
	for _, c := range []*replay.PlanChange{rep.Since, rep.Behind} {
		switch {
		case c == nil:
		case rep.From > rep.To:
			fmt.Fprintf(a.err, "%s, and no batch has committed since\n", c)
		default:
			fmt.Fprintf(a.err, "%s: txids %d to %d are those of this pipeline\n", c, rep.From, rep.To)
		}
	}
	if begun != "" {
		fmt.Fprintf(a.err, "the replay began at savepoint %s\n", begun)
	} else if rep.Since == nil && rep.From > max(batch.Txid(f.from), 1) {
		fmt.Fprintf(a.err, "the ledger has been trimmed: the replay began behind txid %d, of which there is a base\n", rep.From-1)
	}
	if rep.Before != nil {
		if f.into != "" {
			return replayError(rep.Before)
		}
		fmt.Fprintf(a.err, "something before txid %d differs: %s\n", rep.From, rep.Before)
	}
	if f.into != "" {
		if err := keepReplayed(ctx, o.Dir, into); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%s holds the pipeline as of txid %d: run it with --data %s\n", into, rep.To, f.into)
	}
	fmt.Fprintln(a.out, replayLine(rep))
	return nil
}

// savepointFor is what restores a savepoint for a replay to begin at, from where t's pipeline has its savepoints. name tells which.
func (a *app) savepointFor(t *target, db *pebblestate.DB, name *string) func(ctx context.Context, from, to batch.Txid, dir string) (bool, error) {
	return func(ctx context.Context, from, to batch.Txid, dir string) (bool, error) {
		place, err := t.savepoints(ctx, "")
		if err != nil {
			fmt.Fprintf(a.err, "savepoints can't be used: %v\n", err)
			return false, nil
		}
		defer place.Close() //nolint:errcheck // it was only read
		all, _ := place.List(ctx)
		slices.SortStableFunc(all, func(a, b savepoint.Info) int { return cmp.Compare(a.Txid, b.Txid) })
		for i := range all {
			if all[i].Txid < from || all[i].Txid > to {
				continue
			}
			ok, err := restoreOurs(ctx, db, place, &all[i], dir)
			if ok {
				*name = fmt.Sprintf("%s, of txid %d", all[i].Name, all[i].Txid)
			}
			if ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
}

// keepReplayed completes a replayed store, and gives it its name, durably.
func keepReplayed(ctx context.Context, dir, to string) error {
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: filepath.Base(to)})
	if err != nil {
		return err
	}
	if err := errors.Join(makeBeginning(ctx, db), db.Close()); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// makeDir makes a directory and what is missing above it, durably.
func makeDir(dir string) error {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(whole); err == nil {
		return nil
	}
	parent := filepath.Dir(whole)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(whole, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// replayError gives a difference the exit code of one.
func replayError(err error) error {
	if _, ok := errors.AsType[*replay.Different](err); ok {
		return &exitError{exitDifferent, err}
	}
	return queryError(err)
}

func replayLine(rep replay.Report) string {
	if rep.Batches == 0 {
		return "0 batches: nothing was run again, and so nothing is proved"
	}
	changes := "changes"
	switch {
	case rep.Kept > 0 && rep.Kept == rep.Batches:
		changes += " (key by key)"
	case rep.Kept > 0:
		changes += fmt.Sprintf(" (of %s batches key by key)", grouped(rep.Kept))
	}
	what := "input and " + changes
	if rep.States {
		what = "input, " + changes + " and final state"
	}
	rate := int64(float64(rep.Records) / max(rep.Took.Seconds(), 1e-3))
	return fmt.Sprintf("%s batches, %s records: %s equal (byte for byte), %s records/s", grouped(rep.Batches), grouped(rep.Records), what, grouped(rate))
}

// replayProgress tells how far a replay has come: in one line that is written over on a terminal, in a plain line now and then
// otherwise.
type replayProgress struct {
	w       io.Writer
	tty     bool
	batches atomic.Int64
	records atomic.Int64
	done    chan struct{}
	ended   chan struct{}
}

func newReplayProgress(w io.Writer) *replayProgress {
	p := &replayProgress{w: w, done: make(chan struct{}), ended: make(chan struct{})}
	if f, ok := w.(*os.File); ok {
		p.tty = isatty.IsTerminal(f.Fd())
	}
	go p.follow()
	return p
}

func (p *replayProgress) committed(e *txstate.Entry) {
	p.batches.Add(1)
	p.records.Add(e.Counts.Read)
}

func (p *replayProgress) follow() {
	defer close(p.ended)
	every := plainEvery
	if p.tty {
		every = redraw
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-p.done:
			if p.tty {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		case <-t.C:
		}
		line := fmt.Sprintf("replayed %s batches, %s records", grouped(p.batches.Load()), grouped(p.records.Load()))
		if p.tty {
			fmt.Fprint(p.w, "\r\x1b[K"+line)
		} else {
			fmt.Fprintln(p.w, line)
		}
	}
}

func (p *replayProgress) stop() {
	close(p.done)
	<-p.ended
}
