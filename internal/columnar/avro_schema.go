package columnar

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/avro"

	"github.com/tridentd/tridentd/internal/vec"
)

// AvroSchema is a schema of Avro, ready for reading and writing. It is immutable.
type AvroSchema struct {
	parsed *avro.Schema
	root   *avroType
}

// ParseAvro reads a schema in JSON. refs are the schemas, in JSON too, that define names which it uses, each after those that it
// uses itself.
func ParseAvro(text string, refs ...string) (*AvroSchema, error) {
	cache := new(avro.SchemaCache)
	for _, r := range refs {
		if _, err := cache.Parse(r); err != nil {
			return nil, fmt.Errorf("a schema that it refers to: %w", err)
		}
	}
	parsed, err := cache.Parse(text)
	if err != nil {
		return nil, err
	}
	b := avroBuilder{named: map[string]*avroType{}}
	root, err := b.build(parsed.Root())
	if err != nil {
		return nil, err
	}
	if root.kind != avroRecord {
		return nil, fmt.Errorf("the schema is a %s; a row needs a record", root)
	}
	return &AvroSchema{parsed: parsed, root: root}, nil
}

// String is the schema in JSON.
func (s *AvroSchema) String() string { return s.parsed.String() }

type avroKind uint8

const (
	avroNull avroKind = iota
	avroBool
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroUnion
	avroRecord
)

var avroKinds = map[string]avroKind{
	"null": avroNull, "boolean": avroBool, "int": avroInt, "long": avroLong, "float": avroFloat, "double": avroDouble,
	"bytes": avroBytes, "string": avroString, "fixed": avroFixed, "enum": avroEnum, "array": avroArray, "map": avroMap,
	"union": avroUnion, "record": avroRecord, "error": avroRecord,
}

// avroLogical are the logical types that change what a value is. Others, and those on a type that they don't go with, are the
// plain type, as Avro asks.
type avroLogical uint8

const (
	plainType avroLogical = iota
	logicalDecimal
	logicalDate
	logicalMillis
	logicalMicros
	logicalNanos
	logicalUUID
)

// avroType is one type of a schema. A type that is named may contain itself.
type avroType struct {
	name    string // as errors show it
	kind    avroKind
	logical avroLogical
	scale   int
	digits  int // of a decimal: how many it has at most
	size    int // of a fixed
	symbols []string
	def     string // of an enum: what an unknown symbol is read as
	hasDef  bool
	fields  []avroField
	of      *avroType   // elements, or values of a map
	options []*avroType // of a union
	empty   bool        // a value may take no bytes
}

type avroField struct {
	name    string
	aliases []string
	typ     *avroType
	def     any
	hasDef  bool
}

func (t *avroType) String() string { return t.name }

type avroBuilder struct {
	named map[string]*avroType
	space string // the namespace that names without one are in
}

func (b *avroBuilder) build(n *avro.SchemaNode) (*avroType, error) {
	kind, ok := avroKinds[n.Type]
	if !ok {
		t := b.named[n.Type]
		if b.space != "" && !strings.Contains(n.Type, ".") && b.named[b.space+"."+n.Type] != nil {
			t = b.named[b.space+"."+n.Type]
		}
		if t == nil {
			return nil, fmt.Errorf("no type %s is defined", n.Type)
		}
		return t, nil
	}
	t := &avroType{name: n.Type, kind: kind, size: n.Size, symbols: n.Symbols, def: n.EnumDefault, hasDef: n.HasEnumDefault}
	if n.Name != "" && (kind == avroRecord || kind == avroEnum || kind == avroFixed) {
		full := n.Name
		if n.Namespace != "" && !strings.Contains(full, ".") {
			full = n.Namespace + "." + full
		}
		b.named[full] = t
		defer func(outer string) { b.space = outer }(b.space)
		b.space = full[:max(strings.LastIndexByte(full, '.'), 0)]
		t.name = n.Type + " " + full
	}
	t.setLogical(n)
	t.empty = kind == avroNull || kind == avroFixed && n.Size == 0
	var err error
	switch kind {
	case avroArray:
		t.of, err = b.build(n.Items)
	case avroMap:
		t.of, err = b.build(n.Values)
	case avroUnion:
		for i := range n.Branches {
			o, err := b.build(&n.Branches[i])
			if err != nil {
				return nil, err
			}
			t.options = append(t.options, o)
		}
	case avroRecord:
		t.empty = true
		for i := range n.Fields {
			f := &n.Fields[i]
			ft, err := b.build(&f.Type)
			if err != nil {
				return nil, fmt.Errorf("field %s: %w", f.Name, err)
			}
			t.empty = t.empty && ft.empty
			t.fields = append(t.fields, avroField{name: f.Name, aliases: f.Aliases, typ: ft, def: f.Default, hasDef: f.HasDefault})
		}
	default:
	}
	return t, err
}

