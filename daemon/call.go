package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/txstate"
)

// answers answers the queries that a pipeline declares.
type answers struct {
	plan *plan.Plan
	exec *exec.Answers
}

func newAnswers(p *engine.Pipeline) (*answers, error) {
	pl, err := p.Plan()
	if err != nil {
		return nil, err
	}
	return &answers{plan: pl, exec: exec.NewAnswers(pl)}, nil
}

func (a *answers) list() []server.QueryInfo {
	all := make([]server.QueryInfo, 0, len(a.plan.Queries))
	for _, q := range a.plan.Queries {
		all = append(all, server.QueryInfo{Name: q.Name, Params: q.Params, Columns: q.Columns, States: append([]string{}, q.States...)})
	}
	return all
}

// call is a call of a query whose arguments have been read.
type call struct {
	of    *answers
	query *plan.Query
	args  any
}

func (a *answers) prepare(c server.QueryCall) (*call, error) {
	q, err := exec.QueryNamed(a.plan, c.Name)
	if err != nil {
		return nil, server.NotFound(err)
	}
	text := c.Args
	if text == nil {
		var args []query.Arg
		for _, name := range sortedKeys(c.Texts) {
			for _, v := range c.Texts[name] {
				args = append(args, query.Arg{Name: name, Text: v})
			}
		}
		if text, err = query.ArgsJSON(q.Params, args); err != nil {
			return nil, err
		}
	}
	args, err := q.Decode(text)
	if err != nil {
		return nil, err
	}
	return &call{of: a, query: q, args: args}, nil
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m { // order: sorted below
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// answer hands the answer to w. entries is the ledger, in which the clock of the snapshot's last batch stands.
func (c *call) answer(
	ctx context.Context, snap *pebblestate.Snapshot, entries func(ctx context.Context, from, to batch.Txid) iter.Seq2[txstate.Entry, error], w server.RowWriter,
) error {
	var clock time.Time
	if t := snap.Txid(); t > 0 {
		for e, err := range entries(ctx, t, t) {
			if err != nil {
				return err
			}
			clock = e.Time
		}
	}
	a, err := c.of.exec.Ask(ctx, c.query, c.args, snap, clock)
	if err != nil {
		return err
	}
	if err := w.Begin(a.Txid, c.query.Columns); err != nil {
		return err
	}
	return a.Rows(func(row []value.Value) error { return w.Row(row) })
}

// callFlags are those of the command query that ask a query.
type callFlags struct {
	name    string
	atLeast uint64
	timeout time.Duration
}

// queryCall answers a query: by the running daemon, by the directory at rest, or by the states as they were.
func (a *app) queryCall(ctx context.Context, args []string, data string, f *callFlags, at *atFlags, w rowPrinter) error {
	t, rest, err := a.resolve(args, data)
	if err != nil {
		return err
	}
	known, err := newAnswers(t.pipeline)
	if err != nil {
		return err
	}
	q, err := exec.QueryNamed(known.plan, f.name)
	if err != nil {
		return err
	}
	given, err := query.ParseArgs(q.Params, rest)
	if err != nil {
		return err
	}
	c := server.QueryCall{Name: f.name, AtLeast: batch.Txid(f.atLeast)}
	if c.Args, err = query.ArgsJSON(q.Params, given); err != nil {
		return err
	}
	prepared, err := known.prepare(c)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("query %s: no answer within %s; give it more with --timeout", f.name, f.timeout))
	defer cancel()
	read := func(ctx context.Context, db *pebblestate.DB, snap *pebblestate.Snapshot) error {
		if snap.Txid() < c.AtLeast {
			return fmt.Errorf("the pipeline isn't running, and what it left ends at txid %d, before %d", snap.Txid(), c.AtLeast)
		}
		return prepared.answer(ctx, snap, db.Store().Entries, w)
	}
	if at.set() {
		return a.inThePast(ctx, t, func(p *past) error {
			txid, err := at.choose(ctx, p)
			if err != nil {
				return err
			}
			return p.at(ctx, txid, func(snap *pebblestate.Snapshot) error { return read(ctx, p.db, snap) })
		})
	}
	err = askOrRead(ctx, t.dir, func(cl *server.Client) error {
		return cl.Call(ctx, c, f.timeout, w) // it keeps the limit itself
	}, func(db *pebblestate.DB) error {
		snap, err := db.Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close() //nolint:errcheck // nothing was written
		return read(limited, db, snap)
	})
	if errors.Is(err, context.DeadlineExceeded) && limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}
