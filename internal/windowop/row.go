// Package windowop holds the operators behind windows whose borders the values of a key make: sessions, and windows of so many
// values. What has come for a key, and which of its windows are open, lies in the operator's state; nothing is lost or
// counted twice by a restart, as that commits with the offsets. The rows of all windows, open and closed, lie in the operator's output.
// So do rows that expire (Expiring), whose operator keeps their times.
//
// Whoever compiles a pipeline gives each operator what its aggregates do, sends it one delta for each value (AppendDelta) and reads the
// rows that it hands on (ReadRow).
package windowop

import (
	"encoding/binary"
	"errors"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// Aggregate is what an operator does with the values of a window, as cells.
type Aggregate struct {
	// Merge appends the combination of two deltas, a before b.
	Merge func(dst, a, b []byte) ([]byte, error)
	// Update appends the value of a window whose value was old (nil: it had none), after delta.
	Update func(dst, old, delta []byte) ([]byte, error)
}

// RowKind says why a row is handed on.
type RowKind byte

// The kinds of rows.
const (
	Update RowKind = iota + 1 // the window has changed in this batch
	Final                     // it has closed
	Late                      // no window takes it in
)

// Row is what an operator hands on. Start and End are the window's: nanoseconds since 1970, or numbers of values. Cells are the
// window's value. Of a late row Start is the event time, Cells what the sender gave as Delta.Wire.
type Row struct {
	Kind       RowKind
	Start, End int64
	Cells      []byte
}

func appendRow(dst []byte, r Row) []byte {
	dst = binary.AppendVarint(append(dst, byte(r.Kind)), r.Start)
	return append(binary.AppendVarint(dst, r.End), r.Cells...)
}

var errCutOff = errors.New("it is cut off")

// ReadRow reads what an operator has handed on.
func ReadRow(b []byte) (Row, error) {
	r := reader{b: b}
	row := Row{Kind: RowKind(r.byte()), Start: r.varint(), End: r.varint()}
	row.Cells = r.b
	return row, r.err
}

// Delta is one value as a session takes it.
type Delta struct {
	Time int64 // of the event
	// Origin is where a value comes from that may be late; nil: it can't be.
	Origin *Origin
	Wire   []byte // the value, where late ones are handed on
	Cells  []byte // its delta
}

// Origin is the place of a record, and the record itself, or a row as text.
type Origin struct {
	Partition         batch.Partition
	Offset, Timestamp int64
	Key, Value        []byte
}

// AppendDelta appends d as Session takes it.
func AppendDelta(dst []byte, d *Delta) []byte {
	if d.Origin == nil {
		dst = binary.AppendVarint(append(dst, 0), d.Time)
		return append(dst, d.Cells...)
	}
	o := d.Origin
	dst = binary.AppendVarint(append(dst, 1), d.Time)
	dst = appendSized(dst, o.Partition.Source)
	dst = appendSized(dst, o.Partition.Topic)
	dst = binary.AppendVarint(dst, int64(o.Partition.Number))
	dst = binary.AppendVarint(dst, o.Offset)
	dst = binary.AppendVarint(dst, o.Timestamp)
	dst = appendBytes(appendBytes(dst, o.Key), o.Value)
	dst = appendSized(dst, d.Wire)
	return append(dst, d.Cells...)
}

func readDelta(b []byte) (d Delta, err error) {
	r := reader{b: b}
	mayBeLate := r.byte() == 1
	d.Time = r.varint()
	if mayBeLate {
		o := &Origin{}
		o.Partition.Source, o.Partition.Topic = string(r.sized()), string(r.sized())
		o.Partition.Number = int32(r.varint())
		o.Offset, o.Timestamp = r.varint(), r.varint()
		o.Key, o.Value = r.bytes(), r.bytes()
		d.Origin, d.Wire = o, r.sized()
	}
	d.Cells = r.b
	return d, r.err
}

func appendSized[S ~string | ~[]byte](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendBytes is appendSized that tells nil from empty.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))+1), b...)
}

// reader takes encoded things off the front of b. After an error it returns zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	r.b, r.err = nil, errCutOff
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) varint() int64 {
	n, w := binary.Varint(r.b)
	if w <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[w:]
	return n
}

func (r *reader) uvarint() uint64 {
	n, w := binary.Uvarint(r.b)
	if w <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[w:]
	return n
}

// count is a number of things that take a byte at least.
func (r *reader) count() int {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) sized() []byte {
	n := r.count()
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	if n--; n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

// The schemas of an operator's two states: what it keeps for a key, and the rows of windows, whose keys begin with start and end.

// KeptName is the name of the state that an operator keeps beside the state of its rows.
func KeptName(rows string) string { return rows + ".open" }

func schemas(rows, typ string, key, values []state.Column) (kept, out state.Schema) {
	kept = state.Schema{Name: KeptName(rows), Kind: "opaque", Key: key}
	out = state.Schema{Name: rows, Kind: "aggregate", Values: values}
	out.Key = append([]state.Column{{Name: "window_start", Type: typ}, {Name: "window_end", Type: typ}}, key...)
	return kept, out
}

// SessionSchemas are the states of a Session.
func SessionSchemas(rows string, key, values []state.Column) (kept, out state.Schema) {
	return schemas(rows, "timestamp", key, values)
}

// CountSchemas are the states of a Count.
func CountSchemas(rows string, key, values []state.Column) (kept, out state.Schema) {
	return schemas(rows, "int", key, values)
}

func sessionKey(dst []byte, start, end int64, key []byte) []byte {
	return append(value.AppendKeyTime(value.AppendKeyTime(dst, start), end), key...)
}

func countKey(dst []byte, start, end int64, key []byte) []byte {
	return append(value.AppendKeyInt(value.AppendKeyInt(dst, start), end), key...)
}
