package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/txstate"
)

func (a *app) offsetsExportCommand() *cobra.Command {
	var data, to, source string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "export FILE --to group[:NAME]|zookeeper|file:PATH",
		Short: "Write what has committed to a consumer group, ZooKeeper or a file, on purpose",
		Long: "export writes the committed positions over whatever is there, also backwards: so that another consumer can take over, or a\n" +
			"group or ZooKeeper that went wrong matches the store again. Where the running pipeline itself writes, it is refused.\n" +
			"file:- is standard output.",
		Example: "  tridentd offsets export flights.yaml --to group:flights-app\n  tridentd offsets export flights.yaml --to file:positions.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, place, _ := strings.Cut(to, ":")
			switch {
			case to == "":
				return usagef("say where to: --to group, group:NAME, zookeeper or file:PATH")
			case kind != "group" && to != "zookeeper" && (kind != "file" || place == ""):
				return usagef("--to %q: it is group, group:NAME, zookeeper or file:PATH", to)
			}
			ctx, cancel := within(cmd.Context(), timeout)
			defer cancel()
			t, pl, st, err := a.placed(ctx, args, data)
			if err != nil {
				return err
			}
			if len(st.positions) == 0 {
				return usagef("%s holds no positions: the pipeline hasn't run with this --data", t.dir)
			}
			switch kind {
			case "group":
				return a.exportGroup(ctx, pl, &st, place, source)
			case "zookeeper":
				return a.exportKeeper(ctx, t, pl, &st)
			}
			return a.exportFile(pl, &st, place)
		},
	}
	dataFlag(cmd, &data)
	timeoutFlag(cmd, &timeout)
	cmd.Flags().StringVar(&source, "source", "", "to a group: only this source")
	cmd.Flags().StringVar(&to, "to", "", "group (the pipeline's own), group:NAME, zookeeper or file:PATH")
	return cmd
}

func errExportRunning(pl *plan.Plan, what string) error {
	return fmt.Errorf("pipeline %s is running and keeps %s itself: stop it, then export", pl.Name, what)
}

// exportGroup writes the positions of the sources that read Kafka to a group: the named one, or their own.
func (a *app) exportGroup(ctx context.Context, pl *plan.Plan, st *standing, group, source string) error {
	if source == "" && group != "" {
		if err := oneReader(st, group); err != nil {
			return err
		}
	}
	env := plan.Env{Logger: hclog.NewNullLogger()}
	var kept []string // the groups that the running pipeline writes, whichever source they are of
	if st.running {
		var err error
		if kept, err = ownGroups(ctx, pl, env); err != nil {
			return err
		}
	}
	done := 0
	for _, s := range pl.Sources {
		if s.Exporter == nil || source != "" && s.ID != source {
			continue
		}
		m, err := s.Exporter(env, group)
		if err != nil {
			return err
		}
		if name := groupOf(m, s); slices.Contains(kept, name) {
			return errors.Join(errExportRunning(pl, name), closeMirror(ctx, m))
		}
		if err := a.export(ctx, m, st, st.of(s.ID, false)); err != nil {
			return err
		}
		done++
	}
	if done == 0 {
		return usagef("pipeline %s has no such source that reads Kafka: there is nothing for a consumer group", pl.Name)
	}
	return nil
}

// ownGroups are the names of the groups that the sources of a pipeline write.
func ownGroups(ctx context.Context, pl *plan.Plan, env plan.Env) ([]string, error) {
	var names []string
	for _, s := range pl.Sources {
		if s.Mirror == nil {
			continue
		}
		m, err := s.Mirror(env)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		names = append(names, groupOf(m, s))
		if err := closeMirror(ctx, m); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// groupOf is what a mirror of s writes to, whichever source it is of.
func groupOf(m txstate.Mirror, s *plan.Source) string {
	return strings.TrimSuffix(m.Name(), ", source "+s.ID)
}

// oneReader refuses to write two sources' offsets of one topic over each other.
func oneReader(st *standing, group string) error {
	readers := map[string]string{}
	for _, p := range st.positions {
		if other, ok := readers[p.Topic]; ok && other != p.Source && p.Topic != "" {
			return usagef("sources %s and %s both read topic %s: group %s can hold the offsets of one of them; choose it with --source", other, p.Source, p.Topic, group)
		}
		readers[p.Topic] = p.Source
	}
	return nil
}

// exportKeeper writes the whole record, which takes the store itself.
func (a *app) exportKeeper(ctx context.Context, t *target, pl *plan.Plan, st *standing) (err error) {
	if pl.Keeper == nil {
		return usagef("pipeline %s names no ZooKeeper", pl.Name)
	}
	if st.running {
		return errExportRunning(pl, pl.Keeper.Describe)
	}
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: t.dir, Pipeline: pl.Name})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	name, at, err := engine.ExportRecord(ctx, t.pipeline, db, plan.Env{Logger: hclog.NewNullLogger()})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s: %d partitions written, as of txid %d\n", name, len(at.Positions), at.Txid)
	return nil
}

// export writes positions to a mirror, and ends that.
func (a *app) export(ctx context.Context, m txstate.Mirror, st *standing, positions []txstate.SavedPosition) (err error) {
	defer func() { err = errors.Join(err, closeMirror(ctx, m)) }()
	e, ok := m.(txstate.Exporting)
	if !ok {
		return fmt.Errorf("%s can't be written to on purpose", m.Name())
	}
	if err := patiently(ctx, func() error { return e.Export(ctx, st.txid, st.epoch, positions) }); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s: %d partitions written, as of txid %d\n", m.Name(), len(positions), st.txid)
	return nil
}

// exportFile writes the positions as JSON, in place of a file that is there.
func (a *app) exportFile(pl *plan.Plan, st *standing, path string) error {
	ps := server.PositionsOf(pl.Name, &txstate.Snapshot{Txid: st.txid, Epoch: st.epoch, Positions: st.positions})
	ps.Positions = slices.DeleteFunc(ps.Positions, func(p server.Position) bool { return p.Topic == "" })
	b, err := json.MarshalIndent(ps, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if path == "-" {
		_, err := a.out.Write(b)
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	fmt.Fprintf(a.err, "%s: %d partitions written, as of txid %d\n", path, len(ps.Positions), st.txid)
	return nil
}
