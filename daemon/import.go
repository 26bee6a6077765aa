package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/migrate/storm"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// importFlags are the settings of offsets import and state import.
type importFlags struct {
	data, format string
	origin       originFlags
	source       string
	topics       []string
	skipGone     bool
	states       []string // offsets import: NAME=FILE
	stateFormat  string
	yes          bool
	timeout      time.Duration
}

func (f *importFlags) add(cmd *cobra.Command) {
	dataFlag(cmd, &f.data)
	formatFlag(cmd, &f.format)
	timeoutFlag(cmd, &f.timeout)
	f.origin.add(cmd)
	cmd.Flags().StringVar(&f.source, "source", "", "only into this source")
	cmd.Flags().StringSliceVar(&f.topics, "topic", nil, "only what the origin knows of these topics; the others begin where the source's start says")
	cmd.Flags().BoolVar(&f.skipGone, "skip-gone", false, "where records are gone that were to be processed next, begin at the first that is there")
	cmd.Flags().StringVar(&f.stateFormat, "state-format", storm.Plain.String(), "how values are written: plain, transactional ([txid, value]) or opaque ([txid, current, previous])")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "don't ask")
}

const importOrigins = "Where from:\n" +
	"  storm-zk      what storm-kafka's KafkaSpout left in ZooKeeper: --servers, --zk-path (zkRoot), --spout-id (id)\n" +
	"  trident-zk    what Trident's Kafka spouts left there: --servers, --zk-path (transactional.zookeeper.root), --spout-id (the stream's name)\n" +
	"  storm-client  what storm-kafka-client's KafkaSpout committed to a consumer group: --group\n" +
	"  kafka-group   what any consumer committed to a group: --group\n" +
	"  file          positions as JSON or CSV: --path\n"

func (a *app) offsetsImportCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE --from storm-zk|trident-zk|storm-client|kafka-group|file",
		Short: "Begin where a Storm topology, or another consumer, has come to",
		Long: "import reads where something else has come to, shows that, and begins the pipeline there: its first ledger entry, in one write\n" +
			"with the rows of states that are brought along. It takes a pipeline that has never run, and changes nothing at the origin,\n" +
			"which must be at rest. Partitions that the origin doesn't know begin where the source's start says.\n\n" + importOrigins,
		Example: "  tridentd offsets import words.yaml --from trident-zk --servers zk1:2181,zk2:2181 --spout-id words --state counts=counts.jsonl --state-format opaque\n" +
			"  tridentd offsets import words.yaml --from storm-zk --servers zk1:2181 --zk-path /kafka --spout-id words-spout\n" +
			"  tridentd offsets import words.yaml --from kafka-group --group words-app --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			files := map[string]string{}
			for _, s := range f.states {
				name, path, ok := strings.Cut(s, "=")
				if _, twice := files[name]; !ok || name == "" || path == "" || twice {
					return usagef("--state %q: it is NAME=FILE, once for each state", s)
				}
				files[name] = path
			}
			return a.importInto(cmd.Context(), t, &f, files)
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVar(&f.states, "state", nil, "NAME=FILE: rows that a state begins with, a JSON object a line")
	return cmd
}

func (a *app) stateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Bring rows of a state along",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command state %q; tridentd state --help lists them", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.stateImportCommand())
	return cmd
}

func (a *app) stateImportCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE STATE ROWS --from start|storm-zk|trident-zk|storm-client|kafka-group|file",
		Short: "Begin with rows of a state, and the positions that they belong to",
		Long: "import begins a pipeline that has never run with rows of one state: JSON objects, one a line, with the state's columns as\n" +
			"query shows them. Rows without the positions that they belong to would count records twice or never, so both are imported in one\n" +
			"write: this is offsets import with one state. --from start takes the sources' own start settings for positions.\n\n" + importOrigins,
		Example: "  tridentd state import words.yaml counts counts.jsonl --from trident-zk --servers zk1:2181 --spout-id words --state-format opaque\n" +
			"  tridentd state import words.yaml counts counts.jsonl --from start",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) != 2 {
				return usagef("behind the pipeline: the state, and the file with its rows")
			}
			return a.importInto(cmd.Context(), t, &f, map[string]string{rest[0]: rest[1]})
		},
	}
	f.add(cmd)
	return cmd
}

