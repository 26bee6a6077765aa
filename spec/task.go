package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// blockRows is how many records are decoded into columns at once: few enough for the columns to stay in the
// processor's cache. No result depends on it, nor on how a source cuts its records into chunks.
const blockRows = 2048

// task runs one partition's records through all streams that begin at its source.
type task struct {
	src      *source
	dec      decoder
	mem      vec.Arena // what decoding must write anew
	fields   []string
	header   bool // fields have been given to dec
	props    []target
	docs     []target
	branches []*branchRun
	// combiners are those of the aggregates that the branches lead to.
	combiners []*combiner
	senders   []*joinSender
	tables    []*tableSender
	removed   []int32 // records of the block that have no value, in a source whose table rows they remove
	// removes tells of a source at which tables begin; rowsToo, of one at which anything else does.
	removes, rowsToo bool
	outlets          []*outlet  // of the sinks that the branches lead to
	answer           *answerRun // of a query, if the branch ends in its answer

	tc     *plan.TaskContext
	ctx    expr.Context
	root   *frameRun
	frames map[*frame]*frameRun
	recs   []batch.Record // of the block
	bad    []turned       // rows of the block turned away
	sel    []int32
}

// frameRun holds a frame's rows of the present block.
type frameRun struct {
	frame   *frame
	rows    vec.Rows
	records []int32 // the record of each row, by its number in the block
	offsets []int64 // and its offset
}

// column returns the frame's kth column; nil, which stands for nulls, for a negative k.
func (f *frameRun) column(k int) *vec.Column {
	if k < 0 {
		return nil
	}
	return f.rows.Cols[k]
}

// turned is a row turned away.
type turned struct {
	record int32
	kind   plan.RejectKind
	step   string
	cause  string
	err    error // of a function of Go; nil elsewhere
}

func newTask(s *source) *task {
	t := &task{src: s, frames: map[*frame]*frameRun{}}
	t.root = t.frame(s.root)
	for i, c := range s.root.cols {
		if !c.used && !c.check {
			continue
		}
		tg := target{name: c.name, typ: c.typ.Type, col: t.root.rows.Cols[i]}
		if c.origin == fromMeta {
			t.props = append(t.props, tg)
		} else if c.origin == fromDocument {
			t.docs = append(t.docs, tg)
		}
	}
	if s.decl != nil {
		t.dec = newDecoder(&s.decl.decode, t.docs, &t.mem)
	}
	for _, b := range s.branches {
		t.branches = append(t.branches, t.newBranch(b))
		if b.table != nil && b.table.source {
			t.removes = true
		} else {
			t.rowsToo = true
		}
	}
	if s.decl != nil && s.decl.decode.plain() {
		t.removes = false // null is a value like others, and the tables take the row
	}
	return t
}

func (t *task) frame(f *frame) *frameRun {
	if r := t.frames[f]; r != nil {
		return r
	}
	r := &frameRun{frame: f}
	for range f.cols {
		r.rows.Cols = append(r.rows.Cols, new(vec.Column))
	}
	t.frames[f] = r
	return r
}

func (t *task) Begin(tc *plan.TaskContext) error {
	t.tc = tc
	t.ctx = expr.Context{Batch: tc.Batch, Partition: tc.Partition, Errs: t.ctx.Errs[:0]}
	for _, b := range t.branches {
		b.begin(tc)
	}
	for _, c := range t.combiners {
		c.begin(tc)
	}
	for _, s := range t.senders {
		s.begin(tc)
	}
	for _, s := range t.tables {
		s.begin(tc)
	}
	for _, o := range t.outlets {
		o.begin(tc)
	}
	return nil
}

