package columnar

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// ProtoReader reads records of one message into columns. It is for one goroutine.
type ProtoReader struct {
	root  *protoPlan
	text  Text
	unfit []*protoField // of the record at hand: those whose absence is no value of their column
}

// NewProtoReader returns a reader of records that were written by a message.
func NewProtoReader(m *ProtoMessage, targets []Target, text Text) *ProtoReader {
	return &ProtoReader{root: planProto(m.desc, tree(targets)), text: text}
}

// protoPlan says what is done with the fields of one message.
type protoPlan struct {
	fields  []*protoField
	missing []*node // what the message doesn't have
	// others are, by the number of each member of a oneof, those that are wanted and end with it.
	others map[protowire.Number][]*protoField
}

// protoField is a field that is wanted.
type protoField struct {
	num    protowire.Number
	name   string
	desc   protoreflect.FieldDescriptor
	want   *node
	inner  *protoPlan    // of a message that something is read within
	keys   []*protoField // of a map: its entries that are wanted
	values []value.Value // of a list: what the record has shown so far
	seen   bool          // of a wanted entry
	unfit  error         // what is wrong if it doesn't occur: "" is no decimal
}

func planProto(m protoreflect.MessageDescriptor, want *node) *protoPlan {
	p := &protoPlan{}
	for _, w := range want.members {
		d := m.Fields().ByName(protoreflect.Name(w.name))
		if d == nil {
			p.missing = append(p.missing, w)
			continue
		}
		f := planProtoField(d, w)
		p.fields = append(p.fields, f)
		if o := d.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if p.others == nil {
				p.others = map[protowire.Number][]*protoField{}
			}
			for i := range o.Fields().Len() {
				if num := o.Fields().Get(i).Number(); num != f.num {
					p.others[num] = append(p.others[num], f)
				}
			}
		}
	}
	return p
}

func planProtoField(d protoreflect.FieldDescriptor, w *node) *protoField {
	f := &protoField{num: d.Number(), name: w.name, desc: d, want: w}
	switch {
	case len(w.members) == 0:
	case d.IsMap():
		for _, m := range w.members {
			f.keys = append(f.keys, planProtoField(d.MapValue(), m))
		}
	case d.Message() != nil && !d.IsList() && wellKnown(d.Message()) == notKnown:
		f.inner = planProto(d.Message(), w)
	}
	return f
}

// Read fills row i from a record.
func (r *ProtoReader) Read(b []byte, i int) error {
	r.unfit = r.unfit[:0]
	for _, f := range r.root.fields {
		r.clear(f, i)
	}
	for _, m := range r.root.missing {
		m.setNull(i)
	}
	if err := r.message(r.root, b, i, 0); err != nil {
		return err
	}
	for _, f := range r.unfit {
		if f.unfit != nil {
			return f.unfit
		}
	}
	return nil
}

// clear sets what a field is that doesn't occur.
func (r *ProtoReader) clear(f *protoField, i int) {
	f.values, f.seen, f.unfit = nil, false, nil
	w := f.want
	if len(w.members) > 0 {
		w.setNull(i)
		for _, k := range f.keys {
			k.values, k.seen = nil, false
		}
		return
	}
	if f.unfit = r.absent(f, slot{w.col, i, r.text}); f.unfit != nil {
		r.unfit = append(r.unfit, f)
	}
}

func (r *ProtoReader) absent(f *protoField, to slot) error {
	d := f.desc
	var err error
	switch {
	case d.IsMap() || d.Message() != nil && !d.IsList():
		to.null()
	case d.IsList():
		err = to.list([]value.Value{})
	case d.HasPresence() && !d.HasDefault():
		to.null()
	default:
		err = setProtoValue(d, d.Default(), to)
	}
	if err != nil {
		return fmt.Errorf("field %s: %w", f.name, err)
	}
	return nil
}

// setProtoValue sets a value that a schema holds.
func setProtoValue(d protoreflect.FieldDescriptor, v protoreflect.Value, to slot) error {
	switch x := v.Interface().(type) {
	case bool:
		return to.bool(x)
	case int32:
		return to.int(int64(x))
	case int64:
		return to.int(x)
	case uint32:
		return to.int(int64(x))
	case uint64:
		return to.uint(x)
	case float32:
		return to.float(float64(x))
	case float64:
		return to.float(x)
	case string:
		return to.str([]byte(x))
	case []byte:
		return to.bytes(x)
	case protoreflect.EnumNumber:
		return setProtoEnum(d, int64(x), to)
	default:
		panic(fmt.Sprintf("columnar: a default of type %T", x))
	}
}

