package spectest

import (
	"strings"
	"unicode/utf8"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/state"
)

// difference is a table of the rows in which two tables differ: those that were expected, marked -, and those that are there, +.
type difference struct {
	cols  []state.Column
	lines [][]string // mark, then the cells
	more  int
}

// mostLines bounds what is shown.
const mostLines = 40

func (d *difference) add(line []string) {
	if len(d.lines) == mostLines {
		d.more++
		return
	}
	d.lines = append(d.lines, line)
}

// want adds a row that was expected. What it says nothing of is left empty.
func (d *difference) want(l *spec.Literal) {
	line := []string{"-"}
	for _, c := range d.cols {
		v := l.Fields[c.Name]
		switch {
		case v == nil:
			line = append(line, "")
		case v.Kind == spec.LiteralText:
			line = append(line, cell(v.Text))
		default:
			line = append(line, cell(v.String()))
		}
	}
	d.add(line)
}

// got adds a row that is there.
func (d *difference) got(row []value.Value) {
	line := []string{"+"}
	for _, v := range row {
		switch {
		case v.IsNull():
			line = append(line, "null")
		case v.Kind() == value.List:
			line = append(line, cell(string(value.AppendJSON(nil, v))))
		default:
			line = append(line, cell(string(value.AppendText(nil, v))))
		}
	}
	d.add(line)
}

// cell keeps a text from breaking the table.
func cell(s string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`, "\x1b", `\x1b`).Replace(s)
}

// text is the table behind a title; empty if nothing differs. Columns in which no row has anything are left out.
func (d *difference) text(title string) string {
	if len(d.lines) == 0 {
		return ""
	}
	head := []string{" "}
	for _, c := range d.cols {
		head = append(head, c.Name)
	}
	width := make([]int, len(head))
	for _, line := range d.lines {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	b.WriteString(title)
	for _, line := range append([][]string{head}, d.lines...) {
		text := ""
		for i, c := range line {
			if width[i] == 0 {
				continue
			}
			if i == 0 {
				text = c + " "
				continue
			}
			w := max(width[i], utf8.RuneCountInString(head[i]))
			text += c + strings.Repeat(" ", w-utf8.RuneCountInString(c)) + "  "
		}
		b.WriteString("\n  " + strings.TrimRight(text, " "))
	}
	if d.more > 0 {
		b.WriteString("\n  … and more rows that differ")
	}
	return b.String()
}
