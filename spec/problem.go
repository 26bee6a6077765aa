package spec

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tridentd/tridentd/batch"
)

// Problem is one mistake in a pipeline's file.
type Problem struct {
	File         string
	Line, Column int // from 1; columns count characters; both 0 where the whole file is meant
	Msg          string
	Hint         string // what may have been meant, or what to write instead; may be empty
	Source       string // the line as it stands in the file, without its end and passwords in URLs
}

func (p Problem) Error() string {
	var b strings.Builder
	p.write(&b)
	return strings.TrimSuffix(b.String(), "\n")
}

func (p *Problem) write(b *strings.Builder) {
	if p.Line == 0 {
		fmt.Fprintf(b, "%s: %s\n", p.File, p.Msg)
		if p.Hint != "" {
			fmt.Fprintf(b, "      %s\n", p.Hint)
		}
		return
	}
	fmt.Fprintf(b, "%s:%d:%d: %s\n", p.File, p.Line, p.Column, p.Msg)
	fmt.Fprintf(b, "%5d | %s\n", p.Line, p.Source)
	fmt.Fprintf(b, "      | %s^", indentTo(p.Source, p.Column))
	if p.Hint != "" {
		b.WriteString(" " + p.Hint)
	}
	b.WriteByte('\n')
}

// indentTo returns blanks as wide as the text before column, keeping its tabs so that the caret lines up.
func indentTo(line string, column int) string {
	var b strings.Builder
	for i := 1; i < column; i++ {
		r, n := utf8.DecodeRuneInString(line)
		line = line[n:]
		if r == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// Problems are all mistakes of one file, in the order of their places. A nil or empty value is no error; use
// asError to turn it into one.
type Problems []Problem

func (ps Problems) Error() string {
	var b strings.Builder
	for i := range ps {
		ps[i].write(&b)
	}
	if len(ps) == 1 {
		b.WriteString("1 error, nothing was started")
	} else {
		fmt.Fprintf(&b, "%d errors, nothing was started", len(ps))
	}
	return b.String()
}

// Unwrap lets errors.As find single problems.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i := range ps {
		errs[i] = ps[i]
	}
	return errs
}

func (ps Problems) asError() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// pos is a place in the file; the zero value is the file as a whole.
type pos struct{ line, column int }

// reporter collects problems of one file.
type reporter struct {
	file  string
	lines []string
	list  Problems
}

func newReporter(file string, src []byte) *reporter {
	lines := strings.Split(string(src), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	return &reporter{file: file, lines: lines}
}

// saying is what an error says, and the remedy if it has one.
func saying(err error) (msg, hint string) {
	if e, ok := errors.AsType[*batch.Error](err); ok && e.Err != nil {
		return e.Err.Error(), e.Remedy
	}
	return err.Error(), ""
}

// urlPassword finds the password in a URL.
var urlPassword = regexp.MustCompile(`(://[^\s/:@"']*:)([^\s/@"']+)(@)`)

// line returns a line to show, with stars for the characters of passwords in URLs.
func (r *reporter) line(n int) string {
	if n < 1 || n > len(r.lines) {
		return ""
	}
	return urlPassword.ReplaceAllStringFunc(r.lines[n-1], func(s string) string {
		m := urlPassword.FindStringSubmatch(s)
		if strings.HasPrefix(m[2], "${") {
			return s
		}
		return m[1] + strings.Repeat("*", utf8.RuneCountInString(m[2])) + m[3]
	})
}

// add notes a problem; the same message at the same place (a step shared by two streams) counts once.
func (r *reporter) add(at pos, hint, format string, args ...any) {
	p := Problem{File: r.file, Line: at.line, Column: at.column, Msg: fmt.Sprintf(format, args...), Hint: hint, Source: r.line(at.line)}
	if !slices.Contains(r.list, p) {
		r.list = append(r.list, p)
	}
}

// problems returns what was found in the order of places.
func (r *reporter) problems() Problems {
	slices.SortStableFunc(r.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.list
}
