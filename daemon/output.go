package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Output forms of everything that prints data.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatCSV   = "csv"
)

func formatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", formatTable, "table, json or csv")
}

func checkFormat(format string) error {
	switch format {
	case formatTable, formatJSON, formatCSV:
		return nil
	}
	return usagef("--format %q: it is table, json or csv", format)
}

// rowPrinter prints rows in one form. It is a server.RowWriter; end completes the output.
type rowPrinter interface {
	Begin(txid batch.Txid, columns []state.Column) error
	Row(values []value.Value) error
	end() error
}

func newPrinter(format string, w io.Writer) rowPrinter {
	switch format {
	case formatJSON:
		return &jsonPrinter{w: bufio.NewWriter(w)}
	case formatCSV:
		return &csvPrinter{w: bufio.NewWriter(w)}
	}
	return &tablePrinter{w: bufio.NewWriter(w)}
}

// newStatePrinter prints rows of a state, in which a null and an empty string are told apart.
func newStatePrinter(format string, w io.Writer) rowPrinter {
	p := newPrinter(format, w)
	if t, ok := p.(*tablePrinter); ok {
		t.null = "NULL"
	}
	return p
}

// jsonPrinter prints an array of objects, fields in the order of the columns.
type jsonPrinter struct {
	w     *bufio.Writer
	names []string
	n     int
	buf   []byte
}

func (p *jsonPrinter) Begin(_ batch.Txid, columns []state.Column) error {
	for _, c := range columns {
		name, err := json.Marshal(c.Name)
		if err != nil {
			return err
		}
		p.names = append(p.names, string(name))
	}
	_, err := p.w.WriteString("[")
	return err
}

func (p *jsonPrinter) Row(values []value.Value) error {
	b := p.buf[:0]
	if p.n > 0 {
		b = append(b, ',')
	}
	p.n++
	b = append(b, "\n  {"...)
	for i, v := range values {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, p.names[i]...), ": "...)
		b = value.AppendJSON(b, v)
	}
	p.buf = append(b, '}')
	_, err := p.w.Write(p.buf)
	return err
}

func (p *jsonPrinter) end() error {
	if p.n > 0 {
		p.w.WriteByte('\n') //nolint:errcheck // Flush reports it
	}
	p.w.WriteString("]\n") //nolint:errcheck // Flush reports it
	return p.w.Flush()
}

// csvPrinter prints a header line, then RFC 4180 records. Null is an empty field, an empty string is "".
type csvPrinter struct {
	w   *bufio.Writer
	buf []byte
}

func (p *csvPrinter) Begin(_ batch.Txid, columns []state.Column) error {
	names := make([]value.Value, len(columns))
	for i, c := range columns {
		names[i] = value.StringOf(c.Name)
	}
	return p.Row(names)
}

func (p *csvPrinter) Row(values []value.Value) error {
	b := p.buf[:0]
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		if s := text(v); !v.IsNull() && (s == "" || strings.ContainsAny(s, ",\"\r\n") || s[0] == ' ' || s[0] == '\t') {
			b = append(append(append(b, '"'), strings.ReplaceAll(s, `"`, `""`)...), '"')
		} else {
			b = append(b, s...)
		}
	}
	p.buf = append(b, '\n')
	_, err := p.w.Write(p.buf)
	return err
}

func (p *csvPrinter) end() error { return p.w.Flush() }

func text(v value.Value) string { return string(value.AppendText(nil, v)) }

// tablePrinter aligns columns: numbers to the right. It holds the rows until the end.
type tablePrinter struct {
	w     *bufio.Writer
	null  string // what stands for a null
	right []bool
	rows  [][]string
}

func (p *tablePrinter) Begin(_ batch.Txid, columns []state.Column) error {
	head := make([]string, len(columns))
	for i, c := range columns {
		head[i] = c.Name
		p.right = append(p.right, c.Type == "int" || c.Type == "float" || c.Type == "decimal")
	}
	p.rows = append(p.rows, head)
	return nil
}

func (p *tablePrinter) Row(values []value.Value) error {
	row := make([]string, len(values))
	for i, v := range values {
		if row[i] = printable(text(v)); v.IsNull() {
			row[i] = p.null
		}
	}
	p.rows = append(p.rows, row)
	return nil
}

// printable keeps a cell on its line, and the terminal from obeying it.
func printable(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) || !utf8.ValidString(s) {
		q := fmt.Sprintf("%q", s)
		return q[1 : len(q)-1]
	}
	return s
}

func (p *tablePrinter) end() error {
	if len(p.rows) == 0 {
		return nil
	}
	width := make([]int, len(p.rows[0]))
	for _, r := range p.rows {
		for i, cell := range r {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range p.rows {
		var line strings.Builder
		for i, cell := range r {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if p.right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		p.w.WriteString(strings.TrimRight(line.String(), " ")) //nolint:errcheck // Flush reports it
		p.w.WriteByte('\n')                                    //nolint:errcheck // Flush reports it
	}
	p.rows = p.rows[:0]
	return p.w.Flush()
}

// noted is a note, or null where there is nothing to note.
func noted(s string) value.Value {
	if s == "" {
		return value.NullValue()
	}
	return value.StringOf(s)
}
