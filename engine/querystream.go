package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// QueryStream is a query that a pipeline answers: see Query.
type QueryStream[A, R any] struct {
	name    string
	plan    *plan.Query
	answers func() (*exec.Answers, error)
}

// Query declares a query called name: what Trident did with a DRPC stream. f makes the stream of answers of the stream of arguments; it may use
// Lookup and StateQuery over what p keeps, any operator within a batch, and nothing that keeps a state of its own. Each call is a batch of its
// own, of one value, over the states as one committed txid has left them: it never sees a part of a batch, nor one in flight, and the
// same arguments at the same txid have the same answer. Batch.Txid and Batch.Time are those of that txid.
//
// A is a struct whose fields are the names of the arguments, as codec.JSON has them. R is kept as PartitionPersist keeps its rows. The
// states that f reads must be declared before. A program asks by QueryStream.Ask; others by the command query --call and over HTTP.
func Query[A, R any](p *Pipeline, name string, f func(args Stream[A]) Stream[R]) *QueryStream[A, R] {
	q := &QueryStream[A, R]{name: name, answers: sync.OnceValues(func() (*exec.Answers, error) {
		pl, err := p.Plan()
		if err != nil {
			return nil, err
		}
		return exec.NewAnswers(pl), nil
	})}
	p.checkName("query", name)
	if slices.ContainsFunc(p.queries, func(o *queryDef) bool { return o.plan.Name == name }) {
		p.errorf("two queries are named %q", name)
	}
	params, err := value.RowOf[A]()
	if err != nil {
		p.errorf("query %s: arguments: %w", name, err)
		return q
	}
	dec := codec.JSON[A]()
	if err := dec.Err(); err != nil {
		p.errorf("query %s: arguments: %w", name, err)
		return q
	}
	rows, err := value.RowOf[R]()
	if err != nil {
		p.errorf("query %s: answer: %w", name, err)
		return q
	}
	inner := New(p.name)
	inner.outer = p
	n := &node[A]{stepName: stepName{step: "arguments"}}
	answers := f(Stream[A]{p: inner, n: n, trail: &trail{}})
	if answers.p != inner {
		p.errorf("query %s: its answers don't come of its arguments", name)
		return q
	}
	answers.to(func(b *builder) push[R] {
		var left []R
		b.begin = append(b.begin, func(*rec) { left = nil }) // the answer holds its own
		b.end = append(b.end, func(rc *rec) {
			if len(left) > 0 {
				rc.tc.Persist[0] = left
			}
		})
		return func(_ *rec, v R) { left = append(left, v) }
	})
	q.plan = &plan.Query{
		Name: name, Params: params.Columns(), Columns: rows.Columns(), Exchanges: inner.exchanges,
		Decode: func(text []byte) (any, error) {
			var args A
			d := dec.New()
			if err := d.Begin(nil); err != nil {
				return nil, err
			}
			if err := d.Decode(&batch.Record{Value: text}, &args); err != nil {
				return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", fmt.Errorf("arguments of query %s: %w", name, err), "")
			}
			return args, nil
		},
		NewTask: func(args any) plan.Task {
			v, _ := args.(A)
			return &argumentsTask[A]{chains: chains[A]{n: n}, args: v}
		},
		Rows: func(left any, emit func([]value.Value) error) error {
			var buf []byte
			var row []value.Value
			for _, v := range left.([]R) {
				var err error
				if buf, err = rows.Encode(buf[:0], v); err != nil {
					return fmt.Errorf("query %s: answer: %w", name, err)
				}
				row = row[:0]
				for rest := buf; len(rest) > 0; {
					var cell value.Value
					if cell, rest, err = value.DecodeBinary(rest); err != nil {
						return fmt.Errorf("query %s: answer: %w", name, err)
					}
					row = append(row, cell)
				}
				if err := emit(row); err != nil {
					return err
				}
			}
			return nil
		},
	}
	p.queries = append(p.queries, &queryDef{plan: q.plan, inner: inner})
	return q
}

// queryDef is a query under construction.
type queryDef struct {
	plan  *plan.Query
	inner *Pipeline // what its streams belong to
}

