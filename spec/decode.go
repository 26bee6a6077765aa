package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/csvscan"
	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/vec"
)

// decoder fills columns from the records of one block after the other.
type decoder interface {
	// header tells the columns of the records to come.
	header(fields []string) error
	// reset begins a block. What the columns hold of the one before is no longer needed.
	reset()
	// decode fills row i of the columns. An error makes the record a bad one.
	decode(r *batch.Record, i int) error
}

// target is a field of the document and the column that takes it.
type target struct {
	name string
	typ  vec.Type
	col  *vec.Column
}

func newDecoder(d *decodeDecl, fields []target, mem *vec.Arena) decoder {
	switch d.kind {
	case "json":
		return newJSONDecoder(fields, mem)
	case "avro", "protobuf":
		return newSchemaDecoder(d.schema, fields, mem)
	case "csv":
		return &csvDecoder{fields: fields, nulls: d.nulls}
	default:
		return noDecoder{}
	}
}

// noDecoder is for records whose value is a single field.
type noDecoder struct{}

func (noDecoder) header([]string) error           { return nil }
func (noDecoder) reset()                          {}
func (noDecoder) decode(*batch.Record, int) error { return nil }

var errNull = errors.New("the value is null")

// jsonDecoder reads the fields in use of JSON documents.
type jsonDecoder struct {
	object jsonObject
	value  int // the field that stands for a document that is no object; -1 if nothing reads it
	mem    *vec.Arena
	fields []target
}

// jsonObject reads members of one object: some into columns, some as objects whose members are read.
type jsonObject struct {
	scan   *jsonscan.Scanner
	found  []jsonscan.Field
	names  []string
	cols   []*vec.Column // nil: nothing reads the member itself
	nested []*jsonObject // nil: nothing reads within the member
}

func newJSONDecoder(fields []target, mem *vec.Arena) *jsonDecoder {
	d := &jsonDecoder{value: -1, mem: mem, fields: fields}
	for i, f := range fields {
		d.object.want(strings.Split(f.name, "."), f.col)
		if f.name == "value" {
			d.value = i
		}
	}
	d.object.finish()
	return d
}

func (o *jsonObject) want(path []string, col *vec.Column) {
	i := slices.Index(o.names, path[0])
	if i < 0 {
		i = len(o.names)
		o.names = append(o.names, path[0])
		o.cols, o.nested = append(o.cols, nil), append(o.nested, nil)
	}
	if len(path) == 1 {
		o.cols[i] = col
		return
	}
	if o.nested[i] == nil {
		o.nested[i] = new(jsonObject)
	}
	o.nested[i].want(path[1:], col)
}

func (o *jsonObject) finish() {
	o.scan, o.found = jsonscan.New(o.names), make([]jsonscan.Field, len(o.names))
	for _, n := range o.nested {
		if n != nil {
			n.finish()
		}
	}
}

func (d *jsonDecoder) header([]string) error { return nil }
func (d *jsonDecoder) reset()                {}

func (d *jsonDecoder) decode(r *batch.Record, i int) error {
	if err := d.object.scan.Scan(r.Value, d.object.found); err != nil {
		return d.other(r.Value, i, err)
	}
	return d.object.set(i, d.mem)
}

func (o *jsonObject) set(i int, mem *vec.Arena) error {
	for k := range o.found {
		f := &o.found[k]
		if c := o.cols[k]; c != nil {
			if err := setJSON(c, i, f, mem); err != nil {
				return fmt.Errorf("field %s: %w", o.names[k], err)
			}
		}
		n := o.nested[k]
		if n == nil {
			continue
		}
		switch f.Kind {
		case jsonscan.Object:
			if err := n.scan.Scan(f.Raw, n.found); err != nil {
				return fmt.Errorf("field %s: %w", o.names[k], err)
			}
			if err := n.set(i, mem); err != nil {
				return fmt.Errorf("field %s: %w", o.names[k], err)
			}
		case jsonscan.Missing, jsonscan.Null:
			n.setNull(i)
		default:
			return fmt.Errorf("field %s: %w", o.names[k], due(f, "an object"))
		}
	}
	return nil
}

func (o *jsonObject) setNull(i int) {
	for k, c := range o.cols {
		if c != nil {
			c.SetNull(i)
		}
		if n := o.nested[k]; n != nil {
			n.setNull(i)
		}
	}
}

