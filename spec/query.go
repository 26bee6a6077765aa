package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// A query is a pipeline of its own: its source is the arguments of a call, one JSON object, its only stream the query's steps. It is
// checked behind the pipeline, whose tables and states it looks rows up in, and is no part of what decides results.

func queryField() *field {
	return &field{name: "query", kind: kindObject, fields: []*field{
		{
			name: "args", kind: kindMap, keys: kindRef, def: "none", example: "args: {customer: string}", item: &field{kind: kindEnum, enum: typeNames, doc: "The argument's type."},
			doc: "The arguments and their types. They are the fields of the row that the steps begin with; one that a call leaves out is null.",
		},
		{name: "steps", kind: kindList, item: stepField(), def: "none", doc: "What is done with the row of arguments, in this order: `lookup`, `filter`, `set`, `keep`, `drop`, `flat_map`, `distinct`, `group_by` with `batch_aggregate`, `sort`, `limit`."},
		{name: "answer", kind: kindMap, keys: kindField, item: &field{kind: kindExpr}, required: true, example: "answer:\n  country: c.country", doc: "The columns of the answer, which has a row for each that the steps leave."},
	}}
}

// queryDecl is one of `queries`.
type queryDecl struct {
	name   string
	at     pos
	args   []typeDecl
	stream *streamDecl
	answer []string // the columns
}

// answerable are the steps that a query may have: those that keep nothing and take no other rows.
var answerable = []string{"lookup", "filter", "set", "keep", "drop", "flat_map", "distinct", "group_by", "batch_aggregate", "sort", "limit"}

func (b *modeler) queries(n *node) {
	if n == nil {
		return
	}
	for _, name := range n.keys {
		b.m.queries = append(b.m.queries, b.query(name, n.values[name]))
	}
}

func (b *modeler) query(name string, n *node) *queryDecl {
	q := &queryDecl{name: name, at: n.keyAt, stream: b.stream(name, n)}
	q.stream.query = true
	q.stream.from = []*node{{text: name, at: n.at, keyAt: n.keyAt}}
	if args := n.get("args"); args != nil {
		for _, arg := range args.keys {
			t := args.values[arg]
			if isMeta(arg) {
				b.add(t.keyAt, "", "an argument can't be called %s, which is a property of records", arg)
			}
			q.args = append(q.args, typeDecl{name: arg, at: t.keyAt, kind: kindByName[t.text]})
		}
	}
	for _, st := range q.stream.steps {
		if !slices.Contains(answerable, st.op) {
			b.add(st.at, "a query may have "+strings.Join(answerable, ", "), "a query changes nothing and has no rows but its own: there can be no %s", st.op)
		}
	}
	for _, p := range q.stream.peeks {
		b.add(p.at, "", "a query has no batches: there can be no peek")
	}
	answer := n.get("answer")
	if answer == nil {
		return q
	}
	st := &stepDecl{op: "answer", at: answer.keyAt, n: answer, label: name + " answer"}
	for _, k := range answer.keys {
		st.exprs = b.exprs(st.exprs, k, answer.values[k])
	}
	q.answer = answer.keys
	q.stream.steps = append(q.stream.steps, st)
	return q
}

// queryCheck is a checked query.
type queryCheck struct {
	decl *queryDecl
	c    *checker
	src  *source
	// Of the answer.
	cols []state.Column
}

// answerEnd is the end of the branch at which a query's answer is.
type answerEnd struct {
	frame *frame
	cols  []int
}

// checkQueries checks the queries, once everything else has been.
func (c *checker) checkQueries() {
	for _, d := range c.m.queries {
		q := &queryCheck{decl: d}
		q.c = &checker{
			reporter: c.reporter, outer: c, query: q, statics: c.statics,
			m: &model{
				outer: c.m, name: c.m.name, streams: []*streamDecl{d.stream},
				sources: []*sourceDecl{{name: d.name, at: d.at, arguments: true, decode: decodeDecl{kind: "json", types: d.args}}},
			},
		}
		q.c.check()
		if len(q.c.sources) == 1 {
			q.src = q.c.sources[0]
		}
		c.queries = append(c.queries, q)
	}
}

// answerEnd takes the columns of the answer.
func (c *checker) answerEnd(e *env) *answerEnd {
	end := &answerEnd{frame: e.frame}
	for _, name := range c.query.decl.answer {
		f, ok := e.lookup(name)
		if !ok {
			continue // its expression is wrong, and reported
		}
		end.cols = append(end.cols, f.Index)
		c.query.cols = append(c.query.cols, state.Column{Name: name, Type: f.Type.Kind.String()})
	}
	return end
}

// answerRun collects, in one task, the rows of the answer, each in the binary encoding.
type answerRun struct {
	cols []*vec.Column
	rows [][]byte
}

func (t *task) newAnswerRun(e *answerEnd) *answerRun {
	f := t.frame(e.frame)
	r := &answerRun{}
	for _, k := range e.cols {
		r.cols = append(r.cols, f.rows.Cols[k])
	}
	t.answer = r
	return r
}

