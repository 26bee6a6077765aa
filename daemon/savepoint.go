package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
)

func (a *app) savepointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "savepoint",
		Short: "Keep copies of a pipeline's store, and go back to them",
		Long: "A savepoint is a whole copy of a pipeline's store (states, positions and ledger) as of one committed txid, with a checksum\n" +
			"of each file. It is made while the pipeline runs, without a stop.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; tridentd savepoint --help lists them", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.savepointCreate(), a.savepointList(), a.savepointVerify(), a.savepointRestore(), a.savepointRemove(), a.savepointExport(), a.savepointImport())
	return cmd
}

// savepointFlags are those that all of them have.
type savepointFlags struct{ data, place string }

func (f *savepointFlags) add(cmd *cobra.Command) {
	dataFlag(cmd, &f.data)
	cmd.Flags().StringVar(&f.place, "place", "", "directory that holds savepoints (default: savepoints beside the pipelines' data directories)")
}

// at finds the pipeline, its savepoints, and the arguments behind the pipeline's: at least min and at most max of them.
func (a *app) at(f *savepointFlags, args []string, least, most int, what string) (*target, savepoint.Place, []string, error) {
	t, rest, err := a.resolve(args, f.data)
	if err != nil {
		return nil, savepoint.Place{}, nil, err
	}
	if len(rest) < least || len(rest) > most {
		return nil, savepoint.Place{}, nil, usagef("behind the pipeline: %s", what)
	}
	root := f.place
	if root == "" {
		root = filepath.Join(t.root, "savepoints")
	}
	return t, savepoint.At(root, t.pipeline.Name()), rest, nil
}

// savepointError gives an error of a savepoint its exit code.
func savepointError(err error) error { return queryError(err) }

var savepointColumns = []state.Column{
	{Name: "name", Type: "string"},
	{Name: "txid", Type: "int"},
	{Name: "created", Type: "timestamp"},
	{Name: "bytes", Type: "int"},
	{Name: "chain", Type: "string"},
}

func savepointRow(i *savepoint.Info) []value.Value {
	return []value.Value{
		value.StringOf(i.Name), value.IntOf(int64(i.Txid)), value.TimeOf(i.Created.UnixNano()), value.IntOf(i.Bytes), value.StringOf(i.Chain),
	}
}

func (a *app) printSavepoints(format string, all ...savepoint.Info) error {
	p := newPrinter(format, a.out)
	if err := p.Begin(0, savepointColumns); err != nil {
		return err
	}
	for i := range all {
		if err := p.Row(savepointRow(&all[i])); err != nil {
			return err
		}
	}
	return p.end()
}

func (a *app) savepointCreate() *cobra.Command {
	var f savepointFlags
	var name, format string
	cmd := &cobra.Command{
		Use:     "create FILE",
		Short:   "Make a savepoint, of the running pipeline or at rest",
		Example: "  tridentd savepoint create orders.yaml\n  tridentd savepoint create orders.yaml --name before-upgrade --place /mnt/backup",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			t, place, _, err := a.at(&f, args, 0, 0, "no further argument; --name names the savepoint")
			if err != nil {
				return err
			}
			whole, err := filepath.Abs(t.dir)
			if err != nil {
				return err
			}
			info, err := place.Create(cmd.Context(), name, whole, time.Now(), func(ctx context.Context, dir string) error {
				return checkpoint(ctx, t, dir)
			})
			if err != nil {
				if errors.Is(err, os.ErrNotExist) && !pebblestate.Exists(t.dir) {
					return usagef("%s holds no data: the pipeline hasn't run with this --data", t.dir)
				}
				return savepointError(err)
			}
			return a.printSavepoints(format, info)
		},
	}
	f.add(cmd)
	formatFlag(cmd, &format)
	cmd.Flags().StringVar(&name, "name", "", "its name (default: txid-<txid>)")
	return cmd
}

