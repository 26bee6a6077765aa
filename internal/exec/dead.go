package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/deadletter"
	"github.com/tridentd/tridentd/state"
)

// stagePolicy is the policy of stages whose rows come of several sources: a bad row stops the pipeline unless each of the sources
// lets its own pass, and becomes a dead letter if one of them does so with its own.
func stagePolicy(p *plan.Plan) plan.OnBad {
	policy := plan.Skip
	for _, s := range p.Sources {
		switch {
		case s.OnBad == plan.Stop:
			return plan.Stop
		case s.OnBad == plan.DeadLetter:
			policy = plan.DeadLetter
		}
	}
	return policy
}

func (x *Executor) sourcePolicy(r *batch.Range) plan.OnBad {
	return x.plan.Sources[x.sourceAt[r.Source]].OnBad
}

// DeadState is the state that counts the bad records that became dead letters, by which their limit is kept.
const DeadState = "_dead_letters"

// DeadSchema describes it: a row for each piece of batch time that the limit still looks at.
func DeadSchema() state.Schema {
	return state.Schema{
		Name: DeadState, Kind: "rows",
		Key: []state.Column{{Name: "since", Type: "timestamp"}},
		Values: []state.Column{
			{Name: "bad", Type: "int"},
			{Name: "records", Type: "int"}, // read, of all sources
		},
	}
}

// tally counts bad records by batch time: what the state _dead_letters holds. It is never changed.
type tally []counted

// counted is a piece of batch time that begins at since, in nanoseconds since 1970.
type counted struct {
	since        int64
	bad, records int64
}

// tallyPieces is into how many pieces the time that a limit looks back is cut. What has begun within it counts.
const tallyPieces = 60

// add returns the tally after a batch, and its sums over the time that the limit looks at.
func (t tally) add(l plan.DeadLimit, at time.Time, bad, records int64) (after tally, sum counted) {
	width := max(int64(l.Within)/tallyPieces, 1)
	since := at.UnixNano()
	since -= since % width
	for _, c := range t {
		if c.since > since-int64(l.Within) {
			after = append(after, c)
		}
	}
	if bad > 0 || records > 0 {
		i, ok := slices.BinarySearchFunc(after, since, func(c counted, since int64) int { return cmp.Compare(c.since, since) })
		if !ok {
			after = slices.Insert(after, i, counted{since: since})
		}
		after[i].bad += bad
		after[i].records += records
	}
	for _, c := range after {
		sum.bad += c.bad
		sum.records += c.records
	}
	return after, sum
}

func (c counted) key() []byte { return value.AppendKey(nil, value.TimeOf(c.since)) }

// loadTally reads what the last committed batch has left.
func (x *Executor) loadTally(ctx context.Context) (tally, error) {
	if x.plan.Dead == nil {
		return nil, nil
	}
	snap, err := x.cfg.DB.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	var t tally
	for row, err := range snap.Scan(ctx, DeadState, nil, nil) {
		if err != nil {
			return nil, err
		}
		c, err := parseCounted(row.Key, row.Value)
		if err != nil {
			return nil, x.located(batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "open", fmt.Errorf("state %s, key %x: %w", DeadState, row.Key, err),
				"restore a savepoint, or rebuild by replay"), 0)
		}
		t = append(t, c)
	}
	slices.SortFunc(t, func(a, b counted) int { return cmp.Compare(a.since, b.since) })
	return t, nil
}

func parseCounted(key, row []byte) (c counted, err error) {
	var cols [3]value.Value
	if cols[0], key, err = value.DecodeKey(key); err != nil {
		return counted{}, err
	}
	for i := range cols[1:] {
		if cols[i+1], row, err = value.DecodeBinary(row); err != nil {
			return counted{}, err
		}
	}
	if cols[0].Kind() != value.Time || cols[1].Kind() != value.Int || cols[2].Kind() != value.Int || len(key)+len(row) > 0 {
		return counted{}, errors.New("a row isn't a time and two counts")
	}
	return counted{cols[0].Nanos(), cols[1].Int(), cols[2].Int()}, nil
}

