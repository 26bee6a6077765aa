package filesink

import (
	"encoding"
	"encoding/json"
	"path/filepath"
	"reflect"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
)

// Target writes a stream's values to files in a folder: one file for each batch, or one for each batch and folder of By. It is an
// engine.Target. Its methods return changed copies.
type Target[T any] struct {
	dir    string
	shared bool   // files' names begin with the pipeline's
	form   string // what the lines are; empty: the format's form
	format Format
	encode codec.Encode[T]
	by     func(T) time.Time
	unit   Unit
	fits   func(row []byte) error // nil: all do
	err    error
}

// JSON writes values as lines of JSON, which codec.JSON reads back. A relative folder is relative to the pipeline's file where it has one,
// to the working directory otherwise.
func JSON[T any](dir string) Target[T] {
	enc, err := codec.EncodeJSON[T]()
	return Target[T]{dir: dir, encode: enc, err: err, format: Format{Form: FormJSON}}
}

// CSV writes structs as CSV behind a line with the names of their fields. Null has no characters, an empty string is "". What isn't one
// value (a struct, a map, a list) is its JSON. The folder is as with JSON.
func CSV[T any](dir string) Target[T] { return columns[T](dir, FormCSV) }

// Parquet writes structs as Parquet. A field's type tells the column's: integers INT64, floats DOUBLE, times TIMESTAMP in nanoseconds of
// UTC, decimal.Decimal DECIMAL(38, 9) (see Scale), []byte BYTE_ARRAY, slices of those LIST, what marshals itself to text and strings STRING,
// and all else JSON. All columns may hold null. A value that its column can't hold exactly is a bad record. The folder is as with JSON.
func Parquet[T any](dir string) Target[T] { return columns[T](dir, FormParquet).Scale(DefaultScale) }

func columns[T any](dir string, form Form) Target[T] {
	t := JSON[T](dir)
	t.format.Form = form
	if t.err != nil {
		return t
	}
	fields, err := codec.Fields[T]()
	if err != nil {
		t.err = err
		return t
	}
	for _, f := range fields {
		c := Column{Name: f.Name, Type: typeOf(f.Type)}
		if kind := f.Type.Kind(); c.Type == TypeJSON && (kind == reflect.Slice || kind == reflect.Array) {
			if elem := typeOf(f.Type.Elem()); elem != TypeJSON {
				c.Type, c.Elem = TypeList, elem
			}
		}
		t.format.Columns = append(t.format.Columns, c)
	}
	return t
}

// typeOf is the type of what codec.EncodeJSON writes of values of t.
func typeOf(t reflect.Type) Type {
	p := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[time.Time]():
		return TypeTimestamp
	case t == reflect.TypeFor[decimal.Decimal]():
		return TypeDecimal
	case t == reflect.TypeFor[time.Duration](), p.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return TypeString
	case p.Implements(reflect.TypeFor[json.Marshaler]()):
		return TypeJSON
	}
	switch t.Kind() {
	case reflect.Bool:
		return TypeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return TypeInt
	case reflect.Uint, reflect.Uint64:
		return TypeUint
	case reflect.Float32, reflect.Float64:
		return TypeFloat
	case reflect.String:
		return TypeString
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return TypeBytes
		}
	}
	return TypeJSON
}

// Compression packs the files: none (the default), gzip or zstd, and of Parquet snappy (its default).
func (t Target[T]) Compression(name string) Target[T] { t.format.Compression = name; return t }

// By puts values into a folder for each hour or day of the time that f returns, as day=2026-01-31/hour=07. The zero time stands for none.
func (t Target[T]) By(unit Unit, f func(T) time.Time) Target[T] { t.unit, t.by = unit, f; return t }

// Scale is how many digits behind the point Parquet's decimals have, of 38 digits in all; the default is 9. A decimal with more of them
// is a bad record.
func (t Target[T]) Scale(digits int) Target[T] {
	cs := make([]Column, len(t.format.Columns))
	for i, c := range t.format.Columns {
		c.Scale = digits
		cs[i] = c
	}
	t.format.Columns = cs
	t.fits = t.format.Fits()
	return t
}

// Describe names the form, and not the folder, which may move.
func (t Target[T]) Describe() string {
	text := "files, " + t.form
	if t.form == "" {
		text += string(t.format.Form)
	}
	if t.by != nil {
		text += ", by " + string(t.unit)
	}
	return text
}

// Encode makes a row of a value.
func (t Target[T]) Encode(v T, r *sink.Record) (err error) {
	if t.err != nil {
		return t.err
	}
	if r.Value, err = t.encode(nil, v); err != nil {
		return err
	}
	if t.by != nil {
		r.Topic = Folder(t.by(v), t.unit)
	}
	if t.fits != nil {
		return t.fits(r.Value)
	}
	return nil
}

// Open returns the sink of one run. It touches nothing.
func (t Target[T]) Open(pipeline, name string, env emitter.Env) (sink.Sink, error) {
	err := t.err
	if err == nil && t.by != nil {
		err = t.unit.Check()
	}
	if err != nil {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "file sink", err, "")
	}
	cfg := Config{Pipeline: pipeline, Sink: name, Dir: t.dir, Format: t.format, Logger: env.Logger}
	if t.shared {
		cfg.Name = sharedName(pipeline, name)
	}
	return Open(cfg, env.Dir)
}

// Open is New for a folder that is relative to base.
func Open(cfg Config, base string) (sink.Sink, error) {
	cfg.Dir = within(base, cfg.Dir)
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// place is the folder, where the pipeline's file is taken into account.
func (t Target[T]) place(env emitter.Env) string { return within(env.Dir, t.dir) }

func within(base, dir string) string {
	if dir == "" || filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(base, dir)
}
