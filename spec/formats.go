package spec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/connect/schema"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/columnar"
	"github.com/tridentd/tridentd/internal/vec"
)

// sharedRegistry is the setting `registry` that stands for the one under `connections`.
const sharedRegistry = "shared"

func registryFields() []*field {
	return []*field{
		{name: "url", kind: kindList, required: true, item: &field{kind: kindString}, example: "url: http://127.0.0.1:8081", doc: "The registry's address. Of several, the next is asked where one doesn't answer."},
		{name: "user", kind: kindString, doc: "The user's name."},
		{name: "password", kind: kindString, doc: "The password; rather take it from the environment or a file.", example: "password: ${REGISTRY_PASSWORD}"},
		{name: "password_file", kind: kindString, doc: "A file that holds the password."},
		{name: "tls", kind: kindObject, doc: "Certificates, for an address that begins with https.", fields: []*field{
			{name: "ca_file", kind: kindString, doc: "Certificate authorities to trust, in PEM form, instead of the system's."},
			{name: "cert_file", kind: kindString, doc: "The client's certificate, in PEM form."},
			{name: "key_file", kind: kindString, doc: "The key of the client's certificate, in PEM form."},
		}},
	}
}

func registryField() *field {
	return &field{
		name: "registry", kind: kindEnum, enum: []string{sharedRegistry}, def: "none with `schema`, otherwise that of `connections`",
		doc:    "The schema registry: records begin with the id of the schema that they were written by. `shared` is that of `connections`.",
		enumOr: &field{kind: kindObject, fields: registryFields()},
	}
}

// schemaFormats are the forms of records that follow a schema, as decode takes them.
func schemaFormats() []*field {
	return []*field{
		{name: "avro", kind: kindObject, operator: true, doc: "Avro's binary form.", fields: []*field{
			{name: "schema", kind: kindString, example: "schema: order.avsc", doc: "A file with the schema, in JSON. Without a registry it is what records were written by. With one it is what they are read as: fields that are newer than a record are their defaults."},
			registryField(),
		}},
		{name: "protobuf", kind: kindObject, operator: true, doc: "Protobuf's binary form.", fields: []*field{
			{name: "schema", kind: kindString, example: "schema: order.proto", doc: "A .proto file; what it imports lies relative to its folder. With a registry too, records are read by it, and only its form is taken from the registry."},
			{name: "message", kind: kindString, def: "the file's only one", doc: "The message that a record is, of those in the file."},
			registryField(),
		}},
	}
}

// schemaDecl is where the schemas of a source's records come from.
type schemaDecl struct {
	format   string
	avro     *columnar.AvroSchema   // of a file; nil: none
	proto    *columnar.ProtoMessage // of a file; nil: none
	registry *schema.Registry       // nil: none
	digest   uint64                 // of the file's schema
	source   string                 // the file's text
}

func (d *schemaDecl) fields() []columnar.Field {
	switch {
	case d == nil:
	case d.avro != nil:
		return d.avro.Fields()
	case d.proto != nil:
		return d.proto.Fields()
	}
	return nil
}

// has tells whether a field may be in a record.
func (d *schemaDecl) has(path string) bool {
	switch {
	case d == nil:
	case d.avro != nil:
		return d.avro.Has(path)
	case d.proto != nil:
		return d.proto.Has(path)
	}
	return true
}

// data is d for records without what stands before them.
func (d *schemaDecl) data() *schemaDecl {
	c := *d
	c.registry = nil
	return &c
}

// text says what decides the values.
func (d *schemaDecl) text() string {
	text := ""
	if d.avro != nil || d.proto != nil {
		text += fmt.Sprintf(" schema %016x", d.digest)
	}
	if d.registry != nil {
		text += " ids of a registry"
	}
	return text
}