func (r *answerRun) run(sel []int32) {
	for _, i := range sel {
		r.rows = append(r.rows, appendRow(nil, r.cols, int(i)))
	}
}

// leave hands the rows over.
func (r *answerRun) leave(tc *plan.TaskContext) {
	if r != nil && len(r.rows) > 0 {
		tc.Persist[0] = r.rows
		r.rows = nil
	}
}

func answerRows(left any, emit func(row []value.Value) error) error {
	var row []value.Value
	for _, rest := range left.([][]byte) {
		row = row[:0]
		for len(rest) > 0 {
			v, behind, err := value.DecodeBinary(rest)
			if err != nil {
				return err
			}
			row, rest = append(row, v), behind
		}
		if err := emit(row); err != nil {
			return err
		}
	}
	return nil
}

// plan makes the query of a plan.
func (q *queryCheck) plan() *plan.Query {
	p := &plan.Query{
		Name: q.decl.name, Params: q.params(), Columns: q.cols, Decode: q.decode, Rows: answerRows, Lines: q.lines(),
		NewTask: func(args any) plan.Task { return &queryTask{task: newTask(q.src), args: args.([]byte)} },
	}
	for _, o := range q.c.outputs {
		if o.join != nil {
			p.Exchanges = append(p.Exchanges, o.joinExchange())
		} else {
			p.Exchanges = append(p.Exchanges, o.exchange())
		}
	}
	for _, st := range q.decl.stream.steps {
		p.Sorted = q.c.m.sorts(st, p.Sorted)
		if st.op != "lookup" {
			continue
		}
		name := st.n.get("state").text
		if q.c.m.static(name) != nil {
			p.Tables = append(p.Tables, name)
		} else {
			p.States = append(p.States, name)
		}
	}
	slices.Sort(p.States)
	slices.Sort(p.Tables)
	p.States, p.Tables = slices.Compact(p.States), slices.Compact(p.Tables)
	return p
}

// sorts tells whether rows come out of a step in an order that was asked for, as they do or don't go in.
func (m *model) sorts(st *stepDecl, were bool) bool {
	switch st.op {
	case "sort":
		return true
	case "limit":
		return were && st.n.get("per") == nil
	case "lookup":
		return were && m.looksIn(st) == nil
	case "distinct", "batch_aggregate":
		return false
	}
	return were
}

func (q *queryCheck) params() (all []state.Column) {
	for _, a := range q.decl.args {
		all = append(all, state.Column{Name: a.name, Type: a.kind.String()})
	}
	return all
}

func (q *queryCheck) lines() []string {
	lines := []string{fmt.Sprintf("query %s: %s to %s", q.decl.name, columnsText(q.params()), columnsText(q.cols))}
	for i, st := range q.decl.stream.steps {
		if i < len(q.decl.stream.steps)-1 {
			lines = append(lines, fmt.Sprintf("  %d %s", i+1, st.text(q.decl.stream)))
			continue
		}
		_, text, _ := strings.Cut(st.text(q.decl.stream), " ")
		lines = append(lines, "  answer "+text)
	}
	return lines
}

// decode checks the arguments of a call.
func (q *queryCheck) decode(text []byte) (any, error) {
	wrong := func(err error) (any, error) {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", fmt.Errorf("arguments of query %s: %w", q.decl.name, err), "")
	}
	var mem vec.Arena
	var fields []target
	var known []string
	for _, a := range q.decl.args {
		typ := vec.Type{Kind: a.kind}
		f := target{name: a.name, typ: typ, col: new(vec.Column)}
		f.col.Reset(typ, 1)
		fields, known = append(fields, f), append(known, a.name)
	}
	dec := newJSONDecoder(fields, &mem)
	dec.reset()
	if err := dec.decode(&batch.Record{Value: text}, 0); err != nil {
		return wrong(err)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return wrong(err)
	}
	for name := range given { // order: any that is wrong will do; there is one in most cases
		if slices.Contains(known, name) {
			continue
		}
		err := fmt.Errorf("there is no argument %s", name)
		if near, ok := names.Nearest(name, known); ok {
			err = fmt.Errorf("%w; did you mean %s?", err, near)
		}
		return wrong(err)
	}
	return slices.Clone(text), nil
}

// queryTask sends the arguments of one call through a query's steps.
type queryTask struct {
	*task
	args []byte
}

func (t *queryTask) Process(*batch.Chunk) error { panic("spec: a query takes no records") }

func (t *queryTask) End() error {
	if err := t.task.Process(&batch.Chunk{Records: []batch.Record{{Value: t.args, Timestamp: txstate.NoTime}}}); err != nil {
		return err
	}
	return t.task.End()
}

// asked tells whether a source's rows are those of a query.
func (s *source) asked() bool {
	if s.out != nil {
		return s.out.stream.query
	}
	return s.decl.arguments
}

// failedAnswer is the error of a call for a row that a step has failed on.
func failedAnswer(step, cause string) error {
	return batch.NewError(batch.Permanent, batch.CodeBadRecord, step, errors.New(cause), "ask with other arguments, or mend the step")
}
