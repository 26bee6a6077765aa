package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
)

func (a *app) queryCommand() *cobra.Command {
	var data, format string
	var at atFlags
	var call callFlags
	cmd := &cobra.Command{
		Use:   "query FILE STATE [KEY...] | query FILE --call NAME [ARGUMENT...]",
		Short: "Print the rows of a state at a committed txid, or the answer to a query",
		Long: "query prints the rows of a state in key order, all as of one committed txid: from the running daemon if there is\n" +
			"one, otherwise from the data directory. Each KEY is the value of one key column, in order; rows whose key begins\n" +
			"with them are printed. A state describes itself: with --data DIR the file may be left out.\n\n" +
			"With --call it prints the answer to a query that the pipeline declares, over the states as of one committed txid. Each\n" +
			"ARGUMENT is NAME=VALUE, or the value of the first argument that has none yet.",
		Example: "  tridentd query flights.yaml by_carrier\n  tridentd query flights.yaml daily 2013-01-01T00:00:00Z EWR --format json\n  tridentd query --data tridentd-data by_carrier UA\n  reach query reach --call reach page=/a --at-least 1234",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			p := newStatePrinter(format, a.out)
			if call.name != "" {
				if err := a.queryCall(cmd.Context(), args, data, &call, &at, p); err != nil {
					return queryError(err)
				}
				return p.end()
			}
			if call.atLeast > 0 {
				return usagef("--at-least goes with --call")
			}
			if at.set() {
				if err := a.queryPast(cmd.Context(), args, data, &at, p); err != nil {
					return queryError(err)
				}
				return p.end()
			}
			dir, rest, err := a.dataDir(args, data)
			if err != nil {
				return err
			}
			if len(rest) == 0 {
				return usagef("name the state to print")
			}
			if err := queryDir(cmd.Context(), dir, rest[0], rest[1:], p); err != nil {
				return queryError(err)
			}
			return p.end()
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	at.add(cmd)
	cmd.Flags().StringVar(&call.name, "call", "", "answer this query of the pipeline")
	cmd.Flags().Uint64Var(&call.atLeast, "at-least", 0, "with --call: wait until this txid has committed")
	cmd.Flags().DurationVar(&call.timeout, "timeout", server.DefaultCallTimeout, "with --call: give up after this time")
	return cmd
}

func queryError(err error) error {
	if batch.KindOf(err) == batch.Permanent && batch.CodeOf(err) == batch.CodeConfiguration {
		return usage(err)
	}
	return err
}

// dataDir finds the data directory that a command is about: by the pipeline, or by --data alone. With --data a first argument
// is a pipeline's file only if it looks like one: a state may be named as some file in the working directory.
func (a *app) dataDir(args []string, data string) (dir string, rest []string, err error) {
	if data != "" && (len(args) == 0 || !namesFile(args[0])) && !a.holds(args) {
		dir, err := onlyPipeline(data)
		return dir, args, err
	}
	t, rest, err := a.resolve(args, data)
	if err != nil {
		return "", nil, err
	}
	return t.dir, rest, nil
}

// namesFile tells whether an argument looks like a pipeline's file, be it there or not.
func namesFile(arg string) bool {
	ext := strings.ToLower(filepath.Ext(arg))
	return ext == ".yaml" || ext == ".yml" || strings.ContainsRune(arg, filepath.Separator) || strings.ContainsRune(arg, '/')
}

// holds tells whether the program's own pipelines answer to the arguments.
func (a *app) holds(args []string) bool {
	for _, p := range a.pipelines {
		if len(a.pipelines) == 1 || len(args) > 0 && p.Name() == args[0] {
			return true
		}
	}
	return false
}

// onlyPipeline is data itself, if it is a pipeline's directory, or the one such directory in it.
func onlyPipeline(data string) (string, error) {
	if pebblestate.Exists(data) {
		return data, nil
	}
	entries, err := os.ReadDir(data)
	if err != nil {
		return "", usagef("--data: %w", err)
	}
	var found []string
	for _, e := range entries {
		// No pipeline's name holds a dot: what does is a copy that was put aside.
		if dir := filepath.Join(data, e.Name()); e.IsDir() && !strings.ContainsRune(e.Name(), '.') && pebblestate.Exists(dir) {
			found = append(found, dir)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", usagef("--data %s: no pipeline's data is in it", data)
	}
	return "", usagef("--data %s: several pipelines' data are in it; name one of %v", data, found)
}

// errStarted says that somebody has begun to work in a directory that was to be read at rest: it can be asked soon.
var errStarted = errors.New("it isn't at rest")

const (
	startPatience = 3 * time.Second // between a daemon's lock and its socket
	startEvery    = 50 * time.Millisecond
)

// askOrRead calls ask for the daemon that works in dir, or read for the directory at rest if there is none.
func askOrRead(ctx context.Context, dir string, ask func(*server.Client) error, read func(*pebblestate.DB) error) error {
	for deadline := time.Now().Add(startPatience); ; {
		err := askOrReadOnce(ctx, dir, ask, read)
		if !errors.Is(err, errStarted) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(startEvery):
		}
	}
}

func askOrReadOnce(ctx context.Context, dir string, ask func(*server.Client) error, read func(*pebblestate.DB) error) error {
	client, err := server.Dial(dir)
	switch {
	case err == nil:
		defer client.Close()
		if err = ask(client); !holdsNoStore(err) {
			return err
		}
	case !errors.Is(err, server.ErrNotRunning):
		return err
	default:
		err = nil
	}
	db, rerr := openAtRest(ctx, dir)
	if rerr != nil {
		if err != nil {
			return err // it does hold it
		}
		return rerr
	}
	defer db.Close() //nolint:errcheck // nothing was written
	return read(db)
}

// holdsNoStore tells whether an answer may be that of a process that only stays up: its pipeline has stopped for good.
func holdsNoStore(err error) bool {
	return err != nil && !errors.Is(err, server.ErrNotFound) && batch.CodeOf(err) == batch.CodeUnavailable
}

func queryDir(ctx context.Context, dir, name string, keys []string, w server.RowWriter) error {
	return askOrRead(ctx, dir, func(c *server.Client) error {
		return c.Query(ctx, name, keys, w)
	}, func(db *pebblestate.DB) error {
		snap, err := db.Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close() //nolint:errcheck // nothing was written
		return querySnapshot(ctx, snap, name, keys, w)
	})
}

func querySnapshot(ctx context.Context, snap *pebblestate.Snapshot, name string, keys []string, w server.RowWriter) error {
	schema, err := query.Schema(snap, name)
	if err != nil {
		return err
	}
	if _, err := query.Prefixes(schema, keys); err != nil {
		return err
	}
	if err := w.Begin(snap.Txid(), query.Columns(schema)); err != nil {
		return err
	}
	return query.Rows(ctx, snap, schema, keys, func(row []value.Value) error { return w.Row(row) })
}

// openAtRest opens a store for reading. If a daemon begins to work on it just then, that is errStarted.
func openAtRest(ctx context.Context, dir string) (*pebblestate.DB, error) {
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: dir, ReadOnly: true})
	switch {
	case errors.Is(err, pebblestate.ErrNotExist):
		return nil, usagef("%s holds no data: the pipeline hasn't run with this --data", dir)
	case batch.CodeOf(err) == batch.CodeStoreInUse:
		return nil, fmt.Errorf("%w: %w", errStarted, err)
	}
	return db, err
}
