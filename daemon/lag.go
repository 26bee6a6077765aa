package daemon

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// defaultAsk is for how long a command waits for the servers that it asks.
const defaultAsk = 10 * time.Second

func (a *app) lagCommand() *cobra.Command {
	var data, format string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "lag FILE",
		Short: "Show what each partition still has to be processed",
		Long: "lag asks the sources how far their partitions go, and compares that with what has committed. It works while the pipeline\n" +
			"runs and at rest. What a source doesn't hold any more isn't counted, nor is what an open transaction holds back: that\n" +
			"has a column of its own.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			ctx, cancel := within(cmd.Context(), timeout)
			defer cancel()
			_, pl, st, err := a.placed(ctx, args, data)
			if err != nil {
				return err
			}
			all := survey(ctx, pl, &st, emitter.SurveyQuery{Oldest: true}, hclog.NewNullLogger())
			if err := a.printLag(&st, all, format, time.Now()); err != nil {
				return err
			}
			return failures(all)
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	timeoutFlag(cmd, &timeout)
	return cmd
}

func timeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", defaultAsk, "how long to wait for the servers that are asked")
}

var lagColumns = []state.Column{
	{Name: "source", Type: "string"},
	{Name: "topic", Type: "string"},
	{Name: "partition", Type: "int"},
	{Name: "committed", Type: "int"},
	{Name: "end", Type: "int"},
	{Name: "lag", Type: "int"},
	{Name: "held_back", Type: "int"},
	{Name: "oldest", Type: "timestamp"},
	{Name: "age_seconds", Type: "float"},
	{Name: "note", Type: "string"},
}

// lag is what one partition still has to be processed. Offsets that aren't known are -1.
type lag struct {
	batch.Partition
	committed int64 // -1: it has never run
	end       int64
	lag       int64
	heldBack  int64
	oldest    time.Time
	note      string
}

// lagOf compares what a source holds with what has committed.
func lagOf(s *emitter.Survey, committed int64) lag {
	l := lag{Partition: s.Partition, committed: committed, end: s.End, lag: -1, heldBack: -1, oldest: s.Oldest, note: brief(s.Err)}
	if s.Err != nil || s.End < 0 {
		return l
	}
	from := s.From(committed)
	// What committed since the source was asked lies behind the end that it told.
	l.lag, l.heldBack = max(0, s.End-from), max(0, s.LogEnd-max(s.End, from))
	switch {
	case l.heldBack > 0:
		l.note = "an open transaction holds the partition back"
	case committed >= 0 && committed < s.Start:
		l.note = fmt.Sprintf("%d offsets behind the position are gone", s.Start-committed)
	case committed < 0:
		l.note = "not read yet"
	}
	return l
}

// lags compares all partitions, in the order of sources and partitions.
func lags(st *standing, all []surveyed) []lag {
	committed := map[batch.Partition]int64{}
	for _, p := range st.positions {
		committed[p.Partition] = p.Next
	}
	at := func(p batch.Partition) int64 {
		if next, ok := committed[p]; ok {
			return next
		}
		return -1
	}
	var ls []lag
	for i := range all {
		for j := range all[i].parts {
			s := &all[i].parts[j]
			ls = append(ls, lagOf(s, at(s.Partition)))
		}
		if all[i].err == nil {
			continue
		}
		for _, p := range st.of(all[i].source.ID, false) {
			s := emitter.Unasked(p.Partition, all[i].err)
			ls = append(ls, lagOf(&s, p.Next))
		}
	}
	return ls
}

func (a *app) printLag(st *standing, all []surveyed, format string, now time.Time) error {
	p := newPrinter(format, a.out)
	if err := p.Begin(st.txid, lagColumns); err != nil {
		return err
	}
	var total, held int64
	var oldest time.Time
	for _, l := range lags(st, all) {
		total += max(l.lag, 0)
		held += max(l.heldBack, 0)
		when, age := value.NullValue(), value.NullValue()
		if !l.oldest.IsZero() {
			when, age = value.TimeOf(l.oldest.UnixNano()), value.FloatOf(seconds(now.Sub(l.oldest)))
			if oldest.IsZero() || l.oldest.Before(oldest) {
				oldest = l.oldest
			}
		}
		err := p.Row([]value.Value{
			value.StringOf(l.Source), value.StringOf(l.Topic), value.IntOf(int64(l.Number)),
			known(l.committed), known(l.end), known(l.lag), known(l.heldBack), when, age, noted(l.note),
		})
		if err != nil {
			return err
		}
	}
	if err := p.end(); err != nil || format != formatTable {
		return err
	}
	line := fmt.Sprintf("total: lag %s, held back %s", grouped(total), grouped(held))
	if !oldest.IsZero() {
		line += fmt.Sprintf(", the oldest record is %s old", max(0, now.Sub(oldest)).Round(time.Second))
	}
	_, err := fmt.Fprintln(a.out, line)
	return err
}

// seconds rounds to milliseconds. A record of the future has no age.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1e3 }

// known is an offset, null where nobody knows it.
func known(n int64) value.Value {
	if n < 0 {
		return value.NullValue()
	}
	return value.IntOf(n)
}