// importInto looks at everything first, shows it, asks, and then writes once.
func (a *app) importInto(ctx context.Context, t *target, f *importFlags, files map[string]string) error {
	if err := checkFormat(f.format); err != nil {
		return err
	}
	form, err := storm.ParseFormat(f.stateFormat)
	if err != nil {
		return usagef("--state-format %w", err)
	}
	if err := f.origin.check(len(files) > 0); err != nil {
		return err
	}
	if f.origin.from == fromStart && len(f.topics) > 0 {
		return usagef("--topic has no meaning with --from start: every topic begins where its source's start says")
	}
	pl, err := t.pipeline.Plan()
	if err != nil {
		return usage(err)
	}
	st, err := stands(ctx, t)
	if err != nil {
		return err
	}
	if err := refuseBegun(t, &st); err != nil {
		return err
	}
	if err := pebblestate.CheckAside(t.dir); err != nil {
		return err
	}
	left, moves, err := f.plan(ctx, pl, &st)
	if err != nil {
		return queryError(err)
	}
	states, err := importedStates(pl, files, form, left.Current)
	if err != nil {
		return err
	}
	if err := a.printImport(moves, states, f.format); err != nil {
		return err
	}
	if err := a.confirm(f.yes, "Begin there?"); err != nil {
		return err
	}
	e, err := applyImport(ctx, t, f.origin.text(), moves, states)
	if err != nil {
		return queryError(err)
	}
	fmt.Fprintf(a.err, "imported as txid %d; the next run goes on from there\n", e.Txid)
	return nil
}

// refuseBegun is the answer to whoever would import into a pipeline that has positions of its own.
func refuseBegun(t *target, st *standing) error {
	switch name := t.pipeline.Name(); {
	case st.running:
		return fmt.Errorf("pipeline %s is running: an import begins a pipeline that has never run", name)
	case st.txid > 0 || len(st.positions) > 0:
		return usagef("pipeline %s has begun: %s is at txid %d. Import into another --data; or set its positions by offsets reset; or remove %s, if what it holds isn't wanted",
			name, t.dir, st.txid, t.dir)
	}
	return nil
}

// importMove is where one partition is to begin.
type importMove struct {
	survey *emitter.Survey
	found  *storm.Position // nil: the origin doesn't know it
	from   int64
	to     int64
}

// plan asks the origin and the sources, and works out where each partition begins. Nothing is written.
func (f *importFlags) plan(ctx context.Context, pl *plan.Plan, st *standing) (*storm.Left, []importMove, error) {
	ctx, cancel := within(ctx, f.timeout)
	defer cancel()
	asked := &plan.Plan{Name: pl.Name, Keeper: pl.Keeper}
	for _, s := range pl.Sources {
		if f.source == "" || s.ID == f.source {
			asked.Sources = append(asked.Sources, s)
		}
	}
	if len(asked.Sources) == 0 {
		return nil, nil, usagef("--source %s: the pipeline has no such source", f.source)
	}
	if err := refuseCarried(ctx, asked); err != nil {
		return nil, nil, err
	}
	left, err := f.origin.read(ctx, asked)
	if err != nil {
		return nil, nil, err
	}
	if len(f.topics) > 0 {
		left.Positions = slices.DeleteFunc(left.Positions, func(p storm.Position) bool { return !slices.Contains(f.topics, p.Topic) })
	}
	if len(left.Positions) == 0 && f.origin.from != fromStart {
		return nil, nil, usagef("%s knows no topic of --topic %s", f.origin.text(), strings.Join(f.topics, ","))
	}
	all := survey(ctx, asked, st, emitter.SurveyQuery{}, hclog.NewNullLogger())
	moves, err := f.match(left, all)
	return left, moves, err
}

// refuseCarried doesn't believe an empty data directory where a group or ZooKeeper holds this pipeline's own txid: what
// was begun then would lie behind what they hold.
func refuseCarried(ctx context.Context, pl *plan.Plan) error {
	var makers []func(plan.Env) (txstate.Mirror, error)
	for _, s := range pl.Sources {
		makers = append(makers, s.Mirror)
	}
	if pl.Keeper != nil {
		makers = append(makers, pl.Keeper.Record)
	}
	for _, open := range makers {
		if open == nil {
			continue
		}
		m, err := open(plan.Env{Logger: hclog.NewNullLogger()})
		if err != nil || m == nil {
			return err
		}
		var carried []txstate.Carried
		err = patiently(ctx, func() (err error) {
			carried, err = m.Carried(ctx)
			return err
		})
		name := m.Name()
		if cerr := closeMirror(ctx, m); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		var txid batch.Txid
		for _, c := range carried {
			txid = max(txid, c.Txid)
		}
		if txid > 0 {
			return batch.NewError(batch.Permanent, batch.CodeStoreMissing, "import",
				fmt.Errorf("the data directory is empty, but %s holds txid %d of pipeline %s: it has run before", name, txid, pl.Name),
				"name the right --data; or, if the pipeline is to begin anew, remove what is held there first, or give the pipeline another name or group")
		}
	}
	return nil
}