// readSchemas reads the schemas of sources and sinks, so that a misspelt field is a mistake of the pipeline's file.
func (b *modeler) readSchemas(dir string) {
	for _, s := range b.m.sources {
		d := &s.decode
		if d.kind != "avro" && d.kind != "protobuf" {
			continue
		}
		if s.connector != "kafka" && s.connector != "" {
			b.add(d.at, "decode: json", "%s needs records that may hold any bytes, as Kafka has them; a %s source cuts its input at lines", d.kind, s.connector)
			continue
		}
		d.schema = b.schema(d.kind, d.settings, d.at, dir, "source "+s.name)
	}
	for _, s := range b.m.sinks {
		b.encodeSchema(s, dir)
	}
}

// schema reads a format's settings; n is nil where none are given.
func (b *modeler) schema(format string, n *node, at pos, dir, what string) *schemaDecl {
	d := &schemaDecl{format: format}
	reg := n.get("registry")
	shared := b.m.connections.get("registry")
	file := n.get("schema")
	switch {
	case reg != nil && reg.text != sharedRegistry:
		d.registry = b.registry(reg)
	case reg != nil && shared == nil:
		b.add(reg.at, "name it under connections: registry", "%s: there is no registry under connections", what)
	case reg != nil, file == nil && shared != nil:
		d.registry = b.registry(shared)
	case file == nil && !n.has("registry") && !n.has("schema"):
		b.add(at, "for example schema: order.avsc, or registry: {url: http://127.0.0.1:8081}", "%s: %s needs a schema or a registry", what, format)
	}
	if file == nil {
		if m := n.get("message"); m != nil {
			b.add(m.at, "", "message says which message of a schema's file a record is; records with ids tell it themselves")
		}
		return d
	}
	path := file.text
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if err := d.read(path, n.get("message").str()); err != nil {
		at := file.at
		if m := n.get("message"); m != nil && errors.Is(err, errMessage) {
			at = m.at
		}
		b.add(at, "", "%v", err)
	}
	return d
}

var errMessage = errors.New("message")

func (d *schemaDecl) read(path, message string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the schema can't be read: %w", err)
	}
	d.source = string(text)
	if d.format == "avro" {
		if d.avro, err = columnar.ParseAvro(string(text)); err != nil {
			return fmt.Errorf("%s is no schema of Avro that can be used: %w", filepath.Base(path), err)
		}
		d.digest = xxhash.Sum64String(d.avro.String())
		return nil
	}
	file, err := columnar.ParseProto(filepath.Base(path), func(name string) (string, error) {
		if !filepath.IsLocal(name) {
			return "", fmt.Errorf("%s lies outside the folder of the schema", name)
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		return string(b), err
	})
	if err != nil {
		return fmt.Errorf("%s is no schema of Protobuf that can be used: %w", filepath.Base(path), err)
	}
	m, err := file.Message(message)
	if err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	d.proto, d.digest = m, xxhash.Sum64String(m.String())
	return nil
}

func (b *modeler) registry(n *node) *schema.Registry {
	tls := n.get("tls")
	cfg := schema.Config{
		URLs: n.get("url").texts(), User: n.get("user").str(), Password: n.get("password").str(), PasswordFile: n.get("password_file").str(),
		CAFile: tls.get("ca_file").str(), CertFile: tls.get("cert_file").str(), KeyFile: tls.get("key_file").str(),
	}
	if len(n.failed) > 0 {
		return nil // reported already
	}
	r, err := schema.New(cfg)
	if err != nil {
		msg, hint := saying(err)
		b.add(n.at, hint, "%s", msg)
		return nil
	}
	return r
}

// schemaType is the type that a schema's file gives a field.
func (d *decodeDecl) schemaType(name string) (vec.Kind, bool) {
	for _, f := range d.schema.fields() {
		if f.Name == name {
			return f.Type.Kind, f.Type.Kind != vec.Any
		}
	}
	return vec.Null, false
}

// nests tells whether fields may lie within others.
func (d *decodeDecl) nests() bool {
	return d.kind == "json" || d.kind == "avro" || d.kind == "protobuf"
}

