package spectest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/exec"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/spec"
	"github.com/tridentd/tridentd/state"
)

// checkCalls reports calls of queries that the pipeline hasn't got, and rows that no answer to them can have. What is wrong with arguments is for
// the query to say, as it may be what a test is about.
func (r *run) checkCalls() error {
	for _, b := range r.test.Batches {
		for i := range b.Expect.Calls {
			c := &b.Expect.Calls[i]
			q, err := exec.QueryNamed(r.plan, c.Query.Text)
			if err != nil {
				return r.test.ProblemAt(c.Query, "", "%v", err)
			}
			if c.Answer != nil {
				if err := r.checkColumns(c.Answer, "query "+q.Name, q.Columns); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ask calls the queries of a batch over what it has left, and returns what differs from the answers that are expected.
func (r *run) ask(ctx context.Context, answers *exec.Answers, snap *pebblestate.Snapshot, clock time.Time) (failures []string, err error) {
	txid := snap.Txid()
	for i := range r.test.Batches[txid-1].Expect.Calls {
		c := &r.test.Batches[txid-1].Expect.Calls[i]
		q, err := exec.QueryNamed(r.plan, c.Query.Text)
		if err != nil {
			return nil, err
		}
		rows, err := call(ctx, answers, q, c.Args, snap, clock)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if f := r.compareAnswer(txid, c, q, rows, err); f != "" {
			failures = append(failures, f)
		}
	}
	return failures, nil
}

// call asks a query as an HTTP client would: with a document.
func call(ctx context.Context, answers *exec.Answers, q *plan.Query, given *spec.Literal, snap *pebblestate.Snapshot, clock time.Time) (rows [][]value.Value, err error) {
	doc := []byte("{}")
	if given != nil {
		doc = given.AppendJSON(nil)
	}
	args, err := q.Decode(doc)
	if err != nil {
		return nil, err
	}
	a, err := answers.Ask(ctx, q, args, snap, clock)
	if err != nil {
		return nil, err
	}
	err = a.Rows(func(row []value.Value) error {
		var copied []value.Value
		for _, v := range row {
			copied = append(copied, v.Clone())
		}
		rows = append(rows, copied)
		return nil
	})
	return rows, err
}

// compareAnswer holds what a call came to against what is expected.
func (r *run) compareAnswer(txid batch.Txid, c *spec.TestCall, q *plan.Query, rows [][]value.Value, err error) string {
	switch {
	case c.Error == nil && err != nil:
		return fmt.Sprintf("%s: after batch %d query %s failed: %v", r.test.PlaceOf(c.Query), txid, q.Name, err)
	case c.Error == nil:
		d := difference{cols: q.Columns}
		partners := inOrder(rows, q.Columns, c.Answer.List)
		if !q.Sorted {
			partners = inAnyOrder(rows, q.Columns, c.Answer.List)
		}
		d.unmatched(rows, c.Answer.List, partners)
		return d.text(fmt.Sprintf("%s: after batch %d the answer of query %s isn't as expected", r.test.PlaceOf(c.Query), txid, q.Name))
	case err == nil:
		return fmt.Sprintf("%s: after batch %d query %s was answered; it was expected to fail with %q", r.test.PlaceOf(c.Query), txid, q.Name, c.Error.Text)
	case !strings.Contains(err.Error(), c.Error.Text):
		return fmt.Sprintf("%s: after batch %d query %s failed, but not with %q: %v", r.test.PlaceOf(c.Query), txid, q.Name, c.Error.Text, err)
	}
	return ""
}

// unmatched adds the rows that have no partner: partners has, by number of an expected row, that of the row that is there; -1 for none.
func (d *difference) unmatched(rows [][]value.Value, want []*spec.Literal, partners []int) {
	matched := make([]bool, len(rows))
	for i, k := range partners {
		if k < 0 {
			d.want(want[i])
		} else {
			matched[k] = true
		}
	}
	for k, row := range rows {
		if !matched[k] {
			d.got(row)
		}
	}
}

// inOrder matches the first row with the first, and so on.
func inOrder(rows [][]value.Value, cols []state.Column, want []*spec.Literal) []int {
	partners := make([]int, len(want))
	for i := range want {
		if partners[i] = i; i >= len(rows) || !equalAll(rows[i], cols, want[i]) {
			partners[i] = -1
		}
	}
	return partners
}

// inAnyOrder matches as many rows as can be. An expected row that names few fields may be equal to several that are there: where another has
// taken the only one that is left for it, that one looks for a new partner.
func inAnyOrder(rows [][]value.Value, cols []state.Column, want []*spec.Literal) []int {
	partners, takenBy := make([]int, len(want)), make([]int, len(rows))
	for i := range partners {
		partners[i] = -1
	}
	for k := range takenBy {
		takenBy[k] = -1
	}
	var match func(i int, tried []bool) bool
	match = func(i int, tried []bool) bool {
		for k := range rows {
			if tried[k] || !equalAll(rows[k], cols, want[i]) {
				continue
			}
			tried[k] = true
			if takenBy[k] < 0 || match(takenBy[k], tried) {
				partners[i], takenBy[k] = k, i
				return true
			}
		}
		return false
	}
	for i := range want {
		match(i, make([]bool, len(rows)))
	}
	return partners
}
