package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/connect/schema"
	"github.com/tridentd/tridentd/internal/columnar"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// encodeFormats are the forms of records that follow a schema, as encode takes them.
func encodeFormats() []*field {
	return []*field{
		{name: "avro", kind: kindObject, operator: true, doc: "Avro's binary form.", fields: []*field{
			{name: "schema", kind: kindString, required: true, example: "schema: order.avsc", doc: "A file with the schema, in JSON. Rows are written by it."},
			encodeRegistry(), subjectField(), registerField(),
		}},
		{name: "protobuf", kind: kindObject, operator: true, doc: "Protobuf's binary form.", fields: []*field{
			{name: "schema", kind: kindString, required: true, example: "schema: order.proto", doc: "A .proto file; what it imports lies relative to its folder."},
			{name: "message", kind: kindString, def: "the file's only one", doc: "The message that a row is written as, of those in the file."},
			encodeRegistry(), subjectField(), registerField(),
		}},
	}
}

func encodeRegistry() *field {
	f := registryField()
	f.def = "none"
	f.doc = "The schema registry that has the schema: records begin with its id there. `shared` is that of `connections`."
	return f
}

func subjectField() *field {
	return &field{name: "subject", kind: kindString, def: "the topic's name and `-value`", example: "subject: orders-value", doc: "The subject of the registry that has the schema."}
}

func registerField() *field {
	return &field{name: "register", kind: kindBool, def: "false", doc: "Whether a start registers the schema where the subject doesn't have it. Otherwise it must be there."}
}

// encodeDecl says what a sink's rows are written as.
type encodeDecl struct {
	at       pos
	form     string // json, avro, protobuf
	settings *node  // of avro and protobuf; nil: none are given
	schema   *schemaDecl
	names    []string        // of the fields that rows have, on any way
	subject  *schema.Subject // nil: records begin with no id
}

func encodeOf(n *node) encodeDecl {
	if n == nil {
		return encodeDecl{form: "json"}
	}
	d := encodeDecl{at: n.at, form: n.text}
	if op, settings := n.operator(); settings != nil {
		d.form, d.settings = op, settings
	}
	return d
}

// text says what decides the bytes.
func (d *encodeDecl) text() string {
	if d.schema == nil {
		return d.form
	}
	return d.form + d.schema.text()
}

// encodeSchema reads the schema that a sink writes by.
func (b *modeler) encodeSchema(s *sinkDecl, dir string) {
	d := &s.encode
	switch {
	case d.form != "avro" && d.form != "protobuf":
	case s.connector != "kafka" && s.connector != "":
		b.add(d.at, "encode: json", "sink %s: records of %s may hold any bytes, as Kafka has them; the lines of a file don't", s.name, d.form)
	case d.settings == nil:
		b.add(d.at, "encode: {"+d.form+": {schema: order."+map[string]string{"avro": "avsc", "protobuf": "proto"}[d.form]+"}}", "sink %s: %s needs the schema to write by", s.name, d.form)
	case d.settings.get("schema") != nil:
		d.schema = b.schema(d.form, d.settings, d.at, dir, "sink "+s.name)
		d.subject = b.subject(s)
	}
}

// subject reads where the registry of a sink has its schema.
func (b *modeler) subject(s *sinkDecl) *schema.Subject {
	d := s.encode.schema
	n := s.encode.settings
	if !n.has("registry") {
		for _, name := range []string{"subject", "register"} {
			if c := n.get(name); c != nil {
				b.add(c.at, "registry: shared, or registry: {url: http://127.0.0.1:8081}", "sink %s: %s is said of a registry, and none is named", s.name, name)
			}
		}
		return nil
	}
	if d.registry == nil || d.avro == nil && d.proto == nil {
		return nil // reported already
	}
	name := s.settings.get("topic").str() + "-value"
	if c := n.get("subject"); c != nil {
		name = c.text
	}
	r := n.get("register")
	register := r != nil && r.yes
	if d.avro != nil {
		return d.registry.AvroSubject(name, d.source, register)
	}
	if imports := d.proto.Imports(); len(imports) > 0 {
		b.add(n.get("schema").at, "put what the message needs into one file", "sink %s: a schema that imports %s has no id in a registry by itself", s.name, strings.Join(imports, ", "))
		return nil
	}
	return d.registry.ProtoSubject(name, d.source, d.proto.Index(), register)
}

// rowWriter appends row i of its columns as a record.
type rowWriter interface {
	Write(dst []byte, i int) ([]byte, error)
}

// rowWriterOf makes a writer of rows with fields, or tells what keeps them from being written.
func (d *encodeDecl) rowWriterOf(fields []columnar.Field, cols []*vec.Column) (rowWriter, error) {
	if d.form == "avro" {
		return columnar.NewAvroWriter(d.schema.avro, fields, cols)
	}
	return columnar.NewProtoWriter(d.schema.proto, fields, cols)
}

// writer is rowWriterOf for what was checked.
func (d *encodeDecl) writer(fields []columnar.Field, cols []*vec.Column) rowWriter {
	w, err := d.rowWriterOf(fields, cols)
	if err != nil {
		panic("spec: rows that fit a schema can't be written: " + err.Error())
	}
	return w
}

// fits checks that the rows which a sink takes on one way can be written by its schema.
func (c *checker) fits(s *sinkDecl, end *sinkEnd) {
	for _, name := range end.names {
		if !slices.Contains(s.encode.names, name) {
			s.encode.names = append(s.encode.names, name)
		}
	}
	d := s.encode.schema
	if d == nil || d.avro == nil && d.proto == nil || len(end.types) == 0 {
		return
	}
	_, err := s.encode.rowWriterOf(end.types, nil)
	if err == nil {
		return
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		hint := ""
		if len(s.fields) == 0 && strings.Contains(err.Error(), "has no such field") {
			hint = "fields: [a, b] names those to write"
		}
		c.add(s.encode.settings.get("schema").at, hint, "sink %s: %v", s.name, err)
	}
}

// SinkValue is the value of a record that the pipeline has for a sink, as a JSON object, whatever form it is written in: the fields that the
// sink's rows have.
func (p *Pipeline) SinkValue(sink string, b []byte) ([]byte, error) {
	i := slices.IndexFunc(p.m.sinks, func(s *sinkDecl) bool { return s.name == sink })
	if i < 0 {
		return nil, fmt.Errorf("the pipeline has no sink %s", sink)
	}
	d := &p.m.sinks[i].encode
	if d.schema == nil {
		return b, nil
	}
	var fields []target
	for _, name := range d.names {
		c := new(vec.Column)
		c.Reset(vec.Type{Kind: vec.Any}, 1)
		fields = append(fields, target{name: name, typ: c.Type, col: c})
	}
	if err := newSchemaDecoder(d.schema.data(), fields, new(vec.Arena)).plain.Read(b, 0); err != nil {
		return nil, fmt.Errorf("sink %s: %w", sink, err)
	}
	out := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(value.AppendJSON(out, value.StringOf(f.name)), ':')
		out = value.AppendJSON(out, f.col.Value(0))
	}
	return append(out, '}'), nil
}
