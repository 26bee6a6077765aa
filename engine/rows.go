package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/txstate"
)

// Rows that go from task to task as they are, by key, are put one behind the other: a group is the rows of a key in a batch, in the
// order of tasks (sources by id, topic, partition; then stages in the order of the pipeline and of their shards) and, within a
// task, as they were sent. A group is made of one block per task:
//
//	block  source, topic (each its length, its bytes), partition (varint), length of the rows, rows
//	row    flags, side (uvarint), offset (varint), event time (varint; if flagTimed), value.Wire
const (
	flagTimed  = 1 << iota // the row has an event time
	flagRecord             // that of records: it can be late
)

// outbox collects the rows that one task has for one exchange.
type outbox struct {
	index int // of the exchange
	parts int // of a repartitioning, each of which is a shard; 0: keys are placed as those of states
	slots map[string]int
	keys  [][]byte
	rows  [][]byte
	block []byte
}

// outboxOf returns the task's outbox for exchange e, which is the index-th.
func outboxOf(b *builder, e *plan.Exchange, index, parts int) *outbox {
	if o, ok := b.memo[e]; ok {
		return o.(*outbox)
	}
	o := &outbox{index: index, parts: parts, slots: map[string]int{}}
	b.memo[e] = o
	b.begin = append(b.begin, func(*rec) { o.clear() })
	b.end = append(b.end, o.flush)
	return o
}

func (o *outbox) clear() {
	clear(o.slots)
	o.keys, o.rows = o.keys[:0], o.rows[:0]
}

// begin returns where the next row of key is to be appended, with all but its value written; end gives it back.
func (o *outbox) begin(rc *rec, key []byte, side int) (slot int, row []byte) {
	slot, ok := o.slots[string(key)]
	if !ok {
		slot = len(o.keys)
		o.slots[string(key)] = slot
		if slot < cap(o.keys) { // keeps the memory of the batch before
			o.keys, o.rows = o.keys[:slot+1], o.rows[:slot+1]
		} else {
			o.keys, o.rows = append(o.keys, nil), append(o.rows, nil)
		}
		o.keys[slot], o.rows[slot] = append(o.keys[slot][:0], key...), o.rows[slot][:0]
	}
	var flags byte
	if rc.time != txstate.NoTime {
		flags |= flagTimed
		if rc.r != nil || rc.mayBeLate {
			flags |= flagRecord
		}
	}
	row = binary.AppendUvarint(append(o.rows[slot], flags), uint64(side))
	row = binary.AppendVarint(row, rc.offset)
	if flags&flagTimed != 0 {
		row = binary.AppendVarint(row, rc.time)
	}
	return slot, row
}

func (o *outbox) end(slot int, row []byte) { o.rows[slot] = row }

func (o *outbox) flush(rc *rec) {
	out := rc.tc.Out[o.index]
	p := rc.tc.Partition
	if len(o.keys) > 0 && out.Shards() < o.parts {
		rc.fail(batch.NewError(batch.Permanent, batch.CodeConfiguration, "exchange", fmt.Errorf("%d partitions in a store of %d shards", o.parts, out.Shards()), "use fewer partitions"))
		return
	}
	for slot, key := range o.keys {
		rows := o.rows[slot]
		if len(rows) == 0 {
			continue // its first row couldn't be encoded
		}
		b := o.block[:0]
		for _, s := range []string{p.Source, p.Topic} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
		b = binary.AppendVarint(b, int64(p.Number))
		o.block = append(binary.AppendUvarint(b, uint64(len(rows))), rows...)
		var err error
		if o.parts == 0 {
			err = out.Add(key, o.block)
		} else {
			err = out.AddAt(partOf(key), key, o.block)
		}
		if err != nil {
			rc.fail(batch.NewError(batch.Permanent, batch.CodeBatchTooLarge, "exchange", err, "lower the batch's MaxRecords"))
			return
		}
	}
}

// partKeys are the keys of n partitions.
func partKeys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = value.AppendKey(nil, value.IntOf(int64(i)))
	}
	return keys
}

func partOf(key []byte) int {
	v, _, err := value.DecodeKey(key)
	if err != nil {
		panic(err) // it is one of partKeys
	}
	return int(v.Int())
}

// row is a row of a group.
type row struct {
	side      int
	at        int // its number within its side
	from      *origin
	time      int64
	mayBeLate bool
	wire      []byte
}

// side is one of the streams whose rows come to an exchange, in one task.
type side interface {
	// reset forgets the rows. Those that it gave away stay as they are.
	reset()
	// add decodes a row and returns what follows it, and the row's number.
	add(b []byte) (rest []byte, at int, err error)
	size() int
}

// sideOf holds the rows of one side of a group.
type sideOf[T any] struct {
	wire *value.Wire[T]
	vals []T
}

func (s *sideOf[T]) reset()    { s.vals = nil }
func (s *sideOf[T]) size() int { return len(s.vals) }

func (s *sideOf[T]) add(b []byte) ([]byte, int, error) {
	var v T
	b, err := s.wire.DecodeInto(b, &v)
	s.vals = append(s.vals, v)
	return b, len(s.vals) - 1, err
}

var errCutOff = errors.New("a group of rows is cut off")

