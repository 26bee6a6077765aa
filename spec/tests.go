package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Test is one test of a pipeline: batches of records, and what is expected to come of them.
type Test struct {
	Name    string
	Place   string // file and line
	Tables  map[string][]*Literal
	Batches []TestBatch

	r  *reporter
	at pos
}

// TestBatch is one batch of a Test; its txid is its number, from 1.
type TestBatch struct {
	Clock     time.Time // zero: a second after the batch before
	Watermark time.Time // zero: where the records have brought it
	// Records are the batch's, by "source", for its partition 0, or "source/number".
	Records map[string][]*Literal
	// RecordKeys are the keys of Records in the order of the file.
	RecordKeys []string
	Expect     Expectation
}

// Expectation is what a batch must leave. Nothing is asked of a state that isn't named. A batch that turns rows away must say so.
type Expectation struct {
	States   map[string]*Literal // a list of rows each, of which the named fields count; in the order of Names
	Names    []string
	Rejected *Literal // a list of rows; nil: none
	// Sinks are the rows that the batch has for sinks, a list each, in order; Outputs are their names as the file has them.
	Sinks   map[string]*Literal
	Outputs []string
	// Error is a part of the error that the batch must stop the pipeline with; nil: it commits.
	Error *Literal
	// Calls are the queries that are asked once the batch has committed.
	Calls []TestCall
}

// TestCall is a call of a query, and what must come of it.
type TestCall struct {
	Query  *Literal
	Args   *Literal // fields with values; nil: none are given
	Answer *Literal // a list of rows; nil: it must fail
	Error  *Literal // a part of the error; nil: it must not fail
}

// ProblemAt reports what shows to be wrong with a literal of the test only when it is used; nil stands for the test as a whole.
func (t *Test) ProblemAt(l *Literal, hint, format string, args ...any) Problem {
	at := t.at
	if l != nil {
		at = l.keyAt
	}
	return Problem{File: t.r.file, Line: at.line, Column: at.column, Msg: fmt.Sprintf(format, args...), Hint: hint, Source: t.r.line(at.line)}
}

// PlaceOf tells file and line of a literal.
func (t *Test) PlaceOf(l *Literal) string { return fmt.Sprintf("%s:%d", t.r.file, l.keyAt.line) }

func testsField() *field {
	rows := func(name, doc, example string) *field {
		return &field{name: name, kind: kindValue, doc: doc, example: example}
	}
	return &field{name: "tests", kind: kindList, doc: "Tests of the pipeline, which `tridentd test` runs. They may also stand in a file of their own beside this one, `NAME_test.yaml`.", item: &field{
		name: "test", kind: kindObject, doc: "One test.", fields: []*field{
			{name: "name", kind: kindString, required: true, doc: "What the test shows."},
			{name: "tables", kind: kindMap, keys: kindName, doc: "Rows of static tables, in place of what their files hold. A table that isn't named is read from its files.", item: rows("table", "The table's rows, as records.", "")},
			{name: "batches", kind: kindList, required: true, doc: "The batches, in order: the first has txid 1.", item: &field{
				name: "batch", kind: kindObject, doc: "One batch. All of it may be left out: `{}`.", fields: []*field{
					{name: "records", kind: kindMap, keys: kindRef, doc: "What the batch takes: for each source the list of its records. `NAME` is partition 0 of a source, `NAME/2` its partition 2.", item: rows("records of", "The records.", "")},
					{name: "clock", kind: kindString, def: "a second after the batch before", doc: "The batch's clock, in RFC 3339. The first one's is 2026-01-01T00:00:00Z."},
					{name: "watermark", kind: kindString, def: "where the records have brought it", doc: "To where event time has come before this batch, in all sources that have any: windows that end by then close in it. In RFC 3339."},
					{name: "expect", kind: kindObject, doc: "What must be there once the batch has committed.", fields: []*field{
						{name: "states", kind: kindMap, keys: kindName, doc: "For each state that counts the list of all its rows. Of a row the fields that are named count; those of the key must be.", item: rows("rows of", "The state's rows.", "")},
						{name: "sinks", kind: kindMap, keys: kindName, doc: "For each sink that counts the list of all records that the batch has for it, in order. Of a record the fields that are named count; `_key` is its key. No target is contacted.", item: rows("records for", "The records.", "")},
						{name: "queries", kind: kindList, doc: "Calls of queries over what the batch has left, and the answers to them.", item: &field{
							name: "call", kind: kindObject, doc: "One call, made as over HTTP.", fields: []*field{
								{name: "call", kind: kindValue, required: true, doc: "The query's name."},
								{name: "args", kind: kindValue, def: "none", example: "args: {customer: ann}", doc: "The arguments with their values. One that is left out is null."},
								rows("answer", "The list of all rows of the answer: in order, if the query sorts them, otherwise in any order. Of a row the fields that are named count.", "answer: [{country: Sweden, orders: 2}]"),
								{name: "error", kind: kindValue, doc: "In place of an answer: a part of the error with which the call must fail."},
							},
						}},
						rows("rejected", "The rows that the batch turns away, by source, partition and offset, with those of the fields `kind`, `source`, `partition`, `offset`, `step`, `cause`, `key`, `value` and `dead` (it became a dead letter) that count; of `step` and `cause` a part will do. Without this the batch may turn nothing away.", "rejected:\n  - {kind: late, source: views}"),
						{name: "error", kind: kindValue, doc: "A part of the error with which this batch, the last one, must stop the pipeline."},
					}},
				},
			}},
		},
	}}
}