// match brings together what the origin knows and what the sources hold. A source that is given a position has begun: its
// partitions without one would be taken for new, and read from their beginning. So each of its partitions is given one, also those
// of topics that aren't wanted from the origin.
func (f *importFlags) match(left *storm.Left, all []surveyed) ([]importMove, error) {
	type place struct {
		topic     string
		partition int32
	}
	found := map[place]*storm.Position{}
	taken := map[place]batch.Partition{}
	for i := range left.Positions {
		p := &left.Positions[i]
		found[place{p.Topic, p.Partition}] = p
	}
	var moves []importMove
	var errs []error
	for i := range all {
		s := &all[i]
		if s.err != nil {
			errs = append(errs, s.err)
			continue
		}
		var mine []importMove
		known := f.origin.from == fromStart
		for j := range s.parts {
			sv := &s.parts[j]
			at := place{sv.Topic, sv.Number}
			m := importMove{survey: sv, found: found[at], from: sv.Begin}
			if m.found != nil {
				known, m.from = true, m.found.Next
				if other, ok := taken[at]; ok {
					errs = append(errs, usagef("sources %s and %s both read %s-%d: choose one with --source", other.Source, sv.Source, sv.Topic, sv.Number))
				}
				taken[at] = sv.Partition
			}
			mine = append(mine, m)
		}
		if !known {
			continue // the origin knows nothing of this source: it begins by itself
		}
		for _, m := range mine {
			if err := m.settle(f.skipGone); err != nil {
				errs = append(errs, err)
			}
			moves = append(moves, m)
		}
	}
	if len(errs) > 0 {
		return nil, few(errs)
	}
	for i := range left.Positions {
		p := &left.Positions[i]
		if _, ok := taken[place{p.Topic, p.Partition}]; !ok {
			errs = append(errs, batch.NewError(batch.Permanent, batch.CodeConfiguration, "import",
				fmt.Errorf("%s is about %s-%d, which no source of the pipeline reads", p.From, p.Topic, p.Partition),
				"name the pipeline's topics with --topic, if the others aren't wanted; or correct the pipeline's sources"))
		}
	}
	slices.SortFunc(moves, func(a, b importMove) int { return a.survey.Compare(b.survey.Partition) })
	return moves, few(errs)
}

// settle checks that a partition can begin where it is to.
func (m *importMove) settle(skipGone bool) error {
	s := m.survey
	if s.Err != nil {
		return s.Err
	}
	m.to = m.from
	refuse := func(remedy, format string, args ...any) error {
		return batch.NewError(batch.Permanent, batch.CodeOutOfRange, "import", fmt.Errorf(format, args...), remedy).At(s.Partition, m.from)
	}
	switch {
	case m.from < s.Start && !skipGone:
		return refuse("begin at the first that is there with --skip-gone: the others are never processed",
			"%s were to be processed next and are gone: what is there begins at %d", records(s.Start-m.from), s.Start)
	case m.from < s.Start:
		m.to = s.Start
	case s.LogEnd >= 0 && m.from > s.LogEnd:
		return refuse("check that this is the cluster, and the topic, that the topology read", "it lies beyond the end, %d", s.LogEnd)
	}
	return nil
}

var importColumns = []state.Column{
	{Name: "source", Type: "string"},
	{Name: "topic", Type: "string"},
	{Name: "partition", Type: "int"},
	{Name: "next", Type: "int"},
	{Name: "to_read", Type: "int"},
	{Name: "txid", Type: "int"},
	{Name: "topology", Type: "string"},
	{Name: "found", Type: "string"},
	{Name: "note", Type: "string"},
}

func (a *app) printImport(moves []importMove, states []engine.ImportedState, format string) error {
	p := newPrinter(format, a.out)
	if err := p.Begin(0, importColumns); err != nil {
		return err
	}
	for i := range moves {
		m := &moves[i]
		found, note := "the source's own start", ""
		toRead, txid, topology := value.NullValue(), value.NullValue(), value.NullValue()
		if m.survey.LogEnd >= 0 {
			toRead = value.IntOf(m.survey.LogEnd - m.to)
		}
		if p := m.found; p != nil {
			found, note = p.From, ""
			if p.Txid > 0 {
				txid = value.IntOf(p.Txid)
			}
			if p.Topology != "" {
				topology = value.StringOf(p.Topology)
			}
		}
		if m.to > m.from {
			note = records(m.to-m.from) + " are gone and skipped"
		}
		err := p.Row([]value.Value{
			value.StringOf(m.survey.Source), value.StringOf(m.survey.Topic), value.IntOf(int64(m.survey.Number)), value.IntOf(m.to), toRead,
			txid, topology, value.StringOf(found), value.StringOf(note),
		})
		if err != nil {
			return err
		}
	}
	if err := p.end(); err != nil {
		return err
	}
	for _, s := range states {
		fmt.Fprintf(a.err, "state %s begins with %s rows\n", s.Schema.Name, grouped(int64(len(s.Rows))))
	}
	return nil
}

// applyImport makes the store, unless somebody else has meanwhile, and writes to it once.
func applyImport(ctx context.Context, t *target, from string, moves []importMove, states []engine.ImportedState) (e txstate.Entry, err error) {
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: t.dir, Pipeline: t.pipeline.Name(), Shards: plan.DefaultShards, CreateIfMissing: true})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	in := engine.Import{From: from, States: states}
	for _, m := range moves {
		in.Moves = append(in.Moves, engine.Move{
			Position: batch.Position{Partition: m.survey.Partition, Next: m.to, Identity: m.survey.Identity, LeaderEpoch: batch.NoEpoch},
			From:     m.from,
		})
	}
	return engine.ImportInto(ctx, t.pipeline, db, in)
}
