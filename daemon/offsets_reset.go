package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// resetFlags are the settings of offsets reset.
type resetFlags struct {
	data, format  string
	to            string
	source, topic string
	partition     int32
	yes           bool
	timeout       time.Duration
}

func (a *app) offsetsResetCommand() *cobra.Command {
	var f resetFlags
	cmd := &cobra.Command{
		Use:   "reset FILE --to earliest|latest|TIME|OFFSET",
		Short: "Skip records, or process them again, on purpose",
		Long: "reset sets where a pipeline at rest goes on, and says before, for each partition, what would be skipped or read again. It\n" +
			"changes no state: records that are read again count again. The reset is a ledger entry of its own. It is also the choice\n" +
			"that a pipeline asks for which can't go on, because retention took records, the log was cut back, or the topic was made\n" +
			"again: with it the partition belongs to what is there now.",
		Example: "  tridentd offsets reset flights.yaml --to earliest\n  tridentd offsets reset flights.yaml --to 2013-01-01T00:00:00Z --topic flights\n" +
			"  tridentd offsets reset flights.yaml --to 1200 --topic flights --partition 3 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := f.check(cmd.Flags().Changed("partition"))
			if err != nil {
				return err
			}
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			return a.reset(cmd.Context(), t, &f, to)
		},
	}
	dataFlag(cmd, &f.data)
	formatFlag(cmd, &f.format)
	timeoutFlag(cmd, &f.timeout)
	cmd.Flags().StringVar(&f.to, "to", "", "earliest, latest, a time (RFC 3339) or an offset")
	cmd.Flags().StringVar(&f.source, "source", "", "only this source")
	cmd.Flags().StringVar(&f.topic, "topic", "", "only this topic, or file")
	cmd.Flags().Int32Var(&f.partition, "partition", -1, "only this partition")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "don't ask")
	return cmd
}

// resetTo is what positions are set to.
type resetTo struct {
	kind   string // "earliest", "latest", "time", "offset"
	time   time.Time
	offset int64
}

func (f *resetFlags) check(partitioned bool) (resetTo, error) {
	if err := checkFormat(f.format); err != nil {
		return resetTo{}, err
	}
	if partitioned && f.partition < 0 {
		return resetTo{}, usagef("--partition %d is negative", f.partition)
	}
	switch f.to {
	case "":
		return resetTo{}, usagef("say where to go on: --to earliest, latest, a time or an offset")
	case "earliest", "latest":
		return resetTo{kind: f.to}, nil
	}
	if n, err := strconv.ParseInt(f.to, 10, 64); err == nil && n >= 0 {
		return resetTo{kind: "offset", offset: n}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, f.to)
	if err != nil || at.UnixMilli() < 0 {
		return resetTo{}, usagef("--to %q: it is earliest, latest, a time since 1970 like 2026-01-31T00:00:00Z, or an offset", f.to)
	}
	return resetTo{kind: "time", time: at}, nil
}

func (f *resetFlags) wants(p batch.Partition) bool {
	return (f.source == "" || p.Source == f.source) && (f.topic == "" || p.Topic == f.topic) && (f.partition < 0 || p.Number == f.partition)
}

// resetMove is what a reset does to one partition.
type resetMove struct {
	survey  *emitter.Survey
	from    int64 // where it stands
	to      int64
	skipped int64
	again   int64
	note    string
}

// moves tells whether anything changes.
func (m *resetMove) moves() bool { return m.from != m.to || m.note != "" }

func (a *app) reset(ctx context.Context, t *target, f *resetFlags, to resetTo) error {
	st, moves, err := planReset(ctx, t, f, to)
	if err != nil {
		return err
	}
	moving, err := a.printReset(&st, moves, f.format)
	if err != nil {
		return err
	}
	if len(moving) == 0 {
		fmt.Fprintln(a.err, "nothing to change: every partition stands there")
		return nil
	}
	if err := a.confirm(f.yes, "Set the positions?"); err != nil {
		return err
	}
	e, err := applyReset(ctx, t, &st, moving)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "reset as txid %d; the next run goes on from there, and the consumer group and ZooKeeper follow then\n", e.Txid)
	return nil
}

// planReset asks the sources, and works out what would change. Nothing is written.
func planReset(ctx context.Context, t *target, f *resetFlags, to resetTo) (standing, []resetMove, error) {
	pl, err := t.pipeline.Plan()
	if err != nil {
		return standing{}, nil, usage(err)
	}
	st, err := stands(ctx, t)
	if err != nil {
		return st, nil, err
	}
	if st.running {
		return st, nil, fmt.Errorf("pipeline %s is running (process %d): its positions are changed only at rest; stop it, then reset, then start it again", pl.Name, st.pid)
	}
	asked := &plan.Plan{}
	for _, s := range pl.Sources {
		if f.source == "" || s.ID == f.source {
			asked.Sources = append(asked.Sources, s)
		}
	}
	if len(asked.Sources) == 0 {
		return st, nil, usagef("--source %s: the pipeline has no such source", f.source)
	}
	for _, s := range asked.Sources {
		if len(st.of(s.ID, true)) == 0 {
			return st, nil, usagef("source %s has never been read: say in its settings where it starts", s.ID)
		}
	}
	ctx, cancel := within(ctx, f.timeout)
	defer cancel()
	all := survey(ctx, asked, &st, emitter.SurveyQuery{Time: to.time}, hclog.NewNullLogger())
	var moves []resetMove
	var errs []error
	for i := range all {
		if all[i].err != nil {
			errs = append(errs, all[i].err)
		}
		for j := range all[i].parts {
			s := &all[i].parts[j]
			if !f.wants(s.Partition) {
				continue
			}
			m, err := to.move(s, st.of(s.Source, false))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			moves = append(moves, m)
		}
	}
	if len(errs) > 0 {
		return st, nil, few(errs)
	}
	if len(moves) == 0 {
		return st, nil, usagef("no partition is meant: there is none with this --topic and --partition")
	}
	return st, moves, nil
}