// collectDead holds the batch's dead letters against their limit and notes them in _dead_letters. A batch that was recorded has been held against the limit that counted then.
func (x *Executor) collectDead(f *flight) error {
	if x.plan.Dead == nil {
		return nil
	}
	bad := int64(0)
	var last *deadletter.Letter
	x.letters(f, func(l *deadletter.Letter) {
		if l.Kind == deadletter.Bad {
			bad, last = bad+1, l
		}
	})
	limit := x.plan.Dead.Limit
	after, sum := f.was.add(limit, f.b.Time, bad, f.counts.Read)
	f.tally = after
	if bad > 0 && !f.known {
		if err := overLimit(limit, sum, last); err != nil {
			return err
		}
	}
	w := newRowWriter(context.Background(), nil, x.cfg.Shards)
	for _, c := range f.was {
		if !slices.ContainsFunc(after, func(d counted) bool { return d.since == c.since }) {
			w.Delete(c.key())
		}
	}
	for _, c := range after {
		if !slices.Contains(f.was, c) {
			w.Set(c.key(), rowOf(value.IntOf(c.bad), value.IntOf(c.records)))
		}
	}
	if set, _ := w.set(DeadState); set != nil {
		f.sets = append(f.sets, set)
	}
	return nil
}

// overLimit tells whether sum, which ends in the letter last, is more than the limit lets pass.
func overLimit(l plan.DeadLimit, sum counted, last *deadletter.Letter) error {
	share := float64(sum.bad) / float64(max(sum.records, 1))
	limit := ""
	switch {
	case l.Count > 0 && sum.bad > l.Count:
		limit = strconv.FormatInt(l.Count, 10)
	case l.Share > 0 && sum.bad > plan.DeadShareFrom && share > l.Share:
		limit = plan.Percent(l.Share)
	default:
		return nil
	}
	return batch.NewError(batch.Permanent, batch.CodeDeadLetters, last.Step,
		fmt.Errorf("%d of %d records within %s of batch time would be dead letters, the limit is %s; the cause of the last: %s", sum.bad, sum.records, l.Within, limit, last.Cause),
		"mend the step, or what writes such records; or raise dead_letters.limit, if they are to be let go; nothing of this batch was applied, and no letter of it was sent").
		At(last.Partition, last.Offset)
}

// letters makes the batch's dead letters, in the order in which they are sent.
func (x *Executor) letters(f *flight, yield func(*deadletter.Letter)) {
	letter := func(p batch.Partition, offset int64, r *plan.Rejected) {
		yield(&deadletter.Letter{
			Pipeline: x.plan.Name, Txid: f.b.Txid, Kind: string(r.Kind), Partition: p, Offset: offset, Timestamp: r.Timestamp,
			Step: r.Step, Cause: deadletter.ShortCause(r.Cause), Key: r.Key, Value: r.Value, Headers: r.Headers,
		})
	}
	for i, res := range f.results {
		r := &f.b.Ranges[i]
		if x.sourcePolicy(r) != plan.DeadLetter {
			continue
		}
		for j := range res.rejected {
			letter(r.Partition, res.rejected[j].Offset, &res.rejected[j])
		}
	}
	if x.onBad != plan.DeadLetter {
		return
	}
	for _, st := range f.stages {
		for k := range st.parts {
			part := &st.parts[k]
			for j := range part.rejected {
				letter(st.partition(part), int64(j), &part.rejected[j])
			}
		}
	}
}

// addLetters adds the batch's dead letters to the output for their sink.
func (x *Executor) addLetters(f *flight, out *sink.Output) error {
	var failed error
	x.letters(f, func(l *deadletter.Letter) {
		r := sink.Record{Offset: l.Offset, Timestamp: sink.NoTimestamp}
		if err := x.plan.Dead.Encode(l, &r); err != nil && failed == nil {
			failed = batch.NewError(batch.Permanent, batch.CodeUserError, "sink "+plan.DeadLettersSink, fmt.Errorf("a dead letter can't be written: %w; its cause: %s", err, l.Cause), "mend the target's Encode").At(l.Partition, l.Offset)
		}
		n := len(out.Parts)
		if n == 0 || out.Parts[n-1].Partition != l.Partition {
			out.Parts = append(out.Parts, sink.Part{Partition: l.Partition})
			n++
		}
		out.Parts[n-1].Records = append(out.Parts[n-1].Records, r)
		out.Count++
	})
	return failed
}