// other takes a document that is no object, or no document at all: it is the field `value`, if that is in use.
func (d *jsonDecoder) other(doc []byte, i int, refused error) error {
	null := doc == nil
	if !null {
		if !json.Valid(doc) || !utf8.Valid(doc) || firstByte(doc) == '{' {
			return refused
		}
		null = firstByte(doc) == 'n'
	}
	switch {
	case d.value >= 0:
	case null:
		return errNull
	default:
		return errors.New("the document is no object; the field `value` stands for what it is")
	}
	d.object.setNull(i)
	if null {
		return nil
	}
	var element jsonscan.Field
	jsonscan.Elements(slices.Concat([]byte{'['}, doc, []byte{']'}), func(f jsonscan.Field) bool {
		element = f
		return false
	})
	c := d.fields[d.value].col
	if c.HasNulls() {
		c.Null[i] = false
	}
	if err := setJSON(c, i, &element, d.mem); err != nil {
		return fmt.Errorf("field value: %w", err)
	}
	return nil
}

func firstByte(doc []byte) byte {
	for _, c := range doc {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// csvDecoder reads the columns in use of CSV records.
type csvDecoder struct {
	fields  []target
	nulls   []string
	at      []int // the column of each field in the header line
	columns int
	texts   [][]byte
	scratch []byte
}

func (d *csvDecoder) header(columns []string) error {
	if columns == nil {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "decode", errors.New("the source has no columns"), "read csv from files with a header line")
	}
	d.columns, d.at = len(columns), d.at[:0]
	for _, f := range d.fields {
		i := slices.Index(columns, f.name)
		if i < 0 {
			remedy := "add the column to the file, or don't use it"
			if near, ok := names.Nearest(f.name, columns); ok {
				remedy = "write " + near + " if that is meant"
			}
			return batch.NewError(batch.Permanent, batch.CodeConfiguration, "decode",
				fmt.Errorf("the header line has no column %s: %s", f.name, strings.Join(columns, ",")), remedy)
		}
		if slices.Contains(columns[i+1:], f.name) {
			return batch.NewError(batch.Permanent, batch.CodeConfiguration, "decode",
				fmt.Errorf("the header line has the column %s twice", f.name), "name each column once")
		}
		d.at = append(d.at, i)
	}
	return nil
}

func (d *csvDecoder) decode(r *batch.Record, i int) error {
	if r.Value == nil {
		return errNull
	}
	var err error
	if d.texts, d.scratch, err = csvscan.Split(r.Value, d.texts[:0], d.scratch); err != nil {
		return err
	}
	if err := csvscan.Count(d.texts, d.columns); err != nil {
		return err
	}
	for k := range d.fields {
		t := d.texts[d.at[k]]
		f := &d.fields[k]
		if d.isNull(t) {
			f.col.SetNull(i)
			continue
		}
		if err := setText(f.col, i, t); err != nil {
			return fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	return nil
}

// reset frees the memory of unquoted texts, which columns refer to until the next chunk.
func (d *csvDecoder) reset() { d.scratch = d.scratch[:0] }

func (d *csvDecoder) isNull(text []byte) bool {
	return len(d.nulls) > 0 && slices.Contains(d.nulls, vec.Text(text))
}

// setProperty fills row i of a column with one of the record's properties.
func setProperty(name string, c *vec.Column, i int, r *batch.Record, p *batch.Partition) error {
	switch name {
	case "_key":
		setBytes(c, i, r.Key)
	case "_topic":
		c.Str[i] = vec.Raw(p.Topic)
	case "_partition":
		c.Int[i] = int64(p.Number)
	case "_offset":
		c.Int[i] = r.Offset
	case "_timestamp":
		switch {
		case r.Timestamp == 0:
			c.SetNull(i)
		case r.Timestamp < minMillis || r.Timestamp > maxMillis:
			return fmt.Errorf("the record's timestamp of %d ms lies outside the years %d to %d", r.Timestamp, firstYear, lastYear)
		default:
			c.Int[i] = r.Timestamp * int64(time.Millisecond)
		}
	case "key", "value":
		b := r.Value
		if name == "key" {
			b = r.Key
		}
		if c.Type.Kind == vec.String && !utf8.Valid(b) {
			return fmt.Errorf("field %s: %s is not UTF-8", name, clip(b))
		}
		setBytes(c, i, b)
	default:
		panic("spec: no property " + name)
	}
	return nil
}

func setBytes(c *vec.Column, i int, b []byte) {
	if b == nil {
		c.SetNull(i)
		return
	}
	c.Str[i] = b
}
