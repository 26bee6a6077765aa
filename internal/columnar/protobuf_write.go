package columnar

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// ProtoWriter writes rows as records of one message. It is for one goroutine.
type ProtoWriter struct {
	root *protoOutMessage
	cols []*vec.Column
}

// NewProtoWriter returns a writer of rows with fields, which lie in cols. Without cols it only finds what keeps such rows from being written:
// an error joins all of that. A field of the message that rows don't have isn't written.
func NewProtoWriter(msg *ProtoMessage, fields []Field, cols []*vec.Column) (*ProtoWriter, error) {
	o, err := origins(fields)
	if err != nil {
		return nil, err
	}
	var m misfits
	root := planProtoOut(&m, msg.desc, o, "", 0)
	if err := m.err(); err != nil {
		return nil, err
	}
	return &ProtoWriter{root: root, cols: cols}, nil
}

// protoOutMessage says how a message is written: the fields that rows have, by their numbers.
type protoOutMessage struct {
	fields []protoOut
	oneofs [][]int // the fields of each oneof of which rows have several
}

type protoOut struct {
	path  string
	shape *protoShape
	from  *origin
	inner *protoOutMessage // of a message that rows have fields of
	keys  []protoOutEntry  // of a map
}

// protoShape is what of a field decides how its values are written.
type protoShape struct {
	desc    protoreflect.FieldDescriptor
	kind    protoreflect.Kind
	tag     []byte // of one value
	own     vec.Kind
	also    []vec.Kind
	list    bool
	packed  bool
	always  bool             // it is written also where its value is what a reader finds that finds none
	zero    string           // of an enum: the name that it is read as where it isn't there
	numbers map[string]int32 // of an enum, by its names
	known   known
	wrapped *protoShape // of a message that wraps a value
}

func shapeOf(f protoreflect.FieldDescriptor) *protoShape {
	s := &protoShape{
		desc: f, kind: f.Kind(), tag: protowire.AppendTag(nil, f.Number(), wireType(f.Kind())), list: f.IsList(), packed: f.IsPacked(),
		always: f.HasPresence() || f.ContainingMessage().IsMapEntry(),
	}
	s.own, s.also = protoKind(f)
	if e := f.Enum(); e != nil {
		s.numbers = map[string]int32{}
		for i := range e.Values().Len() {
			v := e.Values().Get(i)
			s.numbers[string(v.Name())] = int32(v.Number())
		}
		if v := e.Values().ByNumber(f.Default().Enum()); v != nil && !f.IsList() {
			s.zero = string(v.Name())
		}
	}
	if f.Message() != nil {
		if s.known = wellKnown(f.Message()); s.known == knownWrapper {
			s.wrapped = shapeOf(f.Message().Fields().ByNumber(1))
		}
	}
	return s
}

func (s *protoShape) takes(k vec.Kind) bool { return k == s.own || slices.Contains(s.also, k) }

// protoOutEntry is an entry of a map.
type protoOutEntry struct {
	key []byte // as a field of the entry
	protoOut
}

func planProtoOut(m *misfits, d protoreflect.MessageDescriptor, from *origin, prefix string, depth int) *protoOutMessage {
	msg := &protoOutMessage{}
	known := make([]string, 0, d.Fields().Len())
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		known = append(known, string(f.Name()))
		path := prefix + string(f.Name())
		o := from.take(string(f.Name()))
		switch {
		case o != nil && depth > maxDepth:
			m.errs = append(m.errs, fmt.Errorf("field %s: %w", path, errDeep))
		case o != nil:
			msg.fields = append(msg.fields, planProtoValue(m, f, o, path, depth))
		case f.Cardinality() == protoreflect.Required:
			m.add(path, "the rows don't have it, and %s requires it", d.FullName())
		}
	}
	m.unplaced(from, prefix, "message "+string(d.FullName()), known)
	slices.SortFunc(msg.fields, func(a, b protoOut) int { return cmp.Compare(a.shape.desc.Number(), b.shape.desc.Number()) })
	for i := range d.Oneofs().Len() {
		one := d.Oneofs().Get(i)
		var members []int
		for k := range msg.fields {
			if msg.fields[k].shape.desc.ContainingOneof() == one {
				members = append(members, k)
			}
		}
		if len(members) > 1 {
			msg.oneofs = append(msg.oneofs, members)
		}
	}
	return msg
}

