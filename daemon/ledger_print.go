package daemon

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
)

// ledgerPrinter prints entries in one form.
type ledgerPrinter interface {
	entry(e server.LedgerEntry) error
	flush() error // shows what has been printed so far
	end() error
}

// newLedgerPrinter makes the printer of a format. Of a table, wide adds columns, and one shows the fields one below the other.
func newLedgerPrinter(format string, w io.Writer, wide, one bool) ledgerPrinter {
	switch format {
	case formatJSON:
		return &ledgerJSON{w: w}
	case formatCSV:
		return &ledgerCSV{w: csv.NewWriter(w)}
	}
	t := newPrinter(formatTable, w)
	if one {
		return &ledgerSheet{rowPrinter: t}
	}
	l := &ledgerTable{rowPrinter: t, columns: ledgerColumns}
	if wide {
		l.columns = ledgerWide
	}
	return l
}

// ledgerColumn is a column of the table.
type ledgerColumn struct {
	name string
	typ  string // as of state.Column
	text func(e *server.LedgerEntry) string
}

func number(name string, of func(e *server.LedgerEntry) int64) ledgerColumn {
	return ledgerColumn{name, "int", func(e *server.LedgerEntry) string { return strconv.FormatInt(of(e), 10) }}
}

func words(name string, of func(e *server.LedgerEntry) string) ledgerColumn {
	return ledgerColumn{name, "string", of}
}

func phase(name string, of func(p *server.PhaseSeconds) float64) ledgerColumn {
	return words(name, func(e *server.LedgerEntry) string { return tookText(of(&e.Took)) })
}

func tookText(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond).String()
}

var (
	ledgerTxid      = number("txid", func(e *server.LedgerEntry) int64 { return int64(e.Txid) })
	ledgerCommitted = words("committed", func(e *server.LedgerEntry) string { return e.Committed.UTC().Format(time.RFC3339) })
	ledgerAttempts  = number("attempts", func(e *server.LedgerEntry) int64 { return int64(e.Attempts) })
	ledgerRecords   = number("records", func(e *server.LedgerEntry) int64 { return e.Records })
	ledgerRanges    = words("ranges", rangesText)
	ledgerDigest    = words("digest", func(e *server.LedgerEntry) string { return e.Chain })

	ledgerColumns = []ledgerColumn{
		ledgerTxid, ledgerCommitted, ledgerAttempts, ledgerRecords, ledgerRanges, ledgerDigest,
		phase("took", func(p *server.PhaseSeconds) float64 { return p.Plan + p.Read + p.Process + p.Commit }),
	}
	ledgerWide = []ledgerColumn{
		ledgerTxid, ledgerCommitted,
		words("time", func(e *server.LedgerEntry) string { return e.Time.UTC().Format(time.RFC3339Nano) }),
		number("epoch", func(e *server.LedgerEntry) int64 { return int64(e.Epoch) }),
		ledgerAttempts,
		words("seed", func(e *server.LedgerEntry) string { return e.Seed }),
		ledgerRecords,
		number("bytes", func(e *server.LedgerEntry) int64 { return e.Bytes }),
		{"filtered", "int", filteredText},
		number("late", func(e *server.LedgerEntry) int64 { return e.Late }),
		number("future", func(e *server.LedgerEntry) int64 { return e.Future }),
		number("rejected", func(e *server.LedgerEntry) int64 { return e.Rejected }),
		number("dead", func(e *server.LedgerEntry) int64 { return e.Dead }),
		ledgerRanges,
		words("states", statesText),
		words("sinks", sinksText),
		ledgerDigest,
		words("plan", func(e *server.LedgerEntry) string { return e.Plan }),
		words("build", func(e *server.LedgerEntry) string { return e.Build }),
		phase("plan_took", func(p *server.PhaseSeconds) float64 { return p.Plan }),
		phase("read_took", func(p *server.PhaseSeconds) float64 { return p.Read }),
		phase("process_took", func(p *server.PhaseSeconds) float64 { return p.Process }),
	}
)

func filteredText(e *server.LedgerEntry) string {
	if e.Filtered == nil {
		return ""
	}
	return strconv.FormatInt(*e.Filtered, 10)
}

func rangesText(e *server.LedgerEntry) string {
	var all []string
	for i := range e.Ranges {
		all = append(all, rangeText(&e.Ranges[i], kindOf(e)))
	}
	if len(e.Migrated) > 0 {
		all = append(all, "migrate: "+strings.Join(e.Migrated, "; "))
	}
	return strings.Join(all, " ")
}

func statesText(e *server.LedgerEntry) string {
	all := make([]string, len(e.States))
	for i, s := range e.States {
		all[i] = fmt.Sprintf("%s:%d:%s", s.State, s.Writes, s.Digest)
	}
	return strings.Join(all, " ")
}