// testGrammar is the whole of what a file of tests may hold.
func testGrammar() *field {
	return &field{
		name: "test file", kind: kindObject,
		fields: []*field{
			{name: "pipeline", kind: kindString, doc: "The file of the pipeline.", def: "the test's file without `_test`"},
			func() *field {
				f := testsField()
				f.required = true
				return f
			}(),
		},
	}
}

// testSuffix ends the name of a file of tests, without its extension.
const testSuffix = "_test"

// IsTestFile tells whether a path is that of a file of tests.
func IsTestFile(path string) bool {
	return strings.HasSuffix(strings.TrimSuffix(path, filepath.Ext(path)), testSuffix)
}

// LoadTests reads a pipeline's file, or a file of tests of one, and returns the pipeline with its tests: those in its file, and those in
// the file of tests beside it, or only the latter if that is what path names.
func LoadTests(path string, opts Options) (*Pipeline, []*Test, error) {
	if IsTestFile(path) {
		ext := filepath.Ext(path)
		tests, of, err := loadTestFile(path, opts)
		if err != nil {
			return nil, nil, err
		}
		file := strings.TrimSuffix(strings.TrimSuffix(path, ext), testSuffix) + ext
		if of != "" {
			if file = of; !filepath.IsAbs(of) {
				file = filepath.Join(filepath.Dir(path), of)
			}
		}
		p, err := Load(file, opts)
		return p, tests, err
	}
	p, err := Load(path, opts)
	if err != nil {
		return nil, nil, err
	}
	tests := p.m.tests
	ext := filepath.Ext(path)
	beside := strings.TrimSuffix(path, ext) + testSuffix + ext
	if _, err := os.Stat(beside); errors.Is(err, fs.ErrNotExist) {
		return p, tests, nil
	}
	more, _, err := loadTestFile(beside, opts)
	return p, append(tests, more...), err
}

// loadTestFile reads a file of tests; of is the pipeline's file, if it is named.
func loadTestFile(path string, opts Options) (tests []*Test, of string, err error) {
	src, err := readFile(path)
	if err != nil {
		return nil, "", err
	}
	r, err := reportOn(path, src)
	if err != nil {
		return nil, "", err
	}
	tree := &treeParser{reporter: r, env: opts.env()}
	root := tree.parseTree(src, testGrammar())
	if root == nil || tree.swallowed {
		return nil, "", r.problems().asError()
	}
	tests = r.tests(root.get("tests"))
	return tests, root.get("pipeline").str(), r.problems().asError()
}

// tests reads a list of tests, as far as that goes without the pipeline.
func (r *reporter) tests(n *node) []*Test {
	if n == nil {
		return nil
	}
	var all []*Test
	names := map[string]bool{}
	for _, c := range n.list {
		t := &Test{Name: c.get("name").str(), Place: fmt.Sprintf("%s:%d", r.file, c.at.line), Tables: map[string][]*Literal{}, r: r, at: c.at}
		if names[t.Name] {
			r.add(c.get("name").at, "", "two tests have this name")
		}
		names[t.Name] = true
		if tables := c.get("tables"); tables != nil {
			for _, name := range tables.keys {
				t.Tables[name] = r.listOf(tables.values[name].literal, "the rows of a table")
			}
		}
		if batches := c.get("batches"); batches != nil {
			for i, b := range batches.list {
				t.Batches = append(t.Batches, r.testBatch(b, i == len(batches.list)-1))
			}
		}
		all = append(all, t)
	}
	return all
}