// readGroup appends the rows of a group to rows; their values go to the sides.
func readGroup(rows []row, sides []side, b []byte) (_ []row, err error) {
	for len(b) > 0 {
		var from batch.Partition
		for _, s := range []*string{&from.Source, &from.Topic} {
			var text []byte
			if text, b, err = sized(b); err != nil {
				return rows, err
			}
			*s = string(text)
		}
		n, w := binary.Varint(b)
		if w <= 0 {
			return rows, errCutOff
		}
		from.Number = int32(n)
		var block []byte
		if block, b, err = sized(b[w:]); err != nil {
			return rows, err
		}
		for len(block) > 0 {
			r := row{time: txstate.NoTime}
			flags := block[0]
			r.mayBeLate = flags&flagRecord != 0
			side, w := binary.Uvarint(block[1:])
			if w <= 0 || side >= uint64(len(sides)) {
				return rows, errCutOff
			}
			r.side = int(side)
			block = block[1+w:]
			offset, w := binary.Varint(block)
			if w <= 0 {
				return rows, errCutOff
			}
			r.from = &origin{part: from, offset: offset}
			block = block[w:]
			if flags&flagTimed != 0 {
				if r.time, w = binary.Varint(block); w <= 0 {
					return rows, errCutOff
				}
				block = block[w:]
			}
			r.wire = block
			if block, r.at, err = sides[r.side].add(block); err != nil {
				return rows, err
			}
			r.wire = r.wire[:len(r.wire)-len(block)]
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func sized(b []byte) (s, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, errCutOff
	}
	end := w + int(n)
	return b[w:end], b[end:], nil
}

// rowsTask is the task behind an exchange of rows: take does with each group what the operator is there for.
type rowsTask[R any] struct {
	chains[R]
	stage *plan.Exchange
	sides []side
	take  func(t *rowsTask[R], key []byte, rows []row) error
	rows  []row
	sent  int64 // rows handed on
}

func (t *rowsTask[R]) Begin(tc *plan.TaskContext) error {
	tc.Careful = true // a panic can't be blamed on a record here, but on its step and key
	tc.Partition = batch.Partition{Source: t.stage.Name, Number: int32(tc.Shard)}
	t.sent = 0
	return t.start(tc)
}

func (t *rowsTask[R]) Row(key, group []byte) (err error) {
	for _, s := range t.sides {
		s.reset()
	}
	clear(t.rows)
	if t.rows, err = readGroup(t.rows[:0], t.sides, group); err != nil {
		return batch.NewError(batch.Permanent, batch.CodeInternal, t.stage.Name, fmt.Errorf("key %s: %w", value.KeyText(key), err), "")
	}
	t.rc.key, t.rc.offset, t.rc.time, t.rc.mayBeLate = key, t.sent, txstate.NoTime, false
	if err := t.take(t, key, t.rows); err != nil {
		return err
	}
	return t.rc.err
}

func (t *rowsTask[R]) End() error { return t.finish() }

// send hands on a row that stands for others: its event time is the latest of theirs.
func (t *rowsTask[R]) send(v R, time int64, mayBeLate bool) {
	t.rc.offset, t.rc.time, t.rc.mayBeLate = t.sent, time, mayBeLate
	t.sent++
	t.cur.push(&t.rc, v)
}

// pass hands on a row that is what it was in another task.
func (t *rowsTask[R]) pass(v R, r *row) {
	t.rc.from, t.rc.wire = r.from, r.wire
	t.send(v, r.time, r.mayBeLate)
	t.rc.from, t.rc.wire = nil, nil
}

// rowsStage begins the stream behind an exchange of rows.
func rowsStage[R any](p *Pipeline, kind, suffix string) (out Stream[R], e *plan.Exchange, index int) {
	out = Stream[R]{p: p, n: &node[R]{}}
	out.n.named(p, kind, suffix)
	e = &plan.Exchange{Name: out.n.step, FormatKey: value.KeyText}
	out.n.stage, out.at = e, []*int{&e.Parallel}
	out.trail = &trail{step: &out.n.step}
	index = len(p.exchanges)
	p.exchanges = append(p.exchanges, e)
	return out, e, index
}

// after notes that out comes of s.
func after[R, T any](out *Stream[R], s Stream[T]) {
	first := len(out.trail.from) == 0
	out.trail.from = append(out.trail.from, s.trail)
	out.timed = s.timed && (first || out.timed)
	for _, d := range s.sources {
		if !slices.Contains(out.sources, d) {
			out.sources = append(slices.Clip(out.sources), d)
		}
	}
}

// placer tells the keys that a value is sent to. put returns false where the value can't be sent.
type placer[T any] func(rc *rec, v T, put func(key []byte) bool)

// sendRows sends the values of s to an exchange of rows.
func sendRows[T any](s Stream[T], e *plan.Exchange, index, side, parts int, wire *value.Wire[T], place func(b *builder) placer[T]) {
	s.to(func(b *builder) push[T] {
		o, keys := outboxOf(b, e, index, parts), place(b)
		var cur T
		var of *rec
		put := func(key []byte) bool {
			slot, row := o.begin(of, key, side)
			row, err := wire.Append(row, &cur)
			if err != nil {
				of.bad(e.Name, err)
				return false
			}
			o.end(slot, row)
			return true
		}
		return func(rc *rec, v T) {
			cur, of = v, rc
			keys(rc, v, put)
		}
	})
}

// byKey places values by their group's key.
func byKey[K comparable, T any](g Grouped[K, T]) func(b *builder) placer[T] {
	return func(b *builder) placer[T] {
		var buf []byte
		return func(rc *rec, v T, put func([]byte) bool) {
			var k K
			if !b.careful {
				k = g.key(v)
			} else if !rc.guard("group by", func() { k = g.key(v) }) {
				return
			}
			var err error
			if buf, err = g.codec.Encode(buf[:0], k); err != nil {
				rc.bad("group by", err)
				return
			}
			put(buf)
		}
	}
}