// move works out what becomes of one partition.
func (to resetTo) move(s *emitter.Survey, saved []txstate.SavedPosition) (resetMove, error) {
	m := resetMove{survey: s, from: s.Begin}
	if s.Err != nil {
		return m, s.Err
	}
	identity, epoch := s.Identity, batch.NoEpoch
	if i := slices.IndexFunc(saved, func(p txstate.SavedPosition) bool { return p.Partition == s.Partition }); i >= 0 {
		m.from, epoch = saved[i].Next, saved[i].LeaderEpoch
		if saved[i].Identity != "" {
			identity = saved[i].Identity
		}
	}
	refuse := func(remedy, format string, args ...any) error {
		return queryError(batch.NewError(batch.Permanent, batch.CodeConfiguration, "reset", fmt.Errorf(format, args...), remedy).At(s.Partition, batch.NoOffset))
	}
	switch to.kind {
	case "earliest":
		m.to = s.Start
	case "latest":
		if s.End < 0 {
			return m, refuse("name an offset", "it has no end")
		}
		m.to = s.End
	case "time":
		if s.At < 0 {
			return m, refuse("name an offset", "its records have no time")
		}
		m.to = s.At
	case "offset":
		m.to = to.offset
		if m.to < s.Start || s.End >= 0 && m.to > s.LogEnd {
			return m, refuse("choose an offset that is there, with --topic and --partition if the partitions differ",
				"offset %d lies outside of what is available, [%d,%d)", m.to, s.Start, s.LogEnd)
		}
	}
	end := s.LogEnd
	switch renewed := s.Identity != "" && identity != s.Identity; {
	case renewed:
		m.again, m.note = max(0, end-m.to), "it was made again under its name: these are offsets of the new one"
	case to.kind == "offset" && m.to == m.from && epoch != batch.NoEpoch:
		m.note = "what lies below isn't checked any more"
	case m.to > m.from:
		m.skipped = m.to - m.from
		if gone := min(s.Start, m.to) - m.from; gone > 0 {
			m.note = fmt.Sprintf("%d of them are gone", gone)
		}
	case s.End >= 0 && m.from > end:
		m.again, m.note = end-m.to, fmt.Sprintf("the log was cut back: it ends at %d", end)
	default:
		m.again = m.from - m.to
	}
	return m, nil
}

var resetColumns = []state.Column{
	{Name: "source", Type: "string"},
	{Name: "topic", Type: "string"},
	{Name: "partition", Type: "int"},
	{Name: "from", Type: "int"},
	{Name: "to", Type: "int"},
	{Name: "skipped", Type: "int"},
	{Name: "read_again", Type: "int"},
	{Name: "note", Type: "string"},
}

// printReset shows what would change, and returns that.
func (a *app) printReset(st *standing, moves []resetMove, format string) ([]resetMove, error) {
	p := newPrinter(format, a.out)
	if err := p.Begin(st.txid, resetColumns); err != nil {
		return nil, err
	}
	var skipped, again int64
	var moving []resetMove
	for _, m := range moves {
		if !m.moves() {
			continue
		}
		moving = append(moving, m)
		skipped, again = skipped+m.skipped, again+m.again
		err := p.Row([]value.Value{
			value.StringOf(m.survey.Source), value.StringOf(m.survey.Topic), value.IntOf(int64(m.survey.Number)),
			value.IntOf(m.from), value.IntOf(m.to), value.IntOf(m.skipped), value.IntOf(m.again), noted(m.note),
		})
		if err != nil {
			return nil, err
		}
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	if skipped > 0 {
		fmt.Fprintf(a.err, "%s would be skipped: they never count\n", records(skipped))
	}
	if again > 0 {
		fmt.Fprintf(a.err, "%s would be read, and count again if they have counted before\n", records(again))
	}
	return moving, nil
}

// records counts offsets. Some may hold no record: transaction markers, what compaction took.
func records(n int64) string {
	if n == 1 {
		return "1 record"
	}
	return grouped(n) + " records"
}

// applyReset writes what was planned, unless the pipeline has run since.
func applyReset(ctx context.Context, t *target, st *standing, moving []resetMove) (e txstate.Entry, err error) {
	db, err := pebblestate.Open(ctx, pebblestate.Options{Dir: t.dir, Pipeline: t.pipeline.Name()})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return e, err
	}
	if snap.Txid != st.txid || snap.Epoch != st.epoch {
		return e, fmt.Errorf("pipeline %s has run meanwhile: it is at txid %d, and was at %d; nothing was changed, look again", t.pipeline.Name(), snap.Txid, st.txid)
	}
	moves := make([]engine.Move, len(moving))
	for i, m := range moving {
		moves[i] = engine.Move{
			Position: batch.Position{Partition: m.survey.Partition, Next: m.to, Identity: m.survey.Identity, LeaderEpoch: batch.NoEpoch},
			From:     m.from,
		}
	}
	return engine.Reset(ctx, t.pipeline, db, moves)
}
