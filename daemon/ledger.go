package daemon

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
)

func (a *app) ledgerCommand() *cobra.Command {
	var data, format string
	var from, to uint64
	var filter ledgerFilter
	var follow bool
	cmd := &cobra.Command{
		Use:   "ledger FILE",
		Short: "List the committed batches",
		Long: "ledger lists the committed batches: txid, when it committed, how many records it read, its offset ranges, the digest\n" +
			"that it left (over all batches so far) and how long it took.",
		Example: "  tridentd ledger orders.yaml --from 1200\n  tridentd ledger orders.yaml --offset orders-3:123456\n  tridentd ledger orders.yaml -f",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if to != 0 && to < from {
				return usagef("--to %d is below --from %d", to, from)
			}
			if err := filter.check(); err != nil {
				return err
			}
			if follow && to != 0 {
				return usagef("--follow has no end: leave --to out")
			}
			dir, rest, err := a.dataDir(args, data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			p := newLedgerPrinter(format, a.out)
			last := batch.Txid(max(from, 1)) - 1
			emit := func(e server.LedgerEntry) error {
				last = e.Txid
				if !filter.takes(&e) {
					return nil
				}
				return p.entry(e)
			}
			if follow {
				err = followLedger(cmd.Context(), dir, last, emit, p.flush)
			} else {
				err = ledgerDir(cmd.Context(), dir, batch.Txid(from), batch.Txid(to), emit)
			}
			if err != nil {
				return queryError(err)
			}
			return p.end()
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	cmd.Flags().Uint64Var(&from, "from", 1, "first txid")
	cmd.Flags().Uint64Var(&to, "to", 0, "last txid (default: the last committed)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what the running daemon commits, until Ctrl-C")
	filter.add(cmd)
	return cmd
}

func ledgerDir(ctx context.Context, dir string, from, to batch.Txid, emit func(server.LedgerEntry) error) error {
	return askOrRead(ctx, dir, func(c *server.Client) error {
		return c.Ledger(ctx, from, to, emit)
	}, func(db *pebblestate.DB) error {
		for e, err := range db.Store().Entries(ctx, from, to) {
			if err != nil {
				return err
			}
			if err := emit(server.LedgerEntryOf(&e)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ledgerPrinter prints entries in one form.
type ledgerPrinter interface {
	entry(e server.LedgerEntry) error
	flush() error // shows what has been printed so far
	end() error
}

func newLedgerPrinter(format string, w io.Writer) ledgerPrinter {
	switch format {
	case formatJSON:
		return &ledgerJSON{w: w}
	case formatCSV:
		return &ledgerCSV{w: csv.NewWriter(w)}
	}
	t := newPrinter(formatTable, w)
	return &ledgerTable{rowPrinter: t}
}

type ledgerTable struct {
	rowPrinter
	begun bool
}

var ledgerColumns = []state.Column{
	{Name: "txid", Type: "int"},
	{Name: "committed", Type: "timestamp"},
	{Name: "attempts", Type: "int"},
	{Name: "records", Type: "int"},
	{Name: "ranges", Type: "string"},
	{Name: "digest", Type: "string"},
	{Name: "took", Type: "string"},
}

func (t *ledgerTable) begin() error {
	if t.begun {
		return nil
	}
	t.begun = true
	return t.Begin(0, ledgerColumns)
}

func (t *ledgerTable) entry(e server.LedgerEntry) error {
	if err := t.begin(); err != nil {
		return err
	}
	ranges := make([]string, len(e.Ranges))
	for i, r := range e.Ranges {
		ranges[i] = rangeText(&r, kindOf(&e))
	}
	if len(e.Migrated) > 0 {
		ranges = append(ranges, "migrate: "+strings.Join(e.Migrated, "; "))
	}
	took := e.Took.Plan + e.Took.Read + e.Took.Process + e.Took.Commit
	return t.Row([]value.Value{
		value.IntOf(int64(e.Txid)), value.StringOf(e.Committed.UTC().Format(time.RFC3339)), value.IntOf(int64(e.Attempts)), value.IntOf(e.Records),
		value.StringOf(strings.Join(ranges, " ")), value.StringOf(e.Chain),
		value.StringOf(time.Duration(took * float64(time.Second)).Round(100 * time.Microsecond).String()),
	})
}

// kindOf says what made an entry.
func kindOf(e *server.LedgerEntry) string {
	switch {
	case e.Imported != "":
		return "import"
	case len(e.Migrated) > 0:
		return "migrate"
	case e.Reset:
		return "reset"
	}
	return "batch"
}

func rangeText(r *server.LedgerRange, kind string) string {
	p := batch.Partition{Source: r.Source, Topic: r.Topic, Number: r.Partition}
	switch {
	case kind == "import" && r.Start == r.End:
		return fmt.Sprintf("import %s %d", p, r.End)
	case kind != "batch":
		return fmt.Sprintf("%s %s %d→%d", kind, p, r.Start, r.End)
	}
	return fmt.Sprintf("%s [%d,%d)", p, r.Start, r.End)
}

func (t *ledgerTable) flush() error {
	if !t.begun {
		return nil
	}
	return t.end()
}

// end prints the rows. The next ones, if there are any, are aligned with themselves.
func (t *ledgerTable) end() error {
	if err := t.begin(); err != nil {
		return err
	}
	return t.rowPrinter.end()
}

type ledgerJSON struct {
	w io.Writer
	n int
}

func (l *ledgerJSON) entry(e server.LedgerEntry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	lead := ",\n  "
	if l.n == 0 {
		lead = "[\n  "
	}
	l.n++
	_, err = fmt.Fprintf(l.w, "%s%s", lead, b)
	return err
}

func (l *ledgerJSON) flush() error { return nil }

func (l *ledgerJSON) end() error {
	tail := "\n]\n"
	if l.n == 0 {
		tail = "[]\n"
	}
	_, err := io.WriteString(l.w, tail)
	return err
}

// ledgerCSV prints one record for each range.
type ledgerCSV struct {
	w     *csv.Writer
	begun bool
}

func (l *ledgerCSV) begin() error {
	if l.begun {
		return nil
	}
	l.begun = true
	return l.w.Write([]string{"txid", "committed", "attempt", "source", "topic", "partition", "start", "end", "records", "input_digest", "chain", "kind"})
}

func (l *ledgerCSV) entry(e server.LedgerEntry) error {
	if err := l.begin(); err != nil {
		return err
	}
	kind := kindOf(&e)
	for _, r := range e.Ranges {
		err := l.w.Write([]string{
			e.Txid.String(), e.Committed.UTC().Format(time.RFC3339Nano), e.Attempt, r.Source, r.Topic, strconv.Itoa(int(r.Partition)),
			strconv.FormatInt(r.Start, 10), strconv.FormatInt(r.End, 10), strconv.FormatInt(r.Records, 10), r.Digest, e.Chain, kind,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *ledgerCSV) flush() error {
	l.w.Flush()
	return l.w.Error()
}

func (l *ledgerCSV) end() error {
	if err := l.begin(); err != nil {
		return err
	}
	l.w.Flush()
	return l.w.Error()
}