// message reads the fields of one occurrence of a message. A message that occurs again goes on with the one before, as Protobuf asks.
func (r *ProtoReader) message(p *protoPlan, b []byte, i, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("a field's number and type: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var f *protoField
		for _, c := range p.fields {
			if c.num == num {
				f = c
				break
			}
		}
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return fmt.Errorf("field %s: %w", protoName(f, num), protowire.ParseError(n))
		}
		if p.others != nil {
			for _, o := range p.others[num] {
				r.clear(o, i)
			}
		}
		if f != nil {
			if err := r.field(f, typ, b[:n], i, depth); err != nil {
				return fmt.Errorf("field %s: %w", f.name, err)
			}
		}
		b = b[n:]
	}
	return nil
}

func protoName(f *protoField, num protowire.Number) string {
	if f != nil {
		return f.name
	}
	return fmt.Sprintf("of number %d", num)
}

// field reads one occurrence of a field. b holds exactly its value.
func (r *ProtoReader) field(f *protoField, typ protowire.Type, b []byte, i, depth int) error {
	d, w := f.desc, f.want
	f.unfit = nil
	switch {
	case d.IsMap():
		if w.col != nil {
			return errObject
		}
		return r.entry(f, typ, b, i, depth)
	case f.inner != nil:
		if w.col != nil {
			return errObject
		}
		if typ != protowire.BytesType {
			return errWire(typ)
		}
		b, _ = protowire.ConsumeBytes(b)
		if !f.seen {
			// From here on a field that doesn't occur is what its type says.
			f.seen = true
			for _, c := range f.inner.fields {
				r.clear(c, i)
			}
		}
		return r.message(f.inner, b, i, depth+1)
	case len(w.members) > 0:
		return fmt.Errorf("%s has no fields", d.Kind())
	case d.IsList():
		return r.elements(f, typ, b, i)
	}
	return r.value(d, typ, b, slot{w.col, i, r.text})
}

// elements adds to a list what one occurrence of its field holds: an element, or numbers packed.
func (r *ProtoReader) elements(f *protoField, typ protowire.Type, b []byte, i int) error {
	if f.values == nil {
		f.values = []value.Value{}
	}
	var cell one
	add := func(typ protowire.Type, b []byte) error {
		if err := r.value(f.desc, typ, b, cell.slot(r.text)); err != nil {
			return fmt.Errorf("element %d: %w", len(f.values), err)
		}
		f.values = append(f.values, cell.col.Value(0))
		return nil
	}
	if want := wireType(f.desc.Kind()); typ == protowire.BytesType && want != protowire.BytesType {
		b, _ = protowire.ConsumeBytes(b)
		for len(b) > 0 {
			n := protowire.ConsumeFieldValue(f.num, want, b)
			if n < 0 {
				return fmt.Errorf("element %d: %w", len(f.values), protowire.ParseError(n))
			}
			if err := add(want, b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
	} else if err := add(typ, b); err != nil {
		return err
	}
	return slot{f.want.col, i, r.text}.list(f.values)
}

// entry reads an entry of a map, if it is wanted. Of a key that occurs twice the later entry counts, as Protobuf asks.
func (r *ProtoReader) entry(f *protoField, typ protowire.Type, b []byte, i, depth int) error {
	if typ != protowire.BytesType {
		return errWire(typ)
	}
	b, _ = protowire.ConsumeBytes(b)
	var key, val []byte
	var valType protowire.Type
	var cell one
	to := cell.slot(r.text)
	if err := setProtoValue(f.desc.MapKey(), f.desc.MapKey().Default(), to); err != nil {
		return err
	}
	hasVal := false
	err := eachProto(b, func(num protowire.Number, typ protowire.Type, b []byte) error {
		switch num {
		case 1:
			if err := r.value(f.desc.MapKey(), typ, b, to); err != nil {
				return fmt.Errorf("key: %w", err)
			}
		case 2:
			val, valType, hasVal = b, typ, true
		default:
		}
		return nil
	})
	if err != nil {
		return err
	}
	key = value.AppendText(key, cell.col.Value(0))
	for _, k := range f.keys {
		if k.name != string(key) {
			continue
		}
		r.clear(k, i)
		if !hasVal {
			return nil
		}
		if err := r.field(k, valType, val, i, depth+1); err != nil {
			return fmt.Errorf("key %s: %w", k.name, err)
		}
	}
	return nil
}

func errWire(typ protowire.Type) error {
	return fmt.Errorf("wire type %d doesn't go with the field's type: the record was written by another schema", typ)
}

func wireType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return protowire.Fixed32Type
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	default:
		return protowire.VarintType
	}
}