func planProtoValue(m *misfits, f protoreflect.FieldDescriptor, o *origin, path string, depth int) protoOut {
	out := protoOut{path: path, shape: shapeOf(f), from: o}
	switch {
	case o.at >= 0:
		if o.typ.Kind == vec.Null && nullable(f) != nil || !protoTakes(f, o.typ) {
			m.errs = append(m.errs, fmt.Errorf("field %s: %w", path, due(typeText(o.typ), protoText(f))))
		}
	case f.IsMap():
		for _, e := range o.members {
			key, err := protoKey(f.MapKey(), e.name)
			if err != nil {
				m.add(path+"."+e.name, "it is no key of the map: %w", err)
				continue
			}
			out.keys = append(out.keys, protoOutEntry{key, planProtoValue(m, f.MapValue(), e, path+"."+e.name, depth+1)})
		}
	case f.IsList() || f.Kind() != protoreflect.MessageKind || wellKnown(f.Message()) != notKnown || opaqueProto(f.Message()):
		m.add(path, "the rows have fields of it where %s is due", protoText(f))
	default:
		out.inner = planProtoOut(m, f.Message(), o, path+".", depth+1)
	}
	return out
}

// protoKey is a map's key as a field of an entry.
func protoKey(f protoreflect.FieldDescriptor, text string) ([]byte, error) {
	v := value.StringOf(text)
	switch f.Kind() {
	case protoreflect.StringKind:
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, err
		}
		v = value.BoolOf(b)
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, err
		}
		v = value.UintOf(n)
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		v = value.IntOf(n)
	}
	s := shapeOf(f)
	return appendProto(slices.Clone(s.tag), s, v)
}

// nullable is nil where a field can say that it has no value: a reader finds null.
func nullable(f protoreflect.FieldDescriptor) error {
	switch {
	case f.Cardinality() == protoreflect.Required:
		return errors.New("null, and the schema requires a value")
	case f.IsList():
		return errors.New("null, which would be read as an empty list")
	case !f.HasPresence() || f.HasDefault():
		return fmt.Errorf("null, which would be read as %s: the schema doesn't say optional", value.AppendJSON(nil, defaultOf(f)))
	}
	return nil
}

// defaultOf is what a field without presence is read as.
func defaultOf(f protoreflect.FieldDescriptor) value.Value {
	var cell one
	if err := setProtoValue(f, f.Default(), cell.slot(nil)); err != nil {
		return value.NullValue()
	}
	return cell.col.Value(0)
}

// protoText is a field's type as errors name it.
func protoText(f protoreflect.FieldDescriptor) string {
	text := f.Kind().String()
	switch {
	case f.IsMap():
		return "a map"
	case f.Enum() != nil:
		text += " " + string(f.Enum().FullName())
	case f.Message() != nil:
		text += " " + string(f.Message().FullName())
	}
	if f.IsList() {
		return "a list of " + text
	}
	return text
}

// protoKind is the kind of column whose values a single field holds; vec.Null if it holds none. also is one that it takes as well.
func protoKind(f protoreflect.FieldDescriptor) (own vec.Kind, also []vec.Kind) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return vec.Bool, nil
	case protoreflect.EnumKind:
		return vec.String, nil
	case protoreflect.StringKind:
		return vec.String, []vec.Kind{vec.Decimal, vec.Time}
	case protoreflect.BytesKind:
		return vec.Bytes, nil
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return vec.Float, []vec.Kind{vec.Int}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return vec.Int, []vec.Kind{vec.Decimal} // what is beyond an int is one
	case protoreflect.GroupKind:
		return vec.Null, nil
	case protoreflect.MessageKind:
		switch wellKnown(f.Message()) {
		case knownTime:
			return vec.Time, nil
		case knownDuration:
			return vec.Int, nil
		case knownWrapper:
			return protoKind(f.Message().Fields().ByNumber(1))
		default:
			return vec.Null, nil
		}
	default:
		return vec.Int, nil
	}
}

// protoTakes tells whether a column's values may go into a field; what they are row by row may still not.
func protoTakes(f protoreflect.FieldDescriptor, t vec.Type) bool {
	if f.IsMap() {
		return false
	}
	own, also := protoKind(f)
	takes := func(k vec.Kind) bool {
		return k == vec.Null || k == vec.Any || k == own || slices.Contains(also, k)
	}
	switch {
	case own == vec.Null:
		return false
	case f.IsList() && t.Kind == vec.List:
		return takes(t.Elem)
	case f.IsList():
		return t.Kind == vec.Null || t.Kind == vec.Any
	default:
		return takes(t.Kind)
	}
}