// finish completes the query, or says what is wrong with it.
func (q *queryDef) finish() []error {
	var errs []error
	for _, err := range q.inner.errs {
		errs = append(errs, fmt.Errorf("query %s: %w", q.plan.Name, err))
	}
	keeps := func(name string) {
		errs = append(errs, batch.NewError(batch.Permanent, batch.CodeConfiguration, "",
			fmt.Errorf("query %s: it keeps a state, %s", q.plan.Name, name), "a query changes nothing: use BatchAggregate, which is of each call"))
	}
	for _, e := range q.inner.exchanges {
		if e.State != nil {
			keeps(e.State.Schema.Name)
		}
	}
	for _, p := range q.inner.persists {
		keeps(p.Name)
	}
	if len(q.inner.sources)+len(q.inner.statics) > 0 {
		errs = append(errs, batch.NewError(batch.Permanent, batch.CodeConfiguration, "", fmt.Errorf("query %s: it declares a source or a table of its own", q.plan.Name), ""))
	}
	q.plan.States, q.plan.Tables = distinctSorted(q.inner.reads), distinctSorted(q.inner.tablesRead)
	q.plan.Lines = append([]string{"query " + q.plan.Name + ": " + columnNames(q.plan.Params) + " to " + columnNames(q.plan.Columns)}, q.inner.lines...)
	return errs
}

func distinctSorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// argumentsTask sends the arguments of one call through the query's chain.
type argumentsTask[A any] struct {
	chains[A]
	args A
}

func (t *argumentsTask[A]) Begin(tc *plan.TaskContext) error { return t.start(tc) }
func (t *argumentsTask[A]) Process(*batch.Chunk) error       { panic("engine: a query takes no records") }

func (t *argumentsTask[A]) End() error {
	t.rc.time = txstate.NoTime
	t.cur.push(&t.rc, t.args)
	return t.finish()
}

// Answer is what a query came to.
type Answer[R any] struct {
	Txid batch.Txid // that the states were at
	Rows []R        // in the order in which they came to the query's end
}

// AskOption is a setting of one call of a query.
type AskOption func(*asking)

type asking struct{ atLeast batch.Txid }

// AtLeast makes a call wait until txid has committed, so that it sees what that batch wrote: reading one's own writes. How long is
// up to the call's context.
func AtLeast(txid batch.Txid) AskOption { return func(a *asking) { a.atLeast = txid } }

// Ask answers the query with what the running pipeline has committed. The context's end is a time limit: a function of
// the query that runs on is waited for.
func (q *QueryStream[A, R]) Ask(ctx context.Context, h *Handle, args A, opts ...AskOption) (Answer[R], error) {
	var o asking
	for _, f := range opts {
		f(&o)
	}
	if err := h.WaitFor(ctx, o.atLeast); err != nil {
		return Answer[R]{}, fmt.Errorf("query %s: waiting for txid %d: %w", q.name, o.atLeast, err)
	}
	snap, err := h.Snapshot()
	if err != nil {
		return Answer[R]{}, err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	clock, err := h.clockOf(ctx, snap.Txid())
	if err != nil {
		return Answer[R]{}, err
	}
	a, err := q.AskSnapshot(ctx, snap, clock, args)
	return a, h.meanwhile(err)
}

// AskSnapshot answers the query with what a snapshot holds. clock is the Time of its last batch.
func (q *QueryStream[A, R]) AskSnapshot(ctx context.Context, snap *pebblestate.Snapshot, clock time.Time, args A) (Answer[R], error) {
	answers, err := q.answers()
	if err != nil {
		return Answer[R]{}, err
	}
	a, err := answers.Ask(ctx, q.plan, args, snap, clock)
	if err != nil {
		return Answer[R]{}, err
	}
	out := Answer[R]{Txid: a.Txid}
	for _, part := range a.Parts {
		out.Rows = append(out.Rows, part.([]R)...)
	}
	return out, nil
}

// clockOf is the Time of a committed batch; zero before the first one.
func (h *Handle) clockOf(ctx context.Context, txid batch.Txid) (time.Time, error) {
	if txid == 0 {
		return time.Time{}, nil
	}
	for e, err := range h.Entries(ctx, txid, txid) {
		return e.Time, err
	}
	return time.Time{}, nil
}

// describeQueries are the lines of the plan that tell of queries.
func describeQueries(queries []*plan.Query) []string {
	var lines []string
	for _, q := range queries {
		lines = append(lines, q.Lines...)
	}
	return lines
}

func sortedQueries(defs []*queryDef) []*plan.Query {
	var all []*plan.Query
	for _, d := range defs {
		all = append(all, d.plan)
	}
	slices.SortFunc(all, func(a, b *plan.Query) int { return strings.Compare(a.Name, b.Name) })
	return all
}