func (t *task) Process(c *batch.Chunk) error {
	if !t.header || !slices.Equal(t.fields, c.Fields) {
		t.fields, t.header = slices.Clone(c.Fields), true
		if err := t.dec.header(t.fields); err != nil {
			t.header = false
			if e, ok := errors.AsType[*batch.Error](err); ok {
				return e.At(t.tc.Partition, batch.NoOffset)
			}
			return err
		}
	}
	for recs := c.Records; len(recs) > 0; {
		n := min(len(recs), blockRows)
		if err := t.block(recs[:n]); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

// block runs some records through all branches.
func (t *task) block(recs []batch.Record) error {
	t.recs, t.bad = recs, t.bad[:0]
	sel, err := t.decode(recs)
	if err != nil {
		return err
	}
	if t.src.time >= 0 {
		sel = t.eventTime(sel)
	}
	return t.rows(sel)
}

// rows runs the block's rows through all branches.
func (t *task) rows(sel []int32) error {
	if len(sel) > 0 {
		for _, c := range t.combiners {
			c.startBlock()
		}
		for _, b := range t.branches {
			b.run(sel)
		}
		for _, c := range t.combiners {
			c.endBlock()
		}
		for _, o := range t.outlets {
			o.endBlock()
		}
	}
	if len(t.removed) > 0 {
		for _, b := range t.branches {
			if b.table != nil && b.table.end.source {
				b.table.removed(t.removed)
			}
		}
	}
	if len(t.bad) == 0 {
		return nil
	}
	return t.turnAway()
}

// decode fills the root's columns and returns the rows that could be read. An error is no record's fault.
func (t *task) decode(recs []batch.Record) ([]int32, error) {
	r := t.root
	n := len(recs)
	r.rows.N = n
	r.records = vec.Iota(r.records, n)
	r.offsets = r.offsets[:0]
	t.mem.Reset()
	t.dec.reset()
	for i := range t.props {
		t.props[i].col.Reset(t.props[i].typ, n)
	}
	for i := range t.docs {
		t.docs[i].col.Reset(t.docs[i].typ, n)
	}
	sel := t.sel[:0]
	t.removed = t.removed[:0]
	for i := range recs {
		rec := &recs[i]
		r.offsets = append(r.offsets, rec.Offset)
		if rec.Value == nil && t.removes {
			t.removal(int32(i))
			continue
		}
		if err := t.record(rec, i); err != nil {
			if e, ok := errors.AsType[*batch.Error](err); ok {
				return nil, e.At(t.tc.Partition, rec.Offset)
			}
			t.reject(int32(i), plan.RejectBad, "decode", err.Error())
			continue
		}
		sel = append(sel, int32(i))
	}
	t.sel = sel
	return sel, nil
}

func (t *task) record(rec *batch.Record, i int) error {
	if err := t.dec.decode(rec, i); err != nil {
		return err
	}
	for k := range t.props {
		if err := setProperty(t.props[k].name, t.props[k].col, i, rec, &t.tc.Partition); err != nil {
			return err
		}
	}
	return nil
}

// removal takes a record without a value. Tables that begin at the source remove the row of its key; to anything else it is a bad
// record.
func (t *task) removal(i int32) {
	rec := &t.recs[i]
	for k := range t.props {
		if err := setProperty(t.props[k].name, t.props[k].col, int(i), rec, &t.tc.Partition); err != nil {
			t.reject(i, plan.RejectBad, "decode", err.Error())
			return
		}
	}
	t.removed = append(t.removed, i)
	if t.rowsToo {
		t.reject(i, plan.RejectBad, "decode", errNull.Error())
	}
}

// eventTime takes the rows whose event time can be used and raises the partition's.
func (t *task) eventTime(sel []int32) []int32 {
	const step = "event time"
	c := t.root.rows.Cols[t.src.time]
	limit := t.tc.Batch.Time.UnixNano()
	if int64(t.tc.Future) > math.MaxInt64-limit {
		limit = math.MaxInt64
	} else {
		limit += int64(t.tc.Future)
	}
	kept := sel[:0]
	for _, i := range sel {
		switch ns := c.Int[i]; {
		case c.IsNull(int(i)):
			t.reject(i, plan.RejectBad, step, "field "+t.src.root.cols[t.src.time].name+" is null")
		case ns > limit:
			t.reject(i, plan.RejectFuture, step, fmt.Sprintf("event time %s lies more than %s ahead of the batch's clock %s",
				nanoText(ns), t.tc.Future, t.tc.Batch.Time.Format(time.RFC3339Nano)))
		default:
			t.tc.EventTime = max(t.tc.EventTime, ns)
			kept = append(kept, i)
		}
	}
	return kept
}

func nanoText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func (t *task) reject(record int32, kind plan.RejectKind, step, cause string) {
	t.bad = append(t.bad, turned{record: record, kind: kind, step: step, cause: cause})
}

// failed turns away the record that an evaluation failed at.
func (t *task) failed(record int32, step string, e *expr.RowError) {
	t.bad = append(t.bad, turned{record: record, kind: plan.RejectBad, step: step, cause: e.Msg, err: e.Err})
}

// without reports what went wrong in an evaluation over f and returns the rows of sel that it went well for.
func (t *task) without(f *frameRun, sel []int32, step string) []int32 {
	if len(t.ctx.Errs) == 0 {
		return sel
	}
	kept := sel[:0:0]
	errs := t.ctx.Errs
	for _, i := range sel {
		if len(errs) > 0 && errs[0].Row == i {
			t.failed(f.records[i], step, &errs[0])
			errs = errs[1:]
			continue
		}
		kept = append(kept, i)
	}
	if len(errs) > 0 {
		panic(fmt.Sprintf("spec: %s: an error of row %d, which was not evaluated", step, errs[0].Row))
	}
	t.ctx.Errs = t.ctx.Errs[:0]
	return kept
}

// noteErrs reports what went wrong in an evaluation that has left out the failed rows itself.
func (t *task) noteErrs(f *frameRun, step string) {
	for i := range t.ctx.Errs {
		t.failed(f.records[t.ctx.Errs[i].Row], step, &t.ctx.Errs[i])
	}
	t.ctx.Errs = t.ctx.Errs[:0]
}

// evaluates prepares the context for rows of f.
func (t *task) evaluates(f *frameRun, step string) *expr.Context {
	t.ctx.Step, t.ctx.Offsets = step, f.offsets
	return &t.ctx
}

// turnAway hands over what the block turned away, in the order of the records, or stops at the first bad one.
func (t *task) turnAway() error {
	slices.SortStableFunc(t.bad, func(a, b turned) int { return cmp.Compare(a.record, b.record) })
	for i := range t.bad {
		b := &t.bad[i]
		rec := &t.recs[b.record]
		key := rec.Key
		if t.src.out != nil && !(t.src.asked() && len(key) == 0) {
			key = []byte(value.KeyText(key))
			b.cause = fmt.Sprintf("key %s: %s", key, b.cause)
		}
		if engine.IsTransient(b.err) {
			return batch.NewError(batch.Transient, batch.CodeUserError, b.step, errors.New(b.cause), "").At(t.tc.Partition, rec.Offset)
		}
		if t.src.asked() {
			return failedAnswer(b.step, b.cause)
		}
		if b.kind == plan.RejectBad && t.tc.OnBad == plan.Stop {
			return batch.NewError(batch.Permanent, batch.CodeBadRecord, b.step, errors.New(b.cause),
				"mend the record or the step, or set on_bad_record: skip or dead_letter").At(t.tc.Partition, rec.Offset)
		}
		var headers []batch.Header
		if t.tc.OnBad == plan.DeadLetter {
			headers = batch.CloneHeaders(rec.Headers)
		}
		t.tc.Rejected = append(t.tc.Rejected, plan.Rejected{
			Kind: b.kind, Offset: rec.Offset, Timestamp: rec.Timestamp, Step: b.step, Cause: b.cause,
			Key: slices.Clone(key), Value: slices.Clone(rec.Value), Headers: headers,
		})
	}
	return nil
}

func (t *task) End() error {
	for _, c := range t.combiners {
		if err := c.end(); err != nil {
			return err
		}
	}
	for _, s := range t.senders {
		if err := s.end(); err != nil {
			return err
		}
	}
	for _, s := range t.tables {
		if err := s.end(); err != nil {
			return err
		}
	}
	t.answer.leave(t.tc)
	t.tc, t.recs = nil, nil
	return nil
}
