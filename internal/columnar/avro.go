package columnar

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// AvroReader reads records of one schema into columns. It is for one goroutine.
type AvroReader struct {
	root    *avroPlan
	targets *node
	mem     *vec.Arena
	text    Text
	in      avroInput
}

// NewAvroReader returns a reader of records that were written by a schema. Where reader is not nil, the record is read as one of
// that schema: a field is found under its aliases too, and one that the writer didn't have is its default. What can't be read so is
// an error.
func NewAvroReader(writer, reader *AvroSchema, targets []Target, mem *vec.Arena, text Text) (*AvroReader, error) {
	r := &AvroReader{targets: tree(targets), mem: mem, text: text}
	if reader == nil {
		r.root = planAvro(writer.root, nil, r.targets)
		return r, nil
	}
	if err := reader.Compatible(writer); err != nil {
		return nil, err
	}
	r.root = planAvro(writer.root, reader.root, r.targets)
	return r, nil
}

// avroPlan says what is done with the fields of one record that was written, or with the entries of a map.
type avroPlan struct {
	steps   []avroStep // as the fields of the record; of a map, the entries that are wanted
	missing []avroDefault
}

type avroStep struct {
	name   string
	typ    *avroType
	reader *avroType // nil: as it was written
	want   *node     // nil: the field is passed over
	// Plans of the records and maps that something is read within, by the union's options; one entry for a type that is no union.
	plans []*avroPlan
}

type avroDefault struct {
	want *node
	val  any // nil: null
	typ  *avroType
}

func planAvro(writer, reader *avroType, want *node) *avroPlan {
	p := &avroPlan{steps: make([]avroStep, len(writer.fields))}
	for i := range writer.fields {
		p.steps[i] = avroStep{name: writer.fields[i].name, typ: writer.fields[i].typ}
	}
	for _, m := range want.members {
		at, as := -1, (*avroType)(nil)
		def := avroDefault{want: m}
		names := []string{m.name}
		if reader != nil {
			i := slices.IndexFunc(reader.fields, func(f avroField) bool { return f.name == m.name })
			if i < 0 {
				p.missing = append(p.missing, def)
				continue
			}
			f := &reader.fields[i]
			as, def.val, def.typ, names = f.typ, f.def, f.typ, append(names, f.aliases...)
		}
		for _, name := range names {
			if at = slices.IndexFunc(writer.fields, func(f avroField) bool { return f.name == name }); at >= 0 {
				break
			}
		}
		if at < 0 {
			p.missing = append(p.missing, def)
			continue
		}
		p.steps[at].wants(m, as)
	}
	return p
}

// wants has the step read what is wanted of its field.
func (s *avroStep) wants(m *node, reader *avroType) {
	s.want, s.reader = m, reader
	if len(m.members) == 0 {
		return
	}
	options := s.typ.options
	if s.typ.kind != avroUnion {
		options = []*avroType{s.typ}
	}
	for _, o := range options {
		var inner *avroPlan
		switch o.kind {
		case avroRecord:
			inner = planAvro(o, readerRecord(reader, o), m)
		case avroMap:
			inner = &avroPlan{steps: make([]avroStep, len(m.members))}
			for i, e := range m.members {
				inner.steps[i] = avroStep{name: e.name, typ: o.of}
				inner.steps[i].wants(e, nil)
			}
		default:
		}
		s.plans = append(s.plans, inner)
	}
}

// readerRecord returns the record of a reader's type that one of the writer's is read as.
func readerRecord(reader, writer *avroType) *avroType {
	if reader == nil || reader.kind == avroRecord {
		return reader
	}
	var records []*avroType
	for _, o := range reader.options {
		if o.kind == avroRecord {
			if o.name == writer.name {
				return o
			}
			records = append(records, o)
		}
	}
	if len(records) == 0 {
		return nil
	}
	return records[0]
}

// Read fills row i from a record.
func (r *AvroReader) Read(b []byte, i int) error {
	r.in = avroInput{b: b, empties: 1 << 16}
	if err := r.record(r.root, i, 0); err != nil {
		return err
	}
	if n := len(r.in.b); n > 0 {
		return fmt.Errorf("%d bytes follow the record: it was written by another schema", n)
	}
	return nil
}

func (r *AvroReader) record(p *avroPlan, i, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	for k := range p.steps {
		s := &p.steps[k]
		var err error
		if s.want == nil {
			err = r.in.skip(s.typ, depth+1)
		} else {
			err = r.field(s, i, depth+1)
		}
		if err != nil {
			return fmt.Errorf("field %s: %w", s.name, err)
		}
	}
	for k := range p.missing {
		if err := r.setDefault(&p.missing[k], i); err != nil {
			return err
		}
	}
	return nil
}