// Write appends row i as a record.
func (w *ProtoWriter) Write(dst []byte, i int) ([]byte, error) { return w.message(dst, w.root, i) }

func (w *ProtoWriter) message(dst []byte, m *protoOutMessage, i int) (_ []byte, err error) {
	for _, members := range m.oneofs {
		var set *protoOut
		for _, k := range members {
			f := &m.fields[k]
			if f.from.null(w.cols, i) {
				continue
			}
			if set != nil {
				return dst, fmt.Errorf("fields %s and %s both have a value; one of %s is all that a record holds", set.path, f.path, f.shape.desc.ContainingOneof().Name())
			}
			set = f
		}
	}
	for k := range m.fields {
		if dst, err = w.field(dst, &m.fields[k], i); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (w *ProtoWriter) field(dst []byte, o *protoOut, i int) (_ []byte, err error) {
	d := o.shape.desc
	switch {
	case o.keys != nil:
		for k := range o.keys {
			e := &o.keys[k]
			if e.from.null(w.cols, i) {
				continue
			}
			b, at := beginProto(dst, d.Number())
			if dst, err = w.field(append(b, e.key...), &e.protoOut, i); err != nil {
				return dst, err
			}
			dst = endProto(dst, at)
		}
		return dst, nil
	case o.inner != nil:
		if o.from.null(w.cols, i) && d.Cardinality() != protoreflect.Required {
			return dst, nil
		}
		b, at := beginProto(dst, d.Number())
		if dst, err = w.message(b, o.inner, i); err != nil {
			return dst, err
		}
		return endProto(dst, at), nil
	}
	if dst, err = w.leaf(dst, o.shape, w.cols[o.from.at], i); err != nil {
		return dst, fmt.Errorf("field %s: %w", o.path, err)
	}
	return dst, nil
}

// leaf appends a field that a column of the rows has the values of.
func (w *ProtoWriter) leaf(dst []byte, s *protoShape, c *vec.Column, i int) (_ []byte, err error) {
	if c.IsNull(i) {
		return dst, nullable(s.desc)
	}
	v := c.Value(i)
	if !s.list {
		if !s.always && s.isZero(v) {
			return dst, nil
		}
		return appendProto(append(dst, s.tag...), s, v)
	}
	if v.Kind() != value.List {
		return dst, due(article(v), protoText(s.desc))
	}
	vs := v.List()
	if len(vs) == 0 {
		return dst, nil
	}
	at := -1
	if s.packed {
		dst, at = beginProto(dst, s.desc.Number())
	}
	for k, e := range vs {
		if at < 0 {
			dst = append(dst, s.tag...)
		}
		if dst, err = appendProto(dst, s, e); err != nil {
			return dst, fmt.Errorf("element %d: %w", k, err)
		}
	}
	if at >= 0 {
		dst = endProto(dst, at)
	}
	return dst, nil
}

// beginProto begins a field whose length comes before it. Its content goes behind at, with room for a length of one byte.
func beginProto(dst []byte, num protowire.Number) (_ []byte, at int) {
	dst = append(protowire.AppendTag(dst, num, protowire.BytesType), 0)
	return dst, len(dst)
}

// endProto sets the length of the content behind at.
func endProto(dst []byte, at int) []byte {
	n := len(dst) - at
	if more := protowire.SizeVarint(uint64(n)) - 1; more > 0 {
		dst = append(dst, make([]byte, more)...)
		copy(dst[at+more:], dst[at:at+n])
	}
	protowire.AppendVarint(dst[:at-1], uint64(n))
	return dst
}

// isZero tells whether a value is what a field is read as that isn't there.
func (s *protoShape) isZero(v value.Value) bool {
	switch v.Kind() {
	case value.Bool:
		return !v.Bool()
	case value.Int:
		return v.Int() == 0
	case value.Float:
		return math.Float64bits(v.Float()) == 0 // -0 is a value
	case value.String:
		return v.Str() == s.zero
	case value.Bytes:
		return len(v.Bytes()) == 0
	default:
		return false
	}
}

// appendProto appends a value of a field, without its tag.
func appendProto(dst []byte, s *protoShape, v value.Value) ([]byte, error) {
	if v.IsNull() || !s.takes(vec.KindOf(v)) {
		return dst, due(article(v), single(s.desc))
	}
	switch s.kind {
	case protoreflect.BoolKind:
		return protowire.AppendVarint(dst, protowire.EncodeBool(v.Bool())), nil
	case protoreflect.EnumKind:
		n, ok := s.numbers[v.Str()]
		if !ok {
			return dst, fmt.Errorf("%s has no value %.40q", single(s.desc), v.Str())
		}
		return protowire.AppendVarint(dst, uint64(n)), nil
	case protoreflect.FloatKind:
		f, err := float32Of(v)
		return protowire.AppendFixed32(dst, math.Float32bits(f)), err
	case protoreflect.DoubleKind:
		f, err := floatOf(v)
		return protowire.AppendFixed64(dst, math.Float64bits(f)), err
	case protoreflect.StringKind:
		return appendProtoText(dst, v)
	case protoreflect.BytesKind:
		return protowire.AppendBytes(dst, v.Bytes()), nil
	case protoreflect.MessageKind:
		return appendKnown(dst, s, v)
	default:
		return appendProtoInt(dst, s.kind, v)
	}
}

// single is the type of one value of a field.
func single(d protoreflect.FieldDescriptor) string {
	switch {
	case d.Enum() != nil:
		return "enum " + string(d.Enum().FullName())
	case d.Message() != nil:
		return string(d.Message().FullName())
	}
	return d.Kind().String()
}

func appendProtoText(dst []byte, v value.Value) ([]byte, error) {
	if v.Kind() == value.String {
		if !utf8.ValidString(v.Str()) {
			return dst, fmt.Errorf("%.40q is not UTF-8", v.Str())
		}
		return protowire.AppendString(dst, v.Str()), nil
	}
	var buf [64]byte
	return protowire.AppendBytes(dst, value.AppendText(buf[:0], v)), nil
}

func appendProtoInt(dst []byte, kind protoreflect.Kind, v value.Value) ([]byte, error) {
	beyond := func() ([]byte, error) {
		return dst, fmt.Errorf("%s is beyond the range of %s", value.AppendText(nil, v), kind)
	}
	if kind == protoreflect.Uint64Kind || kind == protoreflect.Fixed64Kind {
		u, ok := unsigned(v)
		if !ok {
			return beyond()
		}
		if kind == protoreflect.Uint64Kind {
			return protowire.AppendVarint(dst, u), nil
		}
		return protowire.AppendFixed64(dst, u), nil
	}
	n := v.Int()
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		if n != int64(int32(n)) {
			return beyond()
		}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if n != int64(uint32(n)) {
			return beyond()
		}
	default:
	}
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind:
		return protowire.AppendVarint(dst, uint64(n)), nil
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.AppendVarint(dst, protowire.EncodeZigZag(n)), nil
	case protoreflect.Sfixed32Kind, protoreflect.Fixed32Kind:
		return protowire.AppendFixed32(dst, uint32(n)), nil
	case protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(dst, uint64(n)), nil
	default:
		panic("columnar: an int of Protobuf's " + kind.String())
	}
}

