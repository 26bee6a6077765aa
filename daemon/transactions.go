package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/state"
)

// transactionFlags are the settings of transactions.
type transactionFlags struct {
	data, format string
	settle       bool
	yes          bool
	timeout      time.Duration
}

func (a *app) transactionsCommand() *cobra.Command {
	var f transactionFlags
	cmd := &cobra.Command{
		Use:   "transactions FILE",
		Short: "List the transactions of a pipeline's Kafka sinks, and settle those left open",
		Long: "transactions asks the clusters of the pipeline's Kafka sinks for the transactions that they hold for it, those of sinks that it no\n" +
			"longer has among them. An open one holds up whoever reads its partitions with isolation.level=read_committed.\n\n" +
			"A start of the pipeline settles its sinks' transactions, and the brokers abort an open one after its time-out. --settle ends them now,\n" +
			"for a pipeline that won't start again, or a sink that it no longer has: what was open is aborted, what was being committed is committed\n" +
			"to its end. Nothing is lost by it: a batch that is aborted is sent again by the next start. While a process runs the pipeline on\n" +
			"the data directory, --settle is refused; a run elsewhere would only have to begin its batch again.",
		Example: "  tridentd transactions orders.yaml\n  tridentd transactions orders.yaml --settle --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(f.format); err != nil {
				return err
			}
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			return a.transactions(cmd.Context(), t, &f)
		},
	}
	dataFlag(cmd, &f.data)
	formatFlag(cmd, &f.format)
	timeoutFlag(cmd, &f.timeout)
	cmd.Flags().BoolVar(&f.settle, "settle", false, "end the open ones")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "with --settle: don't ask")
	return cmd
}

// heldTransaction is one of a cluster.
type heldTransaction struct {
	sink.Transaction
	in sink.Transactions
}

func (a *app) transactions(ctx context.Context, t *target, f *transactionFlags) error {
	pl, err := t.pipeline.Plan()
	if err != nil {
		return usage(err)
	}
	if !slices.ContainsFunc(pl.Sinks, func(s *plan.Sink) bool { return s.Transactions != nil }) {
		return usagef("pipeline %s has no sink with transactions on a server: they are those of Kafka sinks", pl.Name)
	}
	if f.settle {
		if _, err := os.Stat(t.dir); err == nil {
			lock, err := pebblestate.LockDir(ctx, t.dir)
			if err != nil {
				return err
			}
			defer lock.Close() //nolint:errcheck // nothing was written
		}
	}
	var all []heldTransaction
	for _, s := range pl.Sinks {
		if s.Transactions == nil {
			continue
		}
		in, err := s.Transactions()
		if err != nil {
			return fmt.Errorf("sink %s: %w", s.Name, err)
		}
		defer in.Close()
		asking, cancel := context.WithTimeout(ctx, f.timeout)
		list, err := in.List(asking)
		cancel()
		if err != nil {
			return fmt.Errorf("sink %s: %w", s.Name, err)
		}
		for _, x := range list {
			// Sinks of one cluster see the same.
			if !slices.ContainsFunc(all, func(o heldTransaction) bool {
				return o.ID == x.ID && o.Producer == x.Producer && o.Since.Equal(x.Since)
			}) {
				all = append(all, heldTransaction{x, in})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b heldTransaction) int { return strings.Compare(a.ID, b.ID) })
	if err := a.printTransactions(all, f.format); err != nil || !f.settle {
		return err
	}
	open := slices.DeleteFunc(all, func(x heldTransaction) bool { return !x.Open })
	if len(open) == 0 {
		fmt.Fprintln(a.err, "nothing to settle: none is open")
		return nil
	}
	if err := a.confirm(f.yes, fmt.Sprintf("Settle %s?", counted(int64(len(open)), "transaction", "transactions"))); err != nil {
		return err
	}
	for _, x := range open {
		asking, cancel := context.WithTimeout(ctx, f.timeout)
		err := x.in.Settle(asking, x.ID)
		cancel()
		if err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%s is settled\n", x.ID)
	}
	return nil
}

var transactionColumns = []state.Column{
	{Name: "sink", Type: "string"},
	{Name: "transactional_id", Type: "string"},
	{Name: "state", Type: "string"},
	{Name: "open", Type: "bool"},
	{Name: "since", Type: "string"},
	{Name: "timeout", Type: "string"},
	{Name: "producer_id", Type: "int"},
	{Name: "producer_epoch", Type: "int"},
	{Name: "partitions", Type: "string"},
}

func (a *app) printTransactions(all []heldTransaction, format string) error {
	p := newStatePrinter(format, a.out)
	if err := p.Begin(0, transactionColumns); err != nil {
		return err
	}
	for _, x := range all {
		since := value.NullValue()
		if !x.Since.IsZero() {
			since = value.StringOf(x.Since.Format(time.RFC3339Nano))
		}
		parts := make([]string, len(x.Partitions))
		for i, part := range x.Partitions {
			parts[i] = fmt.Sprintf("%s-%d", part.Topic, part.Number)
		}
		err := p.Row([]value.Value{
			value.StringOf(x.Sink), value.StringOf(x.ID), value.StringOf(x.State), value.BoolOf(x.Open), since, value.StringOf(x.Timeout.String()),
			value.IntOf(x.Producer), value.IntOf(int64(x.Epoch)), value.StringOf(strings.Join(parts, " ")),
		})
		if err != nil {
			return err
		}
	}
	return p.end()
}
