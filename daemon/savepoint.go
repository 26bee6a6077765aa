package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
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
	cmd.AddCommand(a.savepointCreate(), a.savepointList(), a.savepointInspect(), a.savepointVerify(), a.savepointRestore(), a.savepointRemove(), a.savepointExport(), a.savepointImport())
	return cmd
}

// savepointFlags are those that all of them have.
type savepointFlags struct{ data, place string }

func (f *savepointFlags) add(cmd *cobra.Command) {
	dataFlag(cmd, &f.data)
	cmd.Flags().StringVar(&f.place, "place", "", "folder, or URL of a bucket, that holds savepoints (default: the pipeline's savepoints.to, or savepoints beside the data directories)")
}

// at passes the pipeline, its savepoints and the arguments behind the pipeline's, at least least and at most most of them, to do.
func (a *app) at(ctx context.Context, f *savepointFlags, args []string, least, most int, what string, do func(t *target, place savepoint.Place, rest []string) error) error {
	t, rest, err := a.resolve(args, f.data)
	if err != nil {
		return err
	}
	if len(rest) < least || len(rest) > most {
		return usagef("behind the pipeline: %s", what)
	}
	place, err := t.savepoints(ctx, f.place)
	if err != nil {
		return savepointError(err)
	}
	defer place.Close() //nolint:errcheck // what was written has been answered
	return do(t, place, rest)
}

// savepointError gives an error of a savepoint its exit code.
func savepointError(err error) error { return queryError(err) }

var savepointColumns = []state.Column{
	{Name: "name", Type: "string"},
	{Name: "txid", Type: "int"},
	{Name: "created", Type: "timestamp"},
	{Name: "bytes", Type: "int"},
	{Name: "chain", Type: "string"},
	{Name: "made", Type: "string"},
}

func savepointRow(i *savepoint.Info) []value.Value {
	return []value.Value{
		value.StringOf(i.Name), value.IntOf(int64(i.Txid)), value.TimeOf(i.Created.UnixNano()), value.IntOf(i.Bytes), value.StringOf(i.Chain), value.StringOf(madeFor(i)),
	}
}

// madeFor names what a savepoint was made for.
func madeFor(i *savepoint.Info) string {
	if i.Made == savepoint.ByHand {
		return "hand"
	}
	return string(i.Made)
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
		Example: "  tridentd savepoint create orders.yaml\n  tridentd savepoint create orders.yaml --name before-upgrade --place /mnt/backup\n  tridentd savepoint create orders.yaml --place 's3://backups/tridentd?region=eu-west-1'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return a.at(cmd.Context(), &f, args, 0, 0, "no further argument; --name names the savepoint", func(t *target, place savepoint.Place, _ []string) error {
				whole, err := filepath.Abs(t.dir)
				if err != nil {
					return err
				}
				if !pebblestate.Exists(t.dir) {
					return usagef("%s holds no data: the pipeline hasn't run with this --data", t.dir)
				}
				info, err := place.Create(cmd.Context(), name, whole, time.Now(), func(ctx context.Context, dir string) error {
					return checkpoint(ctx, t, dir)
				})
				if err != nil {
					return savepointError(err)
				}
				a.sweepPlace(cmd.Context(), place)
				return a.printSavepoints(format, info)
			})
		},
	}
	f.add(cmd)
	formatFlag(cmd, &format)
	cmd.Flags().StringVar(&name, "name", "", "its name (default: txid-<txid>)")
	return cmd
}

// sweepPlace removes what commands that were killed have left in a place.
func (a *app) sweepPlace(ctx context.Context, place savepoint.Place) {
	if err := place.Sweep(ctx, time.Now().Add(-savepoint.LeftBehind)); err != nil {
		fmt.Fprintf(a.err, "what was left of savepoints can't be removed: %v\n", err)
	}
}

// checkpoint copies a pipeline's store to a directory, by the daemon that works on it or at rest.
func checkpoint(ctx context.Context, t *target, to string) error {
	client, err := server.Dial(t.dir)
	if err == nil {
		defer client.Close()
		if _, err := client.Checkpoint(ctx, to); !holdsNoStore(err) {
			return err
		}
	} else if !errors.Is(err, server.ErrNotRunning) {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return a.at(cmd.Context(), &f, args, 0, 0, "no further argument", func(_ *target, place savepoint.Place, _ []string) error {
				all, err := place.List(cmd.Context())
				return errors.Join(a.printSavepoints(format, all...), savepointError(err))
			})
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
			return a.at(cmd.Context(), &f, args, 1, 1, "the savepoint's name", func(_ *target, place savepoint.Place, rest []string) error {
				info, err := place.Verify(cmd.Context(), rest[0])
				if err != nil {
					return savepointError(err)
				}
				fmt.Fprintf(a.out, "%s: txid %d, %d files, %s bytes: whole\n", info.Name, info.Txid, len(info.Files), grouped(info.Bytes))
				return nil
			})
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.at(cmd.Context(), &f, args, 1, 1, "the savepoint's name", func(_ *target, place savepoint.Place, rest []string) error {
				return savepointError(place.Remove(cmd.Context(), rest[0]))
			})
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.at(cmd.Context(), &f, args, 2, 2, "the savepoint's name and the file to write", func(_ *target, place savepoint.Place, rest []string) error {
				return a.exportSavepoint(cmd.Context(), place, rest[0], rest[1])
			})
		},
	}
	f.add(cmd)
	return cmd
}

// exportSavepoint writes an archive, which takes its name once it is whole.
func (a *app) exportSavepoint(ctx context.Context, place savepoint.Place, name, to string) (err error) {
	tmp := to + ".partial"
	out, err := os.Create(tmp)
	if err != nil {
		return usage(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	info, err := place.Export(ctx, name, out)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return savepointError(err)
	}
	if err := os.Rename(tmp, to); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(to)); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s: txid %d, %s bytes\n", to, info.Txid, grouped(info.Bytes))
	return nil
}

func (a *app) savepointImport() *cobra.Command {
	var f savepointFlags
	var name, format string
	cmd := &cobra.Command{
		Use:   "import FILE ARCHIVE",
		Short: "Make a savepoint of a file that export has written",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return a.at(cmd.Context(), &f, args, 1, 1, "the file to read", func(_ *target, place savepoint.Place, rest []string) error {
				in, err := os.Open(rest[0])
				if err != nil {
					return usage(err)
				}
				defer in.Close() //nolint:errcheck // it was only read
				info, err := place.Import(cmd.Context(), in, rest[0], name)
				if err != nil {
					return savepointError(err)
				}
				a.sweepPlace(cmd.Context(), place)
				return a.printSavepoints(format, info)
			})
		},
	}
	f.add(cmd)
	formatFlag(cmd, &format)
	cmd.Flags().StringVar(&name, "name", "", "its name (default: the one that it had)")
	return cmd
}
