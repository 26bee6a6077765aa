// Package codec turns the records of a source into Go values.
//
// A decoder gives the value that the record's bytes stand for, or an error: a number is never rounded, wrapped or
// cut, text never becomes a number by itself, and a null never becomes a zero. What decodes depends on the record and
// the type alone, never on the machine's time zone or on the records before it. An error of Decode makes the record a
// bad record; what then happens is the pipeline's rule for those.
//
// # Structs
//
// JSON and CSV fill a struct's exported fields by name: snake_case of the Go name (DepDelay reads dep_delay), or the
// tag `trident:"name"`; `trident:"-"` leaves a field alone. The fields of an embedded struct count as the outer one's.
// Fields of the record that the struct doesn't have are passed over; JSON checks their syntax all the same.
//
//	Go type                JSON                              CSV
//	string                 string                            the text
//	bool                   true, false                       true, false, 1, 0
//	int…, uint…            an integer's digits, in range     the same
//	float32, float64       a number, in range                the same, and NaN, Inf, +Inf, -Inf
//	time.Time              string, RFC 3339; becomes UTC     the same text
//	time.Duration          string as in Go: "1m30s"          the same text
//	[]byte                 string, base64                    the text's bytes
//	TextUnmarshaler        string, or a number's text        the text
//	Null[X]                as X, or null, or no such field   as X, or one of the null values
//	struct, slice, array,  as their fields and elements      none
//	map with string keys
//	any                    what it is; numbers: json.Number  none
//
// 1.0 is not an integer, and a number beyond a type's range is an error. A type with UnmarshalText, such as
// decimal.Decimal, gets the number's own digits. A null, or a missing JSON field, for anything but Null and any is an
// error: a zero would look like a value. A wanted field that occurs twice is one too. In CSV every wanted column must
// be in the header line. Pointers are refused when the pipeline is built: Null says the same without sharing memory.
//
// Short strings share their allocations. Who keeps one for long, in a map of one's own for instance, keeps some KiB with
// it, unless it is a copy by strings.Clone.
package codec

import (
	"bytes"
	"errors"

	"github.com/tridentd/tridentd/batch"
)

// Decoder describes how records become values of T. It is immutable.
type Decoder[T any] interface {
	// Describe names form and fields in one line. Decoders with equal descriptions give equal values.
	Describe() string
	// CSV tells that a byte source must be cut into CSV records behind a header line.
	CSV() bool
	// New returns a decoder of one goroutine.
	New() Decode[T]
	// Err is what is wrong with T; it is reported when the pipeline is built.
	Err() error
}

// Decode decodes for one goroutine.
type Decode[T any] interface {
	// Begin tells the columns of the records to come, nil for sources that have none. It is called before the first
	// record and whenever they change. An error is no single record's fault and stops the pipeline.
	Begin(fields []string) error
	// Decode sets *into, which may hold an earlier value. What it sets shares no memory with r.
	Decode(r *batch.Record, into *T) error
}

// errNull is the fault of a record whose value is null.
var errNull = errors.New("value is null")

// Null is a value of T or null. Its zero value is null.
type Null[T any] struct {
	V     T // the zero value if not Valid
	Valid bool
}

// Of returns a Null that holds v.
func Of[T any](v T) Null[T] { return Null[T]{V: v, Valid: true} }

// Or returns the value, or def for null.
func (n Null[T]) Or(def T) T {
	if n.Valid {
		return n.V
	}
	return def
}

// plain is a decoder that needs no plan.
type plain[T any] struct {
	name string
	f    func(r *batch.Record, into *T) error
}

func (p plain[T]) Describe() string                      { return p.name }
func (p plain[T]) CSV() bool                             { return false }
func (p plain[T]) New() Decode[T]                        { return p }
func (p plain[T]) Err() error                            { return nil }
func (p plain[T]) Begin([]string) error                  { return nil }
func (p plain[T]) Decode(r *batch.Record, into *T) error { return p.f(r, into) }

// String takes the value as it is. A null value is a bad record: see NullString.
func String() Decoder[string] { return stringDecoder{} }

type stringDecoder struct{}

func (stringDecoder) Describe() string    { return "string" }
func (stringDecoder) CSV() bool           { return false }
func (stringDecoder) Err() error          { return nil }
func (stringDecoder) New() Decode[string] { return &stringDecode{} }

type stringDecode struct{ texts texts }

func (*stringDecode) Begin([]string) error { return nil }

func (d *stringDecode) Decode(r *batch.Record, into *string) error {
	if r.Value == nil {
		return errNull
	}
	*into = d.texts.of(r.Value)
	return nil
}

// NullString takes the value as it is, null included.
func NullString() Decoder[Null[string]] { return Nullable(String()) }

// Bytes takes a copy of the value. A null value gives nil, an empty one an empty slice.
func Bytes() Decoder[[]byte] {
	return plain[[]byte]{"bytes", func(r *batch.Record, into *[]byte) error {
		*into = bytes.Clone(r.Value)
		return nil
	}}
}

// Record takes a copy of the whole record: offset, timestamp, key, value and headers.
func Record() Decoder[batch.Record] {
	return plain[batch.Record]{"record", func(r *batch.Record, into *batch.Record) error {
		c := *r
		c.Key, c.Value, c.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), batch.CloneHeaders(r.Headers)
		*into = c
		return nil
	}}
}

// Nullable gives null for a record whose value is null (a tombstone), and otherwise what d gives.
func Nullable[T any](d Decoder[T]) Decoder[Null[T]] { return nullable[T]{d} }

type nullable[T any] struct{ of Decoder[T] }

func (n nullable[T]) Describe() string     { return "nullable " + n.of.Describe() }
func (n nullable[T]) CSV() bool            { return n.of.CSV() }
func (n nullable[T]) Err() error           { return n.of.Err() }
func (n nullable[T]) New() Decode[Null[T]] { return nullableDecode[T]{n.of.New()} }

type nullableDecode[T any] struct{ of Decode[T] }

func (n nullableDecode[T]) Begin(fields []string) error { return n.of.Begin(fields) }

func (n nullableDecode[T]) Decode(r *batch.Record, into *Null[T]) error {
	if r.Value == nil {
		*into = Null[T]{}
		return nil
	}
	into.Valid = true
	return n.of.Decode(r, &into.V)
}
