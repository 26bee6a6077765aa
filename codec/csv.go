package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/csvscan"
	"github.com/tridentd/tridentd/internal/names"
)

// CSV reads records of CSV text behind a header line into the struct T, by the columns' names. A field whose text is
// one of nulls, quoted or not, is null; without them no field is, and an empty one is the empty string. A record with
// more or fewer fields than the header line is a bad record.
func CSV[T any](nulls ...string) Decoder[T] {
	d := &csvDecoder[T]{nulls: slices.Clone(nulls)}
	slices.Sort(d.nulls)
	d.nulls = slices.Compact(d.nulls)
	t := reflect.TypeFor[T]()
	n, err := newCompiler().compile(t, t.String())
	switch {
	case err != nil:
		d.err = err
	case n.str == nil:
		d.err = fmt.Errorf("%s: a CSV record becomes a struct", t)
	default:
		d.str = n.str
		for i, f := range n.str.fields {
			if f.node.text == nil {
				d.err = fmt.Errorf("%s: a CSV field can't become a %s", t.String()+"."+t.FieldByIndex(f.path).Name, f.node.name)
				break
			}
			d.text = append(d.text, n.str.names[i]+" "+f.node.name)
		}
	}
	return d
}

type csvDecoder[T any] struct {
	str   *structure
	nulls []string
	text  []string
	err   error
}

func (d *csvDecoder[T]) CSV() bool  { return true }
func (d *csvDecoder[T]) Err() error { return d.err }

func (d *csvDecoder[T]) Describe() string {
	if len(d.nulls) == 0 {
		return "csv {" + strings.Join(d.text, ", ") + "}"
	}
	return fmt.Sprintf("csv {%s} nulls %q", strings.Join(d.text, ", "), d.nulls)
}

func (d *csvDecoder[T]) New() Decode[T] {
	if d.err != nil {
		panic("codec: New of a decoder that can't be: " + d.err.Error())
	}
	return &csvDecode[T]{str: d.str, nulls: d.nulls}
}

type csvDecode[T any] struct {
	str     *structure
	nulls   []string
	columns int   // of the header line
	at      []int // the column of each field
	fields  [][]byte
	texts   texts
	scratch []byte
}

func (d *csvDecode[T]) Begin(columns []string) error {
	if columns == nil {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "decode", fmt.Errorf("the source has no columns"),
			"use a source with a header line for CSV, or another decoder")
	}
	d.columns, d.at = len(columns), d.at[:0]
	for _, name := range d.str.names {
		i := slices.Index(columns, name)
		if i < 0 {
			remedy := "add the column, or give the field another name by a trident tag"
			if near, ok := names.Nearest(name, columns); ok {
				remedy = fmt.Sprintf("did you mean %s? Set it by a trident tag", near)
			}
			return batch.NewError(batch.Permanent, batch.CodeConfiguration, "decode",
				fmt.Errorf("the header line has no column %s: %s", name, strings.Join(columns, ",")), remedy)
		}
		if slices.Contains(columns[i+1:], name) {
			return batch.NewError(batch.Permanent, batch.CodeConfiguration, "decode",
				fmt.Errorf("the header line has the column %s twice", name), "name each column once")
		}
		d.at = append(d.at, i)
	}
	return nil
}

func (d *csvDecode[T]) Decode(r *batch.Record, into *T) error {
	if r.Value == nil {
		return errNull
	}
	if d.at == nil {
		panic("codec: Decode before Begin")
	}
	var err error
	if d.fields, d.scratch, err = csvscan.Split(r.Value, d.fields[:0], d.scratch[:0]); err != nil {
		return err
	}
	if err := csvscan.Count(d.fields, d.columns); err != nil {
		return err
	}
	v := reflect.ValueOf(into).Elem()
	for i := range d.str.fields {
		f, text := &d.str.fields[i], d.fields[d.at[i]]
		if d.isNull(text) {
			if !f.node.null {
				return fmt.Errorf("field %s: %w", d.str.names[i], errNullField)
			}
			f.in(v).SetZero()
			continue
		}
		if err := f.node.text(&d.texts, f.in(v), text); err != nil {
			return fmt.Errorf("field %s: %w", d.str.names[i], err)
		}
	}
	return nil
}

func (d *csvDecode[T]) isNull(text []byte) bool {
	return slices.ContainsFunc(d.nulls, func(n string) bool { return n == string(text) })
}