// value reads a value that is one.
func (r *ProtoReader) value(d protoreflect.FieldDescriptor, typ protowire.Type, b []byte, to slot) error {
	kind := d.Kind()
	if typ != wireType(kind) {
		return errWire(typ)
	}
	var u uint64
	switch typ {
	case protowire.VarintType:
		u, _ = protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		n, _ := protowire.ConsumeFixed32(b)
		u = uint64(n)
	case protowire.Fixed64Type:
		u, _ = protowire.ConsumeFixed64(b)
	case protowire.BytesType:
		b, _ = protowire.ConsumeBytes(b)
	default:
	}
	switch kind {
	case protoreflect.BoolKind:
		return to.bool(u != 0)
	case protoreflect.EnumKind:
		return setProtoEnum(d, int64(int32(u)), to)
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return to.int(int64(int32(u)))
	case protoreflect.Sint32Kind:
		return to.int(int64(int32(protowire.DecodeZigZag(u & math.MaxUint32))))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return to.int(int64(uint32(u)))
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return to.int(int64(u))
	case protoreflect.Sint64Kind:
		return to.int(protowire.DecodeZigZag(u))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return to.uint(u)
	case protoreflect.FloatKind:
		return to.float(float64(math.Float32frombits(uint32(u))))
	case protoreflect.DoubleKind:
		return to.float(math.Float64frombits(u))
	case protoreflect.StringKind:
		return to.str(b)
	case protoreflect.BytesKind:
		return to.bytes(b)
	case protoreflect.MessageKind:
		return r.known(d, b, to)
	default:
		return errObject
	}
}

// setProtoEnum sets an enum's value: its name.
func setProtoEnum(d protoreflect.FieldDescriptor, n int64, to slot) error {
	v := d.Enum().Values().ByNumber(protoreflect.EnumNumber(n))
	if v == nil {
		return fmt.Errorf("enum %s has no value of number %d", d.Enum().FullName(), n)
	}
	return to.str(vec.Raw(string(v.Name())))
}

// known reads a message that stands for one value.
func (r *ProtoReader) known(d protoreflect.FieldDescriptor, b []byte, to slot) error {
	kind := wellKnown(d.Message())
	switch kind {
	case notKnown:
		return errObject
	case knownWrapper:
		of := d.Message().Fields().ByNumber(1)
		if err := setProtoValue(of, of.Default(), to); err != nil {
			return err
		}
		return eachProto(b, func(num protowire.Number, typ protowire.Type, b []byte) error {
			if num != 1 {
				return nil
			}
			return r.value(of, typ, b, to)
		})
	default:
	}
	var seconds, nanos int64
	err := eachProto(b, func(num protowire.Number, typ protowire.Type, b []byte) error {
		if num != 1 && num != 2 {
			return nil
		}
		if typ != protowire.VarintType {
			return errWire(typ)
		}
		u, _ := protowire.ConsumeVarint(b)
		if num == 1 {
			seconds = int64(u)
		} else {
			nanos = int64(int32(u))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if kind == knownDuration {
		const maxSeconds = math.MaxInt64/1_000_000_000 - 1
		if seconds < -maxSeconds || seconds > maxSeconds || nanos <= -1e9 || nanos >= 1e9 || seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0 {
			return fmt.Errorf("a duration of %d s and %d ns is out of range", seconds, nanos)
		}
		return to.int(seconds*1e9 + nanos)
	}
	if seconds < minTime.Unix() || seconds >= maxTime.Unix() || nanos < 0 || nanos >= 1e9 {
		return fmt.Errorf("a time of %d s and %d ns since 1970 is out of range: it must lie in the years 1678 to 2261", seconds, nanos)
	}
	return to.time(seconds*1e9+nanos, 1)
}

// eachProto calls f for the fields of a message.
func eachProto(b []byte, f func(num protowire.Number, typ protowire.Type, b []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(num, typ, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
