package columnar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tridentd/tridentd/internal/vec"
)

// ProtoFile is a compiled .proto file. It is immutable.
type ProtoFile struct{ file protoreflect.FileDescriptor }

// ProtoMessage is a message of one. It is immutable.
type ProtoMessage struct {
	desc protoreflect.MessageDescriptor
}

// ParseProto compiles the file of a name. open returns the text of it and of what it imports; the well-known files of Google's need
// not be there.
func ParseProto(name string, open func(name string) (string, error)) (*ProtoFile, error) {
	c := protocompile.Compiler{MaxParallelism: 1, Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: func(name string) (io.ReadCloser, error) {
			text, err := open(name)
			if err != nil {
				return nil, err
			}
			return io.NopCloser(strings.NewReader(text)), nil
		},
	})}
	files, err := c.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	return &ProtoFile{files[0]}, nil
}

// ParseProtoText is ParseProto with all texts at hand, by their names.
func ParseProtoText(name string, texts map[string]string) (*ProtoFile, error) {
	texts = maps.Clone(texts)
	return ParseProto(name, func(name string) (string, error) {
		text, ok := texts[name]
		if !ok {
			return "", fmt.Errorf("%s isn't there", name)
		}
		return text, nil
	})
}

// Messages lists the full names of the file's messages, those within others too.
func (f *ProtoFile) Messages() []string {
	var all []string
	var walk func(ms protoreflect.MessageDescriptors)
	walk = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			if m := ms.Get(i); !m.IsMapEntry() {
				all = append(all, string(m.FullName()))
				walk(m.Messages())
			}
		}
	}
	walk(f.file.Messages())
	return all
}

// Message returns the message of a name, with or without the package; without a name, the file's only one.
func (f *ProtoFile) Message(name string) (*ProtoMessage, error) {
	if name == "" {
		if ms := f.file.Messages(); ms.Len() == 1 {
			return &ProtoMessage{ms.Get(0)}, nil
		}
		return nil, fmt.Errorf("the file has the messages %s; message must say which", strings.Join(f.Messages(), ", "))
	}
	at := f.file.Messages()
	short := strings.TrimPrefix(name, string(f.file.Package())+".")
	var found protoreflect.MessageDescriptor
	for part := range strings.SplitSeq(short, ".") {
		if found = at.ByName(protoreflect.Name(part)); found == nil {
			return nil, fmt.Errorf("the file has no message %s; it has %s", name, strings.Join(f.Messages(), ", "))
		}
		at = found.Messages()
	}
	return &ProtoMessage{found}, nil
}

// At returns the message that lies at a place: its number among the file's, that within it, and so on.
func (f *ProtoFile) At(index []int) (*ProtoMessage, error) {
	at := f.file.Messages()
	var found protoreflect.MessageDescriptor
	for _, i := range index {
		if i < 0 || i >= at.Len() {
			return nil, fmt.Errorf("the schema has no message %v", index)
		}
		found = at.Get(i)
		at = found.Messages()
	}
	if found == nil {
		return nil, errors.New("no message is named")
	}
	return &ProtoMessage{found}, nil
}

// Imports lists what the message's file imports, but for the well-known files of Google's.
func (m *ProtoMessage) Imports() []string {
	var all []string
	imports := m.desc.ParentFile().Imports()
	for i := range imports.Len() {
		if path := imports.Get(i).Path(); !strings.HasPrefix(path, "google/protobuf/") {
			all = append(all, path)
		}
	}
	return all
}

// Index is where the message lies in its file.
func (m *ProtoMessage) Index() []int {
	var at []int
	for d := protoreflect.Descriptor(m.desc); ; d = d.Parent() {
		if _, ok := d.(protoreflect.MessageDescriptor); !ok {
			break
		}
		at = append(at, d.Index())
	}
	slices.Reverse(at)
	return at
}

// Name is the message's full name.
func (m *ProtoMessage) Name() string { return string(m.desc.FullName()) }

// String describes what a record of the message is: every field that may stand in one, with its number and type.
func (m *ProtoMessage) String() string {
	var b strings.Builder
	describeProto(&b, m.desc, map[protoreflect.FullName]bool{})
	return b.String()
}