// field reads a field that is wanted.
func (r *AvroReader) field(s *avroStep, i, depth int) error {
	typ, option := s.typ, 0
	if typ.kind == avroUnion {
		var err error
		if option, err = r.in.option(typ); err != nil {
			return err
		}
		typ = typ.options[option]
	}
	w := s.want
	if typ.kind == avroNull {
		w.setNull(i)
		return nil
	}
	if len(w.members) == 0 {
		return r.value(typ, s.reader, slot{w.col, i, r.text}, depth)
	}
	if w.col != nil {
		return errObject
	}
	switch typ.kind {
	case avroRecord:
		return r.record(s.plans[option], i, depth)
	case avroMap:
		return r.entries(s.plans[option], typ, w, i, depth)
	default:
		return fmt.Errorf("%s where a record is due", typ)
	}
}

// entries reads the entries of a map that are wanted.
func (r *AvroReader) entries(p *avroPlan, typ *avroType, w *node, i, depth int) error {
	w.setNull(i)
	var seen []*avroStep
	return r.in.blocks(typ, depth, func() error {
		key, err := r.in.bytes()
		if err != nil {
			return err
		}
		k := slices.IndexFunc(p.steps, func(s avroStep) bool { return s.name == string(key) })
		if k < 0 {
			return r.in.skip(typ.of, depth+1)
		}
		s := &p.steps[k]
		if slices.Contains(seen, s) {
			return fmt.Errorf("key %s occurs twice", s.name)
		}
		seen = append(seen, s)
		if err := r.field(s, i, depth+1); err != nil {
			return fmt.Errorf("key %s: %w", s.name, err)
		}
		return nil
	})
}