func (r *reporter) testBatch(n *node, last bool) TestBatch {
	b := TestBatch{Records: map[string][]*Literal{}, Expect: Expectation{States: map[string]*Literal{}}}
	instant := func(name string) (at time.Time) {
		if c := n.get(name); c != nil {
			var err error
			if at, err = time.Parse(time.RFC3339Nano, c.text); err != nil {
				r.add(c.at, "write it as 2026-01-01T00:00:00Z", "%s: %q is no time", name, c.text)
			}
		}
		return at
	}
	b.Clock, b.Watermark = instant("clock"), instant("watermark")
	if records := n.get("records"); records != nil {
		for _, name := range records.keys {
			b.RecordKeys = append(b.RecordKeys, name)
			b.Records[name] = r.listOf(records.values[name].literal, "records")
		}
	}
	e := n.get("expect")
	if states := e.get("states"); states != nil {
		for _, name := range states.keys {
			rows := states.values[name].literal
			r.rowsOf(rows)
			b.Expect.Names = append(b.Expect.Names, name)
			b.Expect.States[name] = rows
		}
	}
	if sinks := e.get("sinks"); sinks != nil {
		b.Expect.Sinks = map[string]*Literal{}
		for _, name := range sinks.keys {
			rows := sinks.values[name].literal
			r.rowsOf(rows)
			b.Expect.Outputs = append(b.Expect.Outputs, name)
			b.Expect.Sinks[name] = rows
		}
	}
	if calls := e.get("queries"); calls != nil {
		for _, c := range calls.list {
			if call, ok := r.testCall(c); ok {
				b.Expect.Calls = append(b.Expect.Calls, call)
			}
		}
	}
	if rejected := e.get("rejected"); rejected != nil {
		b.Expect.Rejected = rejected.literal
		r.rowsOf(rejected.literal)
	}
	if c := e.get("error"); c != nil {
		b.Expect.Error = c.literal
		switch {
		case c.literal.Kind != LiteralText || c.literal.Text == "":
			r.add(c.literal.at, "", "error is a part of the error's text, not %s", c.literal.Kind)
		case !last:
			r.add(c.keyAt, "", "no batch can follow one that stops the pipeline")
		}
	}
	return b
}

// testCall reads a call of a query; ok is false where it can't be told what is meant.
func (r *reporter) testCall(n *node) (call TestCall, ok bool) {
	literal := func(name string) *Literal {
		if c := n.get(name); c != nil {
			return c.literal
		}
		return nil
	}
	call = TestCall{Query: literal("call"), Args: literal("args"), Answer: literal("answer"), Error: literal("error")}
	switch {
	case call.Query == nil: // reported
		return call, false
	case call.Query.Kind != LiteralText:
		r.add(call.Query.at, "", "call is the name of a query, not %s", call.Query.Kind)
		return call, false
	case call.Args != nil && call.Args.Kind != LiteralMap:
		r.add(call.Args.at, "", "arguments are fields with values, not %s", call.Args.Kind)
		return call, false
	case (call.Answer == nil) == (call.Error == nil):
		r.add(call.Query.keyAt, "", "a call has either an answer or an error")
		return call, false
	case call.Error != nil && (call.Error.Kind != LiteralText || call.Error.Text == ""):
		r.add(call.Error.at, "", "error is a part of the error's text, not %s", call.Error.Kind)
	case call.Answer != nil:
		r.rowsOf(call.Answer)
	}
	return call, true
}

// listOf takes a list, or reports that it is none.
func (r *reporter) listOf(l *Literal, what string) []*Literal {
	if l.Kind != LiteralList {
		r.add(l.at, "", "%s are a list, not %s", what, l.Kind)
	}
	return l.List
}

// rowsOf reports what is no list of rows.
func (r *reporter) rowsOf(l *Literal) {
	for _, row := range r.listOf(l, "rows") {
		if row.Kind != LiteralMap {
			r.add(row.at, "", "a row is fields with values, not %s", row.Kind)
		}
	}
}

// Shape is how the records of a source, or the rows of a static table, are written.
type Shape struct {
	Decode  string   // json, csv, string or bytes
	Columns []string // of csv: those of the file's header line if it could be read, else those in use
	Exact   bool     // Columns are those of a header line
	Nulls   []string // texts of csv that stand for null
}

// SourceShape tells how a source's records are written.
func (p *Pipeline) SourceShape(name string) (Shape, bool) {
	for _, s := range p.c.sources {
		if s.decl.name != name {
			continue
		}
		return shapeFor(&s.decl.decode, s.decl.header, s.root.cols), true
	}
	return Shape{}, false
}

// TableShape tells how a static table's rows are written.
func (p *Pipeline) TableShape(name string) (Shape, bool) {
	for _, s := range p.c.statics {
		if s.decl.name == name {
			return shapeFor(&s.decl.decode, s.decl.header, s.cols), true
		}
	}
	return Shape{}, false
}

func shapeFor(d *decodeDecl, header []string, cols []*column) Shape {
	s := Shape{Decode: d.kind, Columns: header, Exact: header != nil, Nulls: d.nulls}
	if header == nil {
		for _, c := range cols {
			if (c.used || c.check) && c.origin == fromDocument {
				s.Columns = append(s.Columns, c.name)
			}
		}
	}
	return s
}