// unsigned is an integer from 0 to 2^64-1.
func unsigned(v value.Value) (uint64, bool) {
	if v.Kind() == value.Int {
		return uint64(v.Int()), v.Int() >= 0
	}
	n, ok := v.Decimal().BigInt()
	if !ok || !n.IsUint64() {
		return 0, false
	}
	return n.Uint64(), true
}

// appendKnown appends a message that stands for one value, with its length.
func appendKnown(dst []byte, s *protoShape, v value.Value) (_ []byte, err error) {
	dst = append(dst, 0)
	at := len(dst)
	if w := s.wrapped; w != nil {
		if !w.isZero(v) {
			if dst, err = appendProto(append(dst, w.tag...), w, v); err != nil {
				return dst, err
			}
		}
		return endProto(dst, at), nil
	}
	const second = 1_000_000_000
	var seconds, nanos int64
	if s.known == knownTime {
		seconds, nanos = v.Nanos()/second, v.Nanos()%second
		if nanos < 0 { // the nanoseconds of a time count forward
			seconds, nanos = seconds-1, nanos+second
		}
	} else {
		seconds, nanos = v.Int()/second, v.Int()%second
	}
	for i, n := range []int64{seconds, nanos} {
		if n != 0 {
			dst = protowire.AppendVarint(protowire.AppendTag(dst, protowire.Number(i+1), protowire.VarintType), uint64(n))
		}
	}
	return endProto(dst, at), nil
}