// value reads a value of a type that is no union. reader is what it is read as; nil: what it is.
func (r *AvroReader) value(t, reader *avroType, to slot, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	in := &r.in
	switch t.kind {
	case avroNull:
		to.null()
		return nil
	case avroBool:
		b, err := in.bool()
		if err != nil {
			return err
		}
		return to.bool(b)
	case avroInt, avroLong:
		n, err := in.long()
		if err != nil {
			return err
		}
		if t.kind == avroInt && (n < math.MinInt32 || n > math.MaxInt32) {
			return fmt.Errorf("%d is beyond the range of Avro's int", n)
		}
		return setAvroLong(t, reader, n, to)
	case avroFloat:
		b, err := in.take(4)
		if err != nil {
			return err
		}
		return to.float(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	case avroDouble:
		b, err := in.take(8)
		if err != nil {
			return err
		}
		return to.float(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case avroBytes, avroString:
		b, err := in.bytes()
		if err != nil {
			return err
		}
		return setAvroBytes(t, reader, b, to)
	case avroFixed:
		b, err := in.take(t.size)
		if err != nil {
			return err
		}
		if t.logical == logicalUUID {
			return to.str(uuidText(r.mem.Alloc(36), b))
		}
		return setAvroBytes(t, reader, b, to)
	case avroEnum:
		n, err := in.long()
		if err != nil {
			return err
		}
		if n < 0 || n >= int64(len(t.symbols)) {
			return fmt.Errorf("symbol %d of %s, which has %d", n, t, len(t.symbols))
		}
		symbol := t.symbols[n]
		if e := readerEnum(reader); e != nil && !slices.Contains(e.symbols, symbol) {
			if !e.hasDef {
				return fmt.Errorf("%s has no symbol %s", e, symbol)
			}
			symbol = e.def
		}
		return to.str(vec.Raw(symbol))
	case avroArray:
		return r.array(t, reader, to, depth)
	case avroMap, avroRecord:
		return errObject
	default:
		panic("columnar: a value of " + t.String())
	}
}

// as returns the logical type that a value written as t has for a reader; reader nil: for one that has t too.
func (t *avroType) as(reader *avroType) (avroLogical, error) {
	if reader == nil {
		return t.logical, nil
	}
	reader = reader.optional()
	switch {
	case reader.logical == plainType || reader.logical == t.logical:
		return t.logical, nil
	case t.logical == plainType:
		return reader.logical, nil
	}
	return 0, fmt.Errorf("it was written with another logical type than it is read with, and stands for something else")
}

func setAvroLong(t, reader *avroType, n int64, to slot) error {
	logical, err := t.as(reader)
	if err != nil {
		return err
	}
	switch logical {
	case logicalDate:
		if n < math.MinInt32 || n > math.MaxInt32 {
			return fmt.Errorf("a date of %d days", n)
		}
		return to.time(n*86400, time.Second)
	case logicalMillis:
		return to.time(n, time.Millisecond)
	case logicalMicros:
		return to.time(n, time.Microsecond)
	case logicalNanos:
		return to.time(n, time.Nanosecond)
	default:
	}
	if reader != nil {
		switch reader.optional().kind {
		case avroFloat, avroDouble:
			f := float64(n)
			if f >= 1<<63 || int64(f) != n {
				return fmt.Errorf("%d has more digits than a float holds", n)
			}
			return to.float(f)
		default:
		}
	}
	return to.int(n)
}

func readerEnum(reader *avroType) *avroType {
	if reader != nil {
		reader = reader.optional()
	}
	if reader == nil || reader.kind != avroEnum {
		return nil
	}
	return reader
}

func setAvroBytes(t, reader *avroType, b []byte, to slot) error {
	logical, err := t.as(reader)
	if err != nil {
		return err
	}
	kind, scale := t.kind, t.scale
	if reader != nil {
		switch reader = reader.optional(); reader.kind {
		case avroString, avroBytes:
			kind = reader.kind
		default:
		}
		if logical != t.logical {
			scale = reader.scale
		}
	}
	switch {
	case logical == logicalDecimal:
		d, err := unscaled(b, scale)
		if err != nil {
			return err
		}
		return to.decimal(d)
	case kind == avroString:
		return to.str(b)
	default:
		return to.bytes(b)
	}
}

func (r *AvroReader) array(t, reader *avroType, to slot, depth int) error {
	if reader != nil {
		if reader = reader.optional(); reader.kind == avroArray {
			reader = reader.of
		} else {
			reader = nil
		}
	}
	vs := []value.Value{}
	var cell one
	err := r.in.blocks(t, depth, func() error {
		typ := t.of
		if typ.kind == avroUnion {
			option, err := r.in.option(typ)
			if err != nil {
				return err
			}
			typ = typ.options[option]
		}
		if err := r.value(typ, reader, cell.slot(r.text), depth+1); err != nil {
			return fmt.Errorf("element %d: %w", len(vs), err)
		}
		vs = append(vs, cell.col.Value(0))
		return nil
	})
	if err != nil {
		return err
	}
	return to.list(vs)
}

// setDefault sets what a field that was not written is read as.
func (r *AvroReader) setDefault(d *avroDefault, i int) error {
	if err := r.defaultOf(d.want, d.typ, d.val, i); err != nil {
		return fmt.Errorf("the default of field %s: %w", d.want.name, err)
	}
	return nil
}

func (r *AvroReader) defaultOf(w *node, t *avroType, val any, i int) error {
	if val == nil || t == nil {
		w.setNull(i)
		return nil
	}
	if len(w.members) > 0 {
		if w.col != nil {
			return errObject
		}
		m, ok := val.(map[string]any)
		if !ok {
			return fmt.Errorf("%T where a record is due", val)
		}
		t = t.optional()
		for _, inner := range w.members {
			of := t.of
			if k := slices.IndexFunc(t.fields, func(f avroField) bool { return f.name == inner.name }); k >= 0 {
				of = t.fields[k].typ
				if _, ok := m[inner.name]; !ok {
					m = map[string]any{inner.name: t.fields[k].def}
				}
			}
			if err := r.defaultOf(inner, of, m[inner.name], i); err != nil {
				return err
			}
		}
		return nil
	}
	return setAvroDefault(t, val, slot{w.col, i, r.text})
}

func setAvroDefault(t *avroType, val any, to slot) error {
	if t.kind == avroUnion {
		k := slices.IndexFunc(t.options, func(o *avroType) bool { return o.kind != avroNull })
		if k < 0 {
			return errObject
		}
		t = t.options[k]
	}
	switch v := val.(type) {
	case bool:
		return to.bool(v)
	case int32:
		return setAvroLong(t, nil, int64(v), to)
	case int64:
		return setAvroLong(t, nil, v, to)
	case float32:
		return to.float(float64(v))
	case float64:
		return to.float(v)
	case string:
		return to.str([]byte(v))
	case []byte:
		if t.logical == logicalUUID {
			return to.str(uuidText(make([]byte, 36), v))
		}
		return setAvroBytes(t, nil, v, to)
	case []any:
		vs := []value.Value{}
		for _, e := range v {
			var cell one
			s := cell.slot(to.text)
			if e == nil {
				s.null()
			} else if err := setAvroDefault(t.of, e, s); err != nil {
				return err
			}
			vs = append(vs, cell.col.Value(0))
		}
		return to.list(vs)
	default:
		return errObject
	}
}

// unscaled reads a decimal: an integer in two's complement, the most significant byte first, in units of 10^-scale.
func unscaled(b []byte, scale int) (decimal.Decimal, error) {
	if len(b) <= 8 {
		var n int64
		if len(b) > 0 && b[0]&0x80 != 0 {
			n = -1
		}
		for _, c := range b {
			n = n<<8 | int64(c)
		}
		return decimal.New(n, -int32(scale))
	}
	if len(b) > decimal.MaxDigits/2 {
		return decimal.Decimal{}, fmt.Errorf("a decimal of %d bytes is longer than %d digits", len(b), decimal.MaxDigits)
	}
	n := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return decimal.FromBig(n, -int32(scale))
}

func uuidText(dst, b []byte) []byte {
	if len(b) != 16 {
		return dst[:0]
	}
	at := 0
	for i, n := range []int{4, 2, 2, 2, 6} {
		if i > 0 {
			dst[at] = '-'
			at++
		}
		at += hex.Encode(dst[at:], b[:n])
		b = b[n:]
	}
	return dst
}

// avroInput is the rest of a record.
type avroInput struct {
	b       []byte
	empties int // how many elements without any bytes may yet come
}

func (in *avroInput) long() (int64, error) {
	n, w := binary.Varint(in.b)
	if w <= 0 {
		if w < 0 {
			return 0, errors.New("a number is longer than 64 bits")
		}
		return 0, errCut
	}
	in.b = in.b[w:]
	return n, nil
}

func (in *avroInput) take(n int) ([]byte, error) {
	if n > len(in.b) {
		return nil, errCut
	}
	b := in.b[:n:n]
	in.b = in.b[n:]
	return b, nil
}

func (in *avroInput) bytes() ([]byte, error) {
	n, err := in.long()
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fmt.Errorf("a length of %d", n)
	}
	if n > int64(len(in.b)) {
		return nil, errCut
	}
	return in.take(int(n))
}

func (in *avroInput) bool() (bool, error) {
	b, err := in.take(1)
	if err != nil {
		return false, err
	}
	if b[0] > 1 {
		return false, fmt.Errorf("byte %d is neither true nor false", b[0])
	}
	return b[0] == 1, nil
}

func (in *avroInput) option(t *avroType) (int, error) {
	n, err := in.long()
	if err != nil {
		return 0, err
	}
	if n < 0 || n >= int64(len(t.options)) {
		return 0, fmt.Errorf("option %d of a union of %d", n, len(t.options))
	}
	return int(n), nil
}

// block reads the beginning of a block of a list or a map: how many elements it has and, where it is told, in how many bytes.
func (in *avroInput) block(t *avroType) (n, size int64, err error) {
	if n, err = in.long(); err != nil || n == 0 {
		return 0, -1, err
	}
	size = -1
	if n < 0 {
		if n == math.MinInt64 {
			return 0, 0, fmt.Errorf("a block of %d elements", n)
		}
		n = -n
		if size, err = in.long(); err != nil {
			return 0, 0, err
		}
		if size < 0 || size > int64(len(in.b)) {
			return 0, 0, errCut
		}
	}
	if t.kind == avroArray && t.of.empty {
		if n > int64(in.empties) {
			return 0, 0, fmt.Errorf("%d elements without content are too many", n)
		}
		in.empties -= int(n)
	} else if n > int64(len(in.b)) {
		return 0, 0, errCut
	}
	return n, size, nil
}

// blocks calls f for each element of a list or a map.
func (in *avroInput) blocks(t *avroType, depth int, f func() error) error {
	if depth > maxDepth {
		return errDeep
	}
	for {
		n, _, err := in.block(t)
		if err != nil || n == 0 {
			return err
		}
		for range n {
			if err := f(); err != nil {
				return err
			}
		}
	}
}

// skip passes over a value.
func (in *avroInput) skip(t *avroType, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	var err error
	switch t.kind {
	case avroNull:
	case avroBool:
		_, err = in.bool()
	case avroInt, avroLong, avroEnum:
		_, err = in.long()
	case avroFloat:
		_, err = in.take(4)
	case avroDouble:
		_, err = in.take(8)
	case avroBytes, avroString:
		_, err = in.bytes()
	case avroFixed:
		_, err = in.take(t.size)
	case avroUnion:
		var option int
		if option, err = in.option(t); err == nil {
			err = in.skip(t.options[option], depth+1)
		}
	case avroRecord:
		for i := range t.fields {
			if err = in.skip(t.fields[i].typ, depth+1); err != nil {
				return err
			}
		}
	case avroArray, avroMap:
		for {
			n, size, err := in.block(t)
			if err != nil || n == 0 {
				return err
			}
			if size >= 0 {
				in.b = in.b[size:]
				continue
			}
			for range n {
				if t.kind == avroMap {
					if _, err := in.bytes(); err != nil {
						return err
					}
				}
				if err := in.skip(t.of, depth+1); err != nil {
					return err
				}
			}
		}
	}
	return err
}
