package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/sink/deadletter"
	"github.com/tridentd/tridentd/state"
)

// letterFlags are the settings of deadletters.
type letterFlags struct {
	letterFilter
	data, format string
	reinject     bool
	into         string
	yes          bool
}

// letterFilter says which letters are wanted. Empty fields, and a negative partition, take all.
type letterFilter struct {
	txid, from, to uint64
	source, topic  string
	partition      int32
	kind           string
	step, cause    string // parts
}

func (f *letterFilter) takes(l *deadletter.Letter) bool {
	t := uint64(l.Txid)
	return (f.txid == 0 || t == f.txid) && t >= f.from && (f.to == 0 || t <= f.to) &&
		(f.source == "" || l.Partition.Source == f.source) && (f.topic == "" || l.Partition.Topic == f.topic) &&
		(f.partition < 0 || l.Partition.Number == f.partition) && (f.kind == "" || l.Kind == f.kind) &&
		strings.Contains(l.Step, f.step) && strings.Contains(l.Cause, f.cause)
}

func (a *app) deadLettersCommand() *cobra.Command {
	var f letterFlags
	cmd := &cobra.Command{
		Use:   "deadletters FILE",
		Short: "List the dead letters of a pipeline, or send their records back",
		Long: "deadletters reads the place that the pipeline's dead_letters names, and prints what lies there of this pipeline, by txid, source,\n" +
			"topic, partition and offset. It works while the pipeline runs and at rest.\n\n" +
			"With --reinject the records of the letters listed are sent back to the topics and partitions that they came from, as they were, or with\n" +
			"--into to another topic. That is at least once: where it fails half-way, some have been sent, and the next call sends them again. The\n" +
			"letters stay where they are. A record sent back goes through all streams of its source, also those that it had passed before.",
		Example: "  tridentd deadletters orders.yaml --cause timestamp --format json\n  tridentd deadletters orders.yaml --from 120 --step decode --reinject --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags().Changed("partition")); err != nil {
				return err
			}
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			return a.deadLetters(cmd.Context(), t, &f)
		},
	}
	formatFlag(cmd, &f.format)
	cmd.Flags().Uint64Var(&f.txid, "txid", 0, "only those of this batch")
	cmd.Flags().Uint64Var(&f.from, "from", 0, "only those of this batch and later ones")
	cmd.Flags().Uint64Var(&f.to, "to", 0, "only those of this batch and earlier ones")
	cmd.Flags().StringVar(&f.source, "source", "", "only this source")
	cmd.Flags().StringVar(&f.topic, "topic", "", "only this topic, or file")
	cmd.Flags().Int32Var(&f.partition, "partition", -1, "only this partition")
	cmd.Flags().StringVar(&f.kind, "kind", "", "only bad, late or future ones")
	cmd.Flags().StringVar(&f.step, "step", "", "only those whose step has this text in it")
	cmd.Flags().StringVar(&f.cause, "cause", "", "only those whose cause has this text in it")
	cmd.Flags().BoolVar(&f.reinject, "reinject", false, "send the records back to where they came from, at least once")
	cmd.Flags().StringVar(&f.into, "into", "", "with --reinject: send them to this topic, of the source's cluster")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "with --reinject: don't ask")
	return cmd
}

func (f *letterFlags) check(partitioned bool) error {
	if err := checkFormat(f.format); err != nil {
		return err
	}
	switch {
	case partitioned && f.partition < 0:
		return usagef("--partition %d is negative", f.partition)
	case f.kind != "" && !slices.Contains([]string{deadletter.Bad, deadletter.Late, deadletter.Future}, f.kind):
		return usagef("--kind %q: it is bad, late or future", f.kind)
	case f.to != 0 && f.from > f.to:
		return usagef("--from %d is above --to %d", f.from, f.to)
	case f.into != "" && !f.reinject:
		return usagef("--into says where --reinject sends to")
	}
	return nil
}

