package filesink

import (
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/sink"
)

// Parquet's columns are all optional. By type: BOOLEAN, INT64, INT64 (INTEGER 64 unsigned), DOUBLE, FIXED_LEN_BYTE_ARRAY(16)
// (DECIMAL(Precision, scale)), BYTE_ARRAY (STRING), BYTE_ARRAY, INT64 (TIMESTAMP of nanoseconds, adjusted to UTC), BYTE_ARRAY (JSON), and the
// three levels of LIST.

// message is a group whose fields keep their order, which parquet.Group sorts.
type message struct {
	parquet.Group
	fields []parquet.Field
}

func (m message) Fields() []parquet.Field { return m.fields }

type messageField struct {
	parquet.Node
	name string
}

func (f messageField) Name() string { return f.name }

// Value is for rows that are Go structs, which ours aren't.
func (f messageField) Value(reflect.Value) reflect.Value {
	panic("filesink: a row of Parquet is written by its values")
}

func node(c *Column, t Type) parquet.Node {
	switch t {
	case TypeBool:
		return parquet.Leaf(parquet.BooleanType)
	case TypeInt:
		return parquet.Leaf(parquet.Int64Type)
	case TypeUint:
		return parquet.Uint(64)
	case TypeFloat:
		return parquet.Leaf(parquet.DoubleType)
	case TypeDecimal:
		return parquet.Decimal(c.Scale, Precision, parquet.FixedLenByteArrayType(decimalBytes))
	case TypeString:
		return parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	case TypeBytes:
		return parquet.Leaf(parquet.ByteArrayType)
	case TypeTimestamp:
		return parquet.Timestamp(parquet.Nanosecond)
	case TypeJSON:
		return parquet.JSON()
	case TypeList:
		return parquet.List(parquet.Optional(node(c, c.Elem)))
	}
	panic("filesink: a column of no type")
}

const (
	decimalBytes = 16 // what Precision digits take
	// dictionaryBytes is how large the dictionary of a column's strings may grow before they are written in full.
	dictionaryBytes = 1 << 20
	// rowGroupRows bounds the rows that readers must take at once, and those that wait in memory for the end of a group.
	rowGroupRows = 1 << 20
	// handedOn is how many rows are given to the writer at once.
	handedOn = 256
)

type parquetRows struct {
	w    *parquet.GenericWriter[any]
	doc  *document
	rows []parquet.Row
}

func newParquetRows(w io.Writer, f *Format) (*parquetRows, error) {
	m := message{Group: parquet.Group{}}
	for i := range f.Columns {
		c := &f.Columns[i]
		n := parquet.Optional(node(c, c.Type))
		m.Group[c.Name] = n
		m.fields = append(m.fields, messageField{n, c.Name})
	}
	var codec compress.Codec = &parquet.Snappy
	switch f.Compression {
	case "none":
		codec = &parquet.Uncompressed
	case "gzip":
		codec = &parquet.Gzip
	case "zstd":
		codec = &parquet.Zstd
	}
	return &parquetRows{doc: newDocument(f.Columns), w: parquet.NewGenericWriter[any](w, parquet.NewSchema("row", m), parquet.Compression(codec),
		parquet.CreatedBy("tridentd", "", ""), // no version: the same rows make the same bytes
		parquet.DictionaryMaxBytes(dictionaryBytes), parquet.MaxRowsPerRowGroup(rowGroupRows))}, nil
}

func (p *parquetRows) add(r *sink.Record) error {
	if err := p.doc.read(r.Value); err != nil {
		return badRow(err, "")
	}
	var row parquet.Row
	for i := range p.doc.columns {
		v, err := p.doc.value(i)
		if err != nil {
			return badRow(err, "")
		}
		row = appendColumn(row, v, &p.doc.columns[i], i)
	}
	if p.rows = append(p.rows, row); len(p.rows) < handedOn {
		return nil
	}
	return p.flush()
}

// appendColumn appends a column's values with their levels: of one value 0 and, unless it is null, 1; of a list also whether it has
// elements (2), and whether the element isn't null (3).
func appendColumn(row parquet.Row, v value.Value, c *Column, at int) parquet.Row {
	if c.Type != TypeList {
		return append(row, leaf(v, c.Type, 0, at))
	}
	if v.IsNull() {
		return append(row, parquet.NullValue().Level(0, 0, at))
	}
	elems := v.List()
	if len(elems) == 0 {
		return append(row, parquet.NullValue().Level(0, 1, at))
	}
	for i, e := range elems {
		x := leaf(e, c.Elem, 2, at)
		if i > 0 {
			x.SetRepetitionLevel(1)
		}
		row = append(row, x)
	}
	return row
}

// leaf is a value at a definition level, one more if it isn't null.
func leaf(v value.Value, t Type, level, at int) parquet.Value {
	if v.IsNull() {
		return parquet.NullValue().Level(0, level, at)
	}
	var x parquet.Value
	switch t {
	case TypeBool:
		x = parquet.BooleanValue(v.Bool())
	case TypeInt, TypeUint:
		x = parquet.Int64Value(v.Int())
	case TypeFloat:
		x = parquet.DoubleValue(v.Float())
	case TypeDecimal:
		x = parquet.FixedLenByteArrayValue(v.Bytes())
	case TypeBytes:
		x = parquet.ByteArrayValue(v.Bytes())
	case TypeTimestamp:
		x = parquet.Int64Value(v.Nanos())
	default:
		x = parquet.ByteArrayValue([]byte(v.Str()))
	}
	return x.Level(0, level+1, at)
}

func (p *parquetRows) flush() error {
	_, err := p.w.WriteRows(p.rows)
	clear(p.rows)
	p.rows = p.rows[:0]
	return err
}

func (p *parquetRows) end() error {
	if err := p.flush(); err != nil {
		return err
	}
	return p.w.Close()
}