// checkpoint copies a pipeline's store to a directory, by the daemon that works on it or at rest.
func checkpoint(ctx context.Context, t *target, to string) error {
	client, err := server.Dial(t.dir)
	if err == nil {
		defer client.Close()
		_, err := client.Checkpoint(ctx, to)
		return err
	}
	if !errors.Is(err, server.ErrNotRunning) {
		return err
	}
	// A store that is only read can't be copied: what its logs hold must be in tables first.
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: t.dir, Pipeline: t.pipeline.Name()})
	if err != nil {
		return err
	}
	_, err = db.Checkpoint(ctx, to)
	return errors.Join(err, db.Close())
}

func (a *app) savepointList() *cobra.Command {
	var f savepointFlags
	var format string
	cmd := &cobra.Command{
		Use:   "list FILE",
		Short: "List the savepoints, the oldest first",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			_, place, _, err := a.at(&f, args, 0, 0, "no further argument")
			if err != nil {
				return err
			}
			all, err := place.List()
			return errors.Join(a.printSavepoints(format, all...), savepointError(err))
		},
	}
	f.add(cmd)
	formatFlag(cmd, &format)
	return cmd
}

func (a *app) savepointVerify() *cobra.Command {
	var f savepointFlags
	cmd := &cobra.Command{
		Use:   "verify FILE NAME",
		Short: "Read every byte of a savepoint and compare it with its checksums",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, place, rest, err := a.at(&f, args, 1, 1, "the savepoint's name")
			if err != nil {
				return err
			}
			info, err := place.Verify(cmd.Context(), rest[0])
			if err != nil {
				return savepointError(err)
			}
			fmt.Fprintf(a.out, "%s: txid %d, %d files, %s bytes: whole\n", info.Name, info.Txid, len(info.Files), grouped(info.Bytes))
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) savepointRemove() *cobra.Command {
	var f savepointFlags
	cmd := &cobra.Command{
		Use:   "remove FILE NAME",
		Short: "Delete a savepoint",
		RunE: func(_ *cobra.Command, args []string) error {
			_, place, rest, err := a.at(&f, args, 1, 1, "the savepoint's name")
			if err != nil {
				return err
			}
			return savepointError(place.Remove(rest[0]))
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) savepointExport() *cobra.Command {
	var f savepointFlags
	cmd := &cobra.Command{
		Use:     "export FILE NAME ARCHIVE",
		Short:   "Write a savepoint to one file (tar, zstd), to be taken elsewhere",
		Example: "  tridentd savepoint export orders.yaml before-upgrade orders.tar.zst",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			_, place, rest, err := a.at(&f, args, 2, 2, "the savepoint's name and the file to write")
			if err != nil {
				return err
			}
			tmp := rest[1] + ".partial"
			out, err := os.Create(tmp)
			if err != nil {
				return usage(err)
			}
			defer func() {
				if err != nil {
					err = errors.Join(err, os.Remove(tmp))
				}
			}()
			info, err := place.Export(cmd.Context(), rest[0], out)
			if err == nil {
				err = out.Sync()
			}
			if err = errors.Join(err, out.Close()); err != nil {
				return savepointError(err)
			}
			if err := os.Rename(tmp, rest[1]); err != nil {
				return err
			}
			fmt.Fprintf(a.err, "%s: txid %d, %s bytes\n", rest[1], info.Txid, grouped(info.Bytes))
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) savepointImport() *cobra.Command {
	var f savepointFlags
	var format string
	cmd := &cobra.Command{
		Use:   "import FILE ARCHIVE",
		Short: "Make a savepoint of a file that export has written",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			_, place, rest, err := a.at(&f, args, 1, 1, "the file to read")
			if err != nil {
				return err
			}
			in, err := os.Open(rest[0])
			if err != nil {
				return usage(err)
			}
			defer in.Close() //nolint:errcheck // it was only read
			info, err := place.Import(cmd.Context(), in, rest[0])
			if err != nil {
				return savepointError(err)
			}
			return a.printSavepoints(format, info)
		},
	}
	f.add(cmd)
	formatFlag(cmd, &format)
	return cmd
}

func (a *app) savepointRestore() *cobra.Command {
	var f savepointFlags
	var replace bool
	var to uint64
	cmd := &cobra.Command{
		Use:   "restore FILE NAME",
		Short: "Make a savepoint the pipeline's data directory",
		Long: "restore makes the copy that a savepoint holds the pipeline's data directory; run goes on from there. A directory that is\n" +
			"there already is moved aside with --replace. With --to-txid the batches behind the savepoint, up to that txid, are run\n" +
			"again from the ledger of the directory that is replaced, and compared with it.",
		Example: "  tridentd savepoint restore orders.yaml before-upgrade --replace\n  tridentd savepoint restore orders.yaml before-upgrade --replace --to-txid 1234",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, place, rest, err := a.at(&f, args, 1, 1, "the savepoint's name")
			if err != nil {
				return err
			}
			return a.restore(cmd.Context(), t, place, rest[0], batch.Txid(to), replace)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&replace, "replace", false, "move the present data directory aside")
	cmd.Flags().Uint64Var(&to, "to-txid", 0, "run the batches behind the savepoint again, up to this one")
	return cmd
}

// restore makes a savepoint the data directory of t.
func (a *app) restore(ctx context.Context, t *target, place savepoint.Place, name string, to batch.Txid, replace bool) error {
	if client, err := server.Dial(t.dir); err == nil {
		client.Close()
		return usagef("a daemon works in %s: stop it first", t.dir)
	}
	there := pebblestate.Exists(t.dir)
	switch {
	case there && !replace:
		return usagef("%s holds the pipeline's data: --replace moves it aside", t.dir)
	case to != 0 && !there:
		return usagef("--to-txid %d needs the ledger behind the savepoint, and %s holds none", to, t.dir)
	}
	tmp := t.dir + ".restoring"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	info, err := place.Restore(ctx, name, tmp)
	if err != nil {
		return savepointError(err)
	}
	at := info.Txid
	if there {
		if to != 0 {
			if err := a.forward(ctx, t, tmp, info.Txid, to); err != nil {
				return errors.Join(err, os.RemoveAll(tmp))
			}
			at = to
		}
		if err := raiseEpoch(ctx, t, tmp); err != nil {
			return errors.Join(err, os.RemoveAll(tmp))
		}
		aside := fmt.Sprintf("%s.replaced-%s", t.dir, time.Now().UTC().Format("20060102T150405.000"))
		if err := os.Rename(t.dir, aside); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%s is kept as %s\n", t.dir, aside)
	}
	if err := os.Rename(tmp, t.dir); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s holds the pipeline as of txid %d\n", t.dir, at)
	return nil
}

// forward runs the batches behind a restored store again, from the ledger of the present one.
func (a *app) forward(ctx context.Context, t *target, dir string, from, to batch.Txid) error {
	if to < from {
		return usagef("--to-txid %d lies before the savepoint, which is of txid %d: choose an older one", to, from)
	}
	db, err := openAtRest(ctx, t.dir)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	_, err = replay.Verify(ctx, t.pipeline, replay.Options{Store: db, Dir: dir, Base: true, To: to})
	if _, ok := errors.AsType[*replay.Different](err); ok {
		return &exitError{exitDifferent, err}
	}
	return savepointError(err)
}

// raiseEpoch gives a restored store the epoch above the one that it replaces: what the older store has told others must
// not look newer than what the restored one will.
func raiseEpoch(ctx context.Context, t *target, dir string) error {
	old, err := openAtRest(ctx, t.dir)
	if err != nil {
		return nil //nolint:nilerr // a damaged store is what a savepoint is for
	}
	was, err := old.Store().Load(ctx)
	if err := errors.Join(err, old.Close()); err != nil {
		return nil //nolint:nilerr // as above
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, Pipeline: t.pipeline.Name()})
	if err != nil {
		return err
	}
	snap, err := db.Store().Load(ctx)
	if err == nil && was.Epoch > snap.Epoch {
		err = db.Store().Claim(ctx, was.Epoch)
	}
	return errors.Join(err, db.Close())
}