func describeProto(b *strings.Builder, m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) {
	b.WriteString(string(m.FullName()))
	if seen[m.FullName()] {
		return
	}
	seen[m.FullName()] = true
	b.WriteString(" {")
	fields := m.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		fmt.Fprintf(b, "%d %s %s ", f.Number(), f.Name(), f.Cardinality())
		switch {
		case f.Message() != nil:
			describeProto(b, f.Message(), seen)
		case f.Enum() != nil:
			b.WriteString("enum")
			values := f.Enum().Values()
			for k := range values.Len() {
				fmt.Fprintf(b, " %s=%d", values.Get(k).Name(), values.Get(k).Number())
			}
		default:
			b.WriteString(f.Kind().String())
		}
		switch {
		case f.HasDefault():
			fmt.Fprintf(b, " default %s", f.Default())
		case f.HasPresence():
			b.WriteString(" optional")
		}
		b.WriteString("; ")
	}
	b.WriteString("}")
}

// Fields lists the fields that have a value of their own, those within messages under their paths, in the order of the schema.
func (m *ProtoMessage) Fields() []Field {
	var all []Field
	walkProto(m.desc, "", nil, func(f Field) { all = append(all, f) })
	return all
}

func walkProto(m protoreflect.MessageDescriptor, prefix string, within []protoreflect.FullName, add func(Field)) {
	within = append(within, m.FullName())
	fields := m.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := prefix + string(f.Name())
		switch of := f.Message(); {
		case f.IsMap():
		case f.IsList() || of == nil || wellKnown(of) != notKnown:
			add(Field{name, protoColumn(f)})
		case opaqueProto(of) || slices.Contains(within, of.FullName()):
		default:
			walkProto(of, name+".", within, add)
		}
	}
}

// Has tells whether the path of a field leads somewhere.
func (m *ProtoMessage) Has(path string) bool {
	at := m.desc
	var f protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		switch {
		case f != nil && f.IsMap():
			f = f.MapValue()
			at = f.Message()
			continue
		case at == nil || f != nil && (f.IsList() || wellKnown(at) != notKnown):
			return false
		}
		if f = at.Fields().ByName(protoreflect.Name(name)); f == nil {
			return false
		}
		at = f.Message()
	}
	return true
}

// known are the messages that stand for one value.
type known uint8

const (
	notKnown known = iota
	knownTime
	knownDuration
	knownWrapper
)

func wellKnown(m protoreflect.MessageDescriptor) known {
	switch m.FullName() {
	case "google.protobuf.Timestamp":
		return knownTime
	case "google.protobuf.Duration":
		return knownDuration
	case "google.protobuf.DoubleValue", "google.protobuf.FloatValue", "google.protobuf.Int64Value", "google.protobuf.UInt64Value",
		"google.protobuf.Int32Value", "google.protobuf.UInt32Value", "google.protobuf.BoolValue", "google.protobuf.StringValue",
		"google.protobuf.BytesValue":
		return knownWrapper
	}
	return notKnown
}

// opaqueProto tells of messages whose content no schema describes.
func opaqueProto(m protoreflect.MessageDescriptor) bool {
	switch m.FullName() {
	case "google.protobuf.Any", "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return true
	}
	return false
}

// protoColumn is the type of a column that takes every value of a field.
func protoColumn(f protoreflect.FieldDescriptor) vec.Type {
	kind := vec.Any
	switch {
	case f.IsList() || f.IsMap():
	case f.Message() != nil:
		switch wellKnown(f.Message()) {
		case knownTime:
			kind = vec.Time
		case knownDuration:
			kind = vec.Int
		case knownWrapper:
			return protoColumn(f.Message().Fields().ByNumber(1))
		default:
		}
	default:
		switch f.Kind() {
		case protoreflect.BoolKind:
			kind = vec.Bool
		case protoreflect.EnumKind, protoreflect.StringKind:
			kind = vec.String
		case protoreflect.BytesKind:
			kind = vec.Bytes
		case protoreflect.FloatKind, protoreflect.DoubleKind:
			kind = vec.Float
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			// Beyond int64 it is no int: what the value is tells its size.
		default:
			kind = vec.Int
		}
	}
	return vec.Type{Kind: kind}
}