func (t *avroType) setLogical(n *avro.SchemaNode) {
	switch n.LogicalType {
	case "decimal":
		if t.kind == avroBytes || t.kind == avroFixed {
			t.logical, t.scale, t.digits = logicalDecimal, n.Scale, n.Precision
		}
	case "uuid":
		if t.kind == avroFixed && n.Size == 16 {
			t.logical = logicalUUID
		}
	case "date":
		if t.kind == avroInt {
			t.logical = logicalDate
		}
	case "timestamp-millis", "local-timestamp-millis":
		if t.kind == avroLong {
			t.logical = logicalMillis
		}
	case "timestamp-micros", "local-timestamp-micros":
		if t.kind == avroLong {
			t.logical = logicalMicros
		}
	case "timestamp-nanos", "local-timestamp-nanos":
		if t.kind == avroLong {
			t.logical = logicalNanos
		}
	}
}

// optional returns what a union of null and one other type holds; any other type is itself.
func (t *avroType) optional() *avroType {
	if t.kind == avroUnion && len(t.options) == 2 {
		switch {
		case t.options[0].kind == avroNull:
			return t.options[1]
		case t.options[1].kind == avroNull:
			return t.options[0]
		}
	}
	return t
}

// column is the type of a column that takes every value of t.
func (t *avroType) column() vec.Type {
	kind := vec.Any
	switch t = t.optional(); t.logical {
	case logicalDecimal:
		kind = vec.Decimal
	case logicalUUID:
		kind = vec.String
	case logicalDate, logicalMillis, logicalMicros, logicalNanos:
		kind = vec.Time
	default:
		switch t.kind {
		case avroBool:
			kind = vec.Bool
		case avroInt, avroLong:
			kind = vec.Int
		case avroFloat, avroDouble:
			kind = vec.Float
		case avroBytes, avroFixed:
			kind = vec.Bytes
		case avroString, avroEnum:
			kind = vec.String
		default:
		}
	}
	return vec.Type{Kind: kind}
}

// Fields lists the fields that have a value of their own, those within records under their paths, in the order of the schema.
func (s *AvroSchema) Fields() []Field {
	var all []Field
	walkAvro(s.root, "", nil, func(f Field) { all = append(all, f) })
	return all
}

func walkAvro(t *avroType, prefix string, within []*avroType, add func(Field)) {
	within = append(within, t)
	for i := range t.fields {
		f := &t.fields[i]
		of := f.typ.optional()
		switch {
		case of.kind == avroRecord && slices.Contains(within, of), of.kind == avroMap:
		case of.kind == avroRecord:
			walkAvro(of, prefix+f.name+".", within, add)
		default:
			add(Field{prefix + f.name, f.typ.column()})
		}
	}
}

// Has tells whether the path of a field may lead somewhere.
func (s *AvroSchema) Has(path string) bool {
	t := s.root
	for name := range strings.SplitSeq(path, ".") {
		switch t = t.optional(); t.kind {
		case avroMap:
			t = t.of
		case avroUnion:
			return true // one of its records may have it
		case avroRecord:
			i := slices.IndexFunc(t.fields, func(f avroField) bool { return f.name == name })
			if i < 0 {
				return false
			}
			t = t.fields[i].typ
		default:
			return false
		}
	}
	return true
}

// Compatible tells what keeps records of schema writer from being read as those of s; nil if nothing does.
func (s *AvroSchema) Compatible(writer *AvroSchema) error {
	return avro.CheckCompatibility(writer.parsed, s.parsed)
}