// checkRegistry adds to a source's check that of its registry.
func checkRegistry(d *schemaDecl, check func(ctx context.Context, env doctor.Env) []doctor.Finding) func(ctx context.Context, env doctor.Env) []doctor.Finding {
	if d == nil || d.registry == nil {
		return check
	}
	return func(ctx context.Context, env doctor.Env) []doctor.Finding {
		var found []doctor.Finding
		if check != nil {
			found = check(ctx, env)
		}
		return append(found, d.registry.Check(ctx, env)...)
	}
}

// schemaDecoder reads the fields in use of Avro or Protobuf records.
type schemaDecoder struct {
	decl    *schemaDecl
	targets []columnar.Target
	mem     *vec.Arena
	plain   rowReader               // of records without ids
	readers map[string]schemaReader // by what stands before the record
}

// rowReader fills row i of its columns from a record.
type rowReader interface{ Read(b []byte, i int) error }

// schemaReader is what is known of records that begin in one way.
type schemaReader struct {
	read rowReader
	err  error // nil, or why none of them can be read
}

func newSchemaDecoder(d *schemaDecl, fields []target, mem *vec.Arena) *schemaDecoder {
	s := &schemaDecoder{decl: d, mem: mem, readers: map[string]schemaReader{}}
	for _, f := range fields {
		s.targets = append(s.targets, columnar.Target{Name: f.name, Col: f.col})
	}
	switch {
	case d.proto != nil:
		s.plain = columnar.NewProtoReader(d.proto, s.targets, setText)
	case d.registry == nil:
		r, err := columnar.NewAvroReader(d.avro, nil, s.targets, mem, setText)
		if err != nil {
			panic("spec: a schema can't be read by itself: " + err.Error())
		}
		s.plain = r
	}
	return s
}

func (s *schemaDecoder) header([]string) error { return nil }
func (s *schemaDecoder) reset()                {}

func (s *schemaDecoder) decode(r *batch.Record, i int) error {
	if r.Value == nil {
		return errNull
	}
	if s.decl.registry == nil {
		return s.plain.Read(r.Value, i)
	}
	id, rest, err := schema.Split(r.Value)
	if err != nil {
		return err
	}
	var index []int
	if s.decl.format == "protobuf" {
		if index, rest, err = schema.SplitIndex(rest); err != nil {
			return err
		}
		if s.plain != nil {
			return s.plain.Read(rest, i)
		}
	}
	head := r.Value[:len(r.Value)-len(rest)]
	known, ok := s.readers[string(head)]
	if !ok {
		if known.read, known.err = s.reader(id, index); known.err != nil {
			// Only what an id stands for is kept: that a registry doesn't know it may be different tomorrow, as may be that it is away.
			if _, ours := errors.AsType[*batch.Error](known.err); ours || errors.Is(known.err, schema.ErrUnknown) {
				return known.err
			}
		}
		s.readers[string(head)] = known
	}
	if known.err != nil {
		return known.err
	}
	return known.read.Read(rest, i)
}

// askTimeout bounds a question to the registry, with those after the schemas that a schema refers to.
const askTimeout = 30 * time.Second

func (s *schemaDecoder) reader(id int, index []int) (rowReader, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if s.decl.format == "avro" {
		writer, err := s.decl.registry.Avro(ctx, id)
		if err != nil {
			return nil, err
		}
		r, err := columnar.NewAvroReader(writer, s.decl.avro, s.targets, s.mem, setText)
		if err != nil {
			return nil, fmt.Errorf("schema %d can't be read as the one of the file: %w", id, err)
		}
		return r, nil
	}
	file, err := s.decl.registry.Proto(ctx, id)
	if err != nil {
		return nil, err
	}
	m, err := file.At(index)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", id, err)
	}
	return columnar.NewProtoReader(m, s.targets, setText), nil
}