func sinksText(e *server.LedgerEntry) string {
	all := make([]string, len(e.Sinks))
	for i, s := range e.Sinks {
		all[i] = fmt.Sprintf("%s:%d:%s", s.Sink, s.Records, s.Digest)
	}
	return strings.Join(all, " ")
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

// ledgerTable prints one row for each entry.
type ledgerTable struct {
	rowPrinter
	columns []ledgerColumn
	begun   bool
}

func (t *ledgerTable) begin() error {
	if t.begun {
		return nil
	}
	t.begun = true
	columns := make([]state.Column, len(t.columns))
	for i, c := range t.columns {
		columns[i] = state.Column{Name: c.name, Type: c.typ}
	}
	return t.Begin(0, columns)
}

func (t *ledgerTable) entry(e server.LedgerEntry) error {
	if err := t.begin(); err != nil {
		return err
	}
	row := make([]value.Value, len(t.columns))
	for i, c := range t.columns {
		row[i] = value.StringOf(c.text(&e))
	}
	return t.Row(row)
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

// ledgerSheet prints everything about one entry, a field a line.
type ledgerSheet struct{ rowPrinter }

func (l *ledgerSheet) entry(e server.LedgerEntry) error {
	if err := l.Begin(0, []state.Column{{Name: "field", Type: "string"}, {Name: "value", Type: "string"}}); err != nil {
		return err
	}
	var err error
	put := func(name, format string, args ...any) {
		if err == nil {
			err = l.Row([]value.Value{value.StringOf(name), value.StringOf(fmt.Sprintf(format, args...))})
		}
	}
	for _, c := range ledgerWide {
		switch c.name {
		case "ranges", "states", "sinks", "build":
		case "digest":
			put(c.name, "%s (of this batch and all before)", c.text(&e))
		default:
			put(c.name, "%s", c.text(&e))
		}
	}
	put("build", "%s", strings.TrimSpace(strings.TrimSuffix(e.Build, e.Arch)))
	put("arch", "%s", e.Arch)
	put("kind", "%s", kindOf(&e))
	if e.Imported != "" {
		put("imported", "%s", e.Imported)
	}
	for _, m := range e.Migrated {
		put("migrated", "%s", m)
	}
	for i := range e.Ranges {
		r := &e.Ranges[i]
		put("range", "%s: %d records, %d bytes, digest %s%s%s", rangeText(r, kindOf(&e)), r.Records, r.Bytes, r.Digest, idText(r.TopicID), timeText(", event time ", r.EventTime))
	}
	for _, p := range e.Joined {
		put("joined", "%s at %d%s", p.LedgerPartition, p.Next, idText(p.TopicID))
	}
	for _, p := range e.Idle {
		put("idle", "%s", p)
	}
	for _, w := range e.Watermarks {
		put("watermark", "%s%s", w.Source, timeText(": ", w.Time))
	}
	for _, s := range e.Statics {
		put("static", "%s: %d rows, digest %s", s.Name, s.Rows, s.Digest)
	}
	for _, s := range e.States {
		put("state", "%s: %d writes, digest %s", s.State, s.Writes, s.Digest)
	}
	for _, s := range e.Sinks {
		put("sink", "%s: %d records, digest %s (of these and all before)", s.Sink, s.Records, s.Digest)
	}
	return err
}

func (l *ledgerSheet) flush() error { return nil }

func idText(id string) string {
	if id == "" {
		return ""
	}
	return ", id " + id
}

func timeText(lead string, t *time.Time) string {
	if t == nil {
		return ""
	}
	return lead + t.Format(time.RFC3339Nano)
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

// ledgerCSV prints one record for each range, and one for an entry without any. Behind kind all is the entry's: records,
// counts and states are repeated with each of its ranges.
type ledgerCSV struct {
	w     *csv.Writer
	begun bool
}

var ledgerCSVHead = []string{
	"txid", "committed", "attempt", "source", "topic", "partition", "start", "end", "records", "input_digest", "chain", "kind",
	"topic_id", "bytes", "event_time", "epoch", "attempts", "time", "seed", "batch_records", "batch_bytes", "filtered", "late", "future", "rejected",
	"states", "plan", "build", "arch", "plan_seconds", "read_seconds", "process_seconds", "note", "sinks", "dead",
}

func (l *ledgerCSV) begin() error {
	if l.begun {
		return nil
	}
	l.begun = true
	return l.w.Write(ledgerCSVHead)
}

func (l *ledgerCSV) entry(e server.LedgerEntry) error {
	if err := l.begin(); err != nil {
		return err
	}
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	decimal := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	rest := []string{
		whole(int64(e.Epoch)), whole(int64(e.Attempts)), e.Time.UTC().Format(time.RFC3339Nano), e.Seed, whole(e.Records), whole(e.Bytes), filteredText(&e), whole(e.Late),
		whole(e.Future), whole(e.Rejected), statesText(&e), e.Plan, e.Build, e.Arch, decimal(e.Took.Plan), decimal(e.Took.Read), decimal(e.Took.Process),
		strings.TrimSpace(e.Imported + " " + strings.Join(e.Migrated, "; ")), sinksText(&e), whole(e.Dead),
	}
	write := func(place, id []string) error {
		row := append([]string{e.Txid.String(), e.Committed.UTC().Format(time.RFC3339Nano), e.Attempt}, place...)
		row = append(append(row, e.Chain, kindOf(&e)), id...)
		return l.w.Write(append(row, rest...))
	}
	if len(e.Ranges) == 0 {
		return write(make([]string, 7), make([]string, 3))
	}
	for _, r := range e.Ranges {
		place := []string{r.Source, r.Topic, strconv.Itoa(int(r.Partition)), whole(r.Start), whole(r.End), whole(r.Records), r.Digest}
		if err := write(place, []string{r.TopicID, whole(r.Bytes), timeText("", r.EventTime)}); err != nil {
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