func (a *app) deadLetters(ctx context.Context, t *target, f *letterFlags) error {
	pl, err := t.pipeline.Plan()
	if err != nil {
		return usage(err)
	}
	switch {
	case pl.Dead == nil:
		return usagef("pipeline %s has no dead letters: no dead_letters says where they go", pl.Name)
	case pl.Dead.Read == nil:
		return usagef("pipeline %s: the target of its dead letters can't be read (it has no ReadLetters)", pl.Name)
	}
	var all []*deadletter.Letter
	err = pl.Dead.Read(ctx, plan.Env{Logger: hclog.NewNullLogger()}, func(l *deadletter.Letter) error {
		if f.takes(l) {
			all = append(all, l)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b *deadletter.Letter) int {
		return cmp.Or(cmp.Compare(a.Txid, b.Txid), a.Partition.Compare(b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	if err := a.printLetters(all, f.format); err != nil || !f.reinject {
		return err
	}
	return a.reinject(ctx, pl, all, f)
}

var letterColumns = []state.Column{
	{Name: "txid", Type: "int"},
	{Name: "kind", Type: "string"},
	{Name: "source", Type: "string"},
	{Name: "topic", Type: "string"},
	{Name: "partition", Type: "int"},
	{Name: "offset", Type: "int"},
	{Name: "timestamp", Type: "string"},
	{Name: "step", Type: "string"},
	{Name: "cause", Type: "string"},
	{Name: "key", Type: "string"},
	{Name: "value", Type: "string"},
}

func (a *app) printLetters(all []*deadletter.Letter, format string) error {
	if format == formatJSON {
		return a.printLetterObjects(all)
	}
	p := newStatePrinter(format, a.out)
	if err := p.Begin(0, letterColumns); err != nil {
		return err
	}
	for _, l := range all {
		at := value.NullValue()
		if l.Timestamp != 0 {
			at = value.StringOf(deadletter.TimeText(l.Timestamp))
		}
		err := p.Row([]value.Value{
			value.IntOf(int64(l.Txid)), value.StringOf(l.Kind), value.StringOf(l.Partition.Source), value.StringOf(l.Partition.Topic),
			value.IntOf(int64(l.Partition.Number)), value.IntOf(l.Offset), at, value.StringOf(l.Step), value.StringOf(l.Cause), shown(l.Key), shown(l.Value),
		})
		if err != nil {
			return err
		}
	}
	return p.end()
}

// printLetterObjects prints letters in the form that files have them in, headers included.
func (a *app) printLetterObjects(all []*deadletter.Letter) error {
	var b []byte
	b = append(b, '[')
	for i, l := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = l.AppendJSON(append(b, "\n  "...))
	}
	if len(all) > 0 {
		b = append(b, '\n')
	}
	_, err := a.out.Write(append(b, "]\n"...))
	return err
}

// resending is what goes back through one source.
type resending struct {
	source  *plan.Source
	records []emitter.Resent
}

// planResending sorts letters by the source that can send them, each record once, and counts those that none can.
func planResending(pl *plan.Plan, all []*deadletter.Letter, into string) (out []resending, rows, unsent int) {
	type place struct {
		batch.Partition
		offset int64
	}
	seen := map[place]bool{}
	for _, l := range all {
		at := place{l.Partition, l.Offset}
		i := slices.IndexFunc(pl.Sources, func(s *plan.Source) bool { return s.ID == l.Partition.Source })
		switch {
		case l.Row():
			rows++
			continue
		case i < 0 || pl.Sources[i].Resend == nil:
			unsent++
			continue
		case seen[at]:
			continue
		}
		seen[at] = true
		r := emitter.Resent{
			Topic: l.Partition.Topic, Partition: l.Partition.Number,
			Record: batch.Record{Timestamp: l.Timestamp, Key: l.Key, Value: l.Value, Headers: l.Headers},
		}
		if into != "" {
			r.Topic, r.Partition = into, -1
		}
		j := slices.IndexFunc(out, func(x resending) bool { return x.source == pl.Sources[i] })
		if j < 0 {
			j, out = len(out), append(out, resending{source: pl.Sources[i]})
		}
		out[j].records = append(out[j].records, r)
	}
	return out, rows, unsent
}

func (a *app) reinject(ctx context.Context, pl *plan.Plan, all []*deadletter.Letter, f *letterFlags) error {
	out, rows, unsent := planResending(pl, all, f.into)
	if rows > 0 {
		fmt.Fprintf(a.err, "%s left out: they hold rows of a stage, and no record\n", counted(int64(rows), "letter is", "letters are"))
	}
	if unsent > 0 {
		fmt.Fprintf(a.err, "%s left out: the pipeline has no such source, or nothing can be sent to it\n", counted(int64(unsent), "letter is", "letters are"))
	}
	if len(out) == 0 {
		fmt.Fprintln(a.err, "nothing to send")
		return nil
	}
	for _, s := range out {
		by := map[string]int64{}
		for i := range s.records {
			by[s.records[i].Topic]++
		}
		topics := make([]string, 0, len(by))
		for topic := range by { // order: sorted below
			topics = append(topics, topic)
		}
		slices.Sort(topics)
		for _, topic := range topics {
			fmt.Fprintf(a.err, "source %s: %s to topic %s\n", s.source.ID, counted(by[topic], "record", "records"), topic)
		}
	}
	if err := a.confirm(f.yes, "Send them?"); err != nil {
		return err
	}
	total := 0
	for _, s := range out {
		n, err := s.source.Resend(ctx, plan.Env{Logger: hclog.NewNullLogger()}, s.records)
		total += n
		if err != nil {
			return fmt.Errorf("%s sent, of the others it isn't known; another call sends all of them again: %w", counted(int64(total), "record was", "records were"), err)
		}
	}
	fmt.Fprintf(a.err, "%s sent; another call sends them again\n", counted(int64(total), "record was", "records were"))
	return nil
}
