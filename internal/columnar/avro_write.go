package columnar

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// AvroWriter writes rows as records of one schema. It is for one goroutine.
type AvroWriter struct {
	root []avroOut
	cols []*vec.Column
}

// NewAvroWriter returns a writer of rows with fields, which lie in cols. Without cols it only finds what keeps such rows from being written:
// an error joins all of that. A field of the schema that rows don't have is its default, or null where it may be.
func NewAvroWriter(s *AvroSchema, fields []Field, cols []*vec.Column) (*AvroWriter, error) {
	o, err := origins(fields)
	if err != nil {
		return nil, err
	}
	var m misfits
	root := planAvroOut(&m, s.root, o, "")
	if err := m.err(); err != nil {
		return nil, err
	}
	return &AvroWriter{root: root, cols: cols}, nil
}

// avroOut says how one field of a record, or an entry of a map, is written.
type avroOut struct {
	path   string
	key    []byte // of an entry: its name as a string of Avro
	typ    *avroType
	from   *origin // nil: it is always the same
	always []byte
	null   int // the option of a union that null is; -1: there is none
	// Of a record or a map that rows have fields of:
	option int // of a union; -1: typ is none
	isMap  bool
	inner  []avroOut
}

func planAvroOut(m *misfits, record *avroType, from *origin, prefix string) []avroOut {
	outs := make([]avroOut, 0, len(record.fields))
	known := make([]string, 0, len(record.fields))
	for i := range record.fields {
		f := &record.fields[i]
		known = append(known, f.name)
		if o := from.take(f.name); o != nil {
			outs = append(outs, planAvroValue(m, f.typ, o, prefix+f.name))
			continue
		}
		out := avroOut{path: prefix + f.name, typ: f.typ}
		var err error
		switch {
		case f.hasDef:
			if out.always, err = appendAvroDefault(nil, f.typ, f.def, 0); err != nil {
				m.add(out.path, "its default can't be written: %w", err)
			}
		default:
			if out.always, err = appendAvro(nil, f.typ, value.NullValue()); err != nil {
				m.add(out.path, "the rows don't have it, and %s has no default for it", record)
			}
		}
		outs = append(outs, out)
	}
	m.unplaced(from, prefix, record.String(), known)
	return outs
}

func planAvroValue(m *misfits, t *avroType, o *origin, path string) avroOut {
	out := avroOut{path: path, typ: t, from: o, null: t.nullOption(), option: -1}
	if o.at >= 0 {
		switch {
		case o.typ.Kind == vec.Null && out.null < 0 && t.kind != avroNull, !t.takes(o.typ):
			m.errs = append(m.errs, fmt.Errorf("field %s: %w", path, due(typeText(o.typ), t.text())))
		}
		return out
	}
	options := []*avroType{t}
	if t.kind == avroUnion {
		options = t.options
	}
	var first *misfits
	for k, opt := range options {
		var of misfits
		var inner []avroOut
		switch opt.kind {
		case avroRecord:
			inner = planAvroOut(&of, opt, o, path+".")
		case avroMap:
			for _, e := range o.members {
				entry := planAvroValue(&of, opt.of, e, path+"."+e.name)
				entry.key = append(binary.AppendVarint(nil, int64(len(e.name))), e.name...)
				inner = append(inner, entry)
			}
		default:
			continue
		}
		if len(of.errs) > 0 {
			if first == nil {
				first = &of
			}
			continue
		}
		if out.inner, out.isMap = inner, opt.kind == avroMap; t.kind == avroUnion {
			out.option = k
		}
		return out
	}
	if first == nil {
		m.add(path, "the rows have fields of it where %s is due", t.text())
		return out
	}
	m.errs = append(m.errs, first.errs...)
	return out
}

// nullOption is the option of a union that null is; -1 if there is none.
func (t *avroType) nullOption() int {
	return slices.IndexFunc(t.options, func(o *avroType) bool { return o.kind == avroNull })
}

// text is a type as errors name it.
func (t *avroType) text() string {
	switch {
	case t.kind == avroUnion:
		var all []string
		for _, o := range t.options {
			all = append(all, o.text())
		}
		return strings.Join(all, " or ")
	case t.logical == logicalDecimal:
		return fmt.Sprintf("decimal(%d, %d)", t.digits, t.scale)
	case t.logical != plainType:
		return logicalNames[t.logical]
	case t.kind == avroArray:
		return "an array of " + t.of.text()
	}
	return t.name
}

var logicalNames = map[avroLogical]string{
	logicalDate: "date", logicalMillis: "timestamp-millis", logicalMicros: "timestamp-micros", logicalNanos: "timestamp-nanos", logicalUUID: "uuid",
}

// fits tells how values of a kind go into t, which is no union.
func (t *avroType) fits(k vec.Kind) fit {
	own, also := vec.Null, []vec.Kind(nil)
	switch t.logical {
	case logicalDecimal:
		own, also = vec.Decimal, []vec.Kind{vec.Int}
	case logicalUUID:
		own = vec.String
	case logicalDate, logicalMillis, logicalMicros, logicalNanos:
		own = vec.Time
	default:
		switch t.kind {
		case avroBool:
			own = vec.Bool
		case avroInt, avroLong:
			own = vec.Int
		case avroFloat, avroDouble:
			own, also = vec.Float, []vec.Kind{vec.Int}
		case avroBytes, avroFixed:
			own = vec.Bytes
		case avroString:
			own, also = vec.String, []vec.Kind{vec.Decimal, vec.Time}
		case avroEnum:
			own = vec.String
		case avroArray:
			own = vec.List
		case avroNull:
		default:
			return passes
		}
	}
	switch {
	case k == own:
		return asItIs
	case slices.Contains(also, k):
		return converted
	}
	return passes
}

// takes tells whether a column's values may go into t; what they are row by row may still not.
func (t *avroType) takes(c vec.Type) bool {
	if t.kind == avroUnion {
		return slices.ContainsFunc(t.options, func(o *avroType) bool { return o.takes(c) })
	}
	switch c.Kind {
	case vec.Null:
		return true
	case vec.Any:
		return t.kind != avroRecord && t.kind != avroMap
	case vec.List:
		return t.kind == avroArray && t.of.takes(vec.Type{Kind: c.Elem})
	default:
		return t.fits(c.Kind) != passes
	}
}

// Write appends row i as a record.
func (w *AvroWriter) Write(dst []byte, i int) ([]byte, error) { return w.fields(dst, w.root, i) }

func (w *AvroWriter) fields(dst []byte, outs []avroOut, i int) (_ []byte, err error) {
	for k := range outs {
		o := &outs[k]
		if o.from == nil {
			dst = append(dst, o.always...)
			continue
		}
		if dst, err = w.field(dst, o, i); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (w *AvroWriter) field(dst []byte, o *avroOut, i int) (_ []byte, err error) {
	if o.from.at >= 0 {
		v := value.NullValue()
		if c := w.cols[o.from.at]; !c.IsNull(i) {
			v = c.Value(i)
		}
		if dst, err = appendAvro(dst, o.typ, v); err != nil {
			return dst, fmt.Errorf("field %s: %w", o.path, err)
		}
		return dst, nil
	}
	if o.null >= 0 && o.from.null(w.cols, i) {
		return binary.AppendVarint(dst, int64(o.null)), nil
	}
	if o.option >= 0 {
		dst = binary.AppendVarint(dst, int64(o.option))
	}
	if !o.isMap {
		return w.fields(dst, o.inner, i)
	}
	var n int64
	for k := range o.inner {
		if !o.inner[k].from.null(w.cols, i) {
			n++
		}
	}
	if n > 0 {
		dst = binary.AppendVarint(dst, n)
		for k := range o.inner {
			if e := &o.inner[k]; !e.from.null(w.cols, i) {
				if dst, err = w.field(append(dst, e.key...), e, i); err != nil {
					return dst, err
				}
			}
		}
	}
	return append(dst, 0), nil
}

// appendAvro appends a value as one of type t.
func appendAvro(dst []byte, t *avroType, v value.Value) ([]byte, error) {
	if t.kind == avroUnion {
		return appendAvroOption(dst, t, v)
	}
	if t.kind == avroNull && v.IsNull() {
		return dst, nil
	}
	kind := vec.KindOf(v)
	if v.IsNull() || t.fits(kind) == passes {
		return dst, due(article(v), t.text())
	}
	switch t.logical {
	case logicalDecimal:
		return appendAvroDecimal(dst, t, v)
	case logicalDate, logicalMillis, logicalMicros, logicalNanos:
		return appendAvroTime(dst, t, v.Nanos())
	case logicalUUID:
		return appendUUID(dst, v.Str())
	default:
	}
	switch t.kind {
	case avroBool:
		if v.Bool() {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case avroInt, avroLong:
		n := v.Int()
		if t.kind == avroInt && (n < math.MinInt32 || n > math.MaxInt32) {
			return dst, fmt.Errorf("%d is beyond the range of Avro's int", n)
		}
		return binary.AppendVarint(dst, n), nil
	case avroFloat:
		f, err := float32Of(v)
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(f)), err
	case avroDouble:
		f, err := floatOf(v)
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), err
	case avroString:
		return appendAvroString(dst, v)
	case avroBytes:
		return append(binary.AppendVarint(dst, int64(len(v.Bytes()))), v.Bytes()...), nil
	case avroFixed:
		if len(v.Bytes()) != t.size {
			return dst, fmt.Errorf("%d bytes where %s has %d", len(v.Bytes()), t, t.size)
		}
		return append(dst, v.Bytes()...), nil
	case avroEnum:
		n := slices.Index(t.symbols, v.Str())
		if n < 0 {
			return dst, fmt.Errorf("%s has no symbol %.40q; it has %s", t, v.Str(), strings.Join(t.symbols, ", "))
		}
		return binary.AppendVarint(dst, int64(n)), nil
	case avroArray:
		vs := v.List()
		if len(vs) > 0 {
			dst = binary.AppendVarint(dst, int64(len(vs)))
		}
		for i, e := range vs {
			var err error
			if dst, err = appendAvro(dst, t.of, e); err != nil {
				return dst, fmt.Errorf("element %d: %w", i, err)
			}
		}
		return append(dst, 0), nil
	default:
		panic("columnar: a value of " + t.String())
	}
}

// appendAvroOption appends a value as the first option of a union that is just of its kind, or else the first that can hold it.
func appendAvroOption(dst []byte, t *avroType, v value.Value) ([]byte, error) {
	n := len(dst)
	if v.IsNull() {
		if k := t.nullOption(); k >= 0 {
			return binary.AppendVarint(dst, int64(k)), nil
		}
		return dst, due("null", t.text())
	}
	var first error
	for _, how := range []fit{asItIs, converted} {
		for k, o := range t.options {
			if o.kind == avroNull || o.fits(vec.KindOf(v)) != how {
				continue
			}
			b, err := appendAvro(binary.AppendVarint(dst, int64(k)), o, v)
			if err == nil {
				return b, nil
			}
			if dst = b[:n]; first == nil {
				first = err
			}
		}
	}
	if first == nil {
		first = due(article(v), t.text())
	}
	return dst, first
}

// floatOf is a float, or an int where a float holds it.
func floatOf(v value.Value) (float64, error) {
	if v.Kind() == value.Float {
		return v.Float(), nil
	}
	n := v.Int()
	f := float64(n)
	if f >= 1<<63 || int64(f) != n {
		return 0, fmt.Errorf("%d has more digits than a float holds", n)
	}
	return f, nil
}

// float32Of is floatOf where 32 bits hold the number.
func float32Of(v value.Value) (float32, error) {
	f, err := floatOf(v)
	if err != nil {
		return 0, err
	}
	if float64(float32(f)) != f && !math.IsNaN(f) {
		return 0, fmt.Errorf("%v has more digits than a float of 32 bits holds; a double has them", f)
	}
	return float32(f), nil
}

// appendAvroString appends a text: a string as it is, a decimal in digits, a timestamp in RFC 3339.
func appendAvroString(dst []byte, v value.Value) ([]byte, error) {
	if v.Kind() == value.String {
		s := v.Str()
		if !utf8.ValidString(s) {
			return dst, fmt.Errorf("%.40q is not UTF-8", s)
		}
		return append(binary.AppendVarint(dst, int64(len(s))), s...), nil
	}
	var buf [64]byte
	text := value.AppendText(buf[:0], v)
	return append(binary.AppendVarint(dst, int64(len(text))), text...), nil
}

// units are the nanoseconds of a logical time's unit.
var units = map[avroLogical]int64{
	logicalDate: 24 * int64(time.Hour), logicalMillis: int64(time.Millisecond), logicalMicros: int64(time.Microsecond), logicalNanos: 1,
}

func appendAvroTime(dst []byte, t *avroType, nanos int64) ([]byte, error) {
	unit := units[t.logical]
	if nanos%unit != 0 {
		what := "a part of a unit"
		if t.logical == logicalDate {
			what = "a time of day"
		}
		return dst, fmt.Errorf("%s has %s that %s doesn't hold", value.TimeOf(nanos), what, t.text())
	}
	return binary.AppendVarint(dst, nanos/unit), nil
}

func appendAvroDecimal(dst []byte, t *avroType, v value.Value) ([]byte, error) {
	var d decimal.Decimal
	if v.Kind() == value.Int {
		d = decimal.FromInt(v.Int())
	} else {
		d = v.Decimal()
	}
	more := int(d.Exponent()) + t.scale
	if more < 0 {
		return dst, fmt.Errorf("%s has more than the %d digits behind the point that %s holds", d, t.scale, t.text())
	}
	// A schema's scale is at most its precision: what has no digits before the point fits.
	if n := d.IntDigits(); n > 0 && n+t.scale > t.digits {
		return dst, fmt.Errorf("%s has more digits than %s holds", d, t.text())
	}
	var buf [16]byte
	b := buf[:0]
	if coef, _, ok := d.Small(); ok && more < len(powersOfTen) && fitsTimes(coef, powersOfTen[more]) {
		b = appendTwos(b, coef*powersOfTen[more])
	} else {
		n := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(more)), nil)
		b = bigTwos(n.Mul(n, d.Coefficient()))
	}
	if t.kind != avroFixed {
		return append(binary.AppendVarint(dst, int64(len(b))), b...), nil
	}
	if len(b) > t.size {
		return dst, fmt.Errorf("%s needs %d bytes, %s has %d", d, len(b), t, t.size)
	}
	fill := byte(0)
	if b[0]&0x80 != 0 {
		fill = 0xff
	}
	for range t.size - len(b) {
		dst = append(dst, fill)
	}
	return append(dst, b...), nil
}

var powersOfTen = [19]int64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// fitsTimes tells whether n*m is an int64. m is positive.
func fitsTimes(n, m int64) bool { return n <= math.MaxInt64/m && n >= math.MinInt64/m }

// appendTwos appends n in two's complement, the most significant byte first, in as few bytes as hold it.
func appendTwos(dst []byte, n int64) []byte {
	size := 8
	for size > 1 && n >= -1<<(8*size-9) && n < 1<<(8*size-9) {
		size--
	}
	for i := size - 1; i >= 0; i-- {
		dst = append(dst, byte(n>>(8*i)))
	}
	return dst
}

// bigTwos is appendTwos for any size.
func bigTwos(n *big.Int) []byte {
	if n.Sign() >= 0 {
		b := n.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	// -2^(8*size-1) is the least that size bytes hold; Not is -n-1.
	size := new(big.Int).Not(n).BitLen()/8 + 1
	b := new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(size)*8)).Bytes()
	for len(b) < size {
		b = append([]byte{0}, b...)
	}
	return b
}

var errUUID = errors.New("it is no UUID in the form 123e4567-e89b-12d3-a456-426614174000")

func appendUUID(dst []byte, s string) ([]byte, error) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return dst, errUUID
	}
	n := len(dst)
	for _, part := range []string{s[:8], s[9:13], s[14:18], s[19:23], s[24:]} {
		var err error
		if dst, err = hex.AppendDecode(dst, []byte(part)); err != nil {
			return dst[:n], errUUID
		}
	}
	return dst, nil
}

// appendAvroDefault appends what a schema says that a field is which nobody has set.
func appendAvroDefault(dst []byte, t *avroType, val any, depth int) (_ []byte, err error) {
	if depth > maxDepth {
		return dst, errDeep
	}
	depth++
	if t.kind == avroUnion {
		for k, o := range t.options {
			var b []byte
			if b, err = appendAvroDefault(nil, o, val, depth); err == nil {
				return append(binary.AppendVarint(dst, int64(k)), b...), nil
			}
		}
		return dst, err
	}
	switch v := val.(type) {
	case nil:
		return appendAvro(dst, t, value.NullValue())
	case bool:
		return appendAvro(dst, t, value.BoolOf(v))
	case int32:
		return appendAvroNumber(dst, t, int64(v))
	case int64:
		return appendAvroNumber(dst, t, v)
	case float32:
		return appendAvro(dst, t, value.FloatOf(float64(v)))
	case float64:
		return appendAvro(dst, t, value.FloatOf(v))
	case string:
		if t.kind == avroBytes || t.kind == avroFixed {
			return dst, due("a string", t.text())
		}
		return appendAvro(dst, t, value.StringOf(v))
	case []byte:
		switch {
		case t.kind == avroFixed && len(v) == t.size:
			return append(dst, v...), nil
		case t.kind == avroBytes:
			return append(binary.AppendVarint(dst, int64(len(v))), v...), nil
		}
	case []any:
		if t.kind != avroArray {
			break
		}
		if len(v) > 0 {
			dst = binary.AppendVarint(dst, int64(len(v)))
		}
		for _, e := range v {
			if dst, err = appendAvroDefault(dst, t.of, e, depth); err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	case map[string]any:
		return appendAvroDefaults(dst, t, v, depth)
	}
	return dst, due(fmt.Sprintf("%T", val), t.text())
}

// appendAvroNumber appends a default that is a number of the units of t.
func appendAvroNumber(dst []byte, t *avroType, n int64) ([]byte, error) {
	if t.kind == avroInt || t.kind == avroLong {
		return binary.AppendVarint(dst, n), nil
	}
	return appendAvro(dst, t, value.IntOf(n))
}

func appendAvroDefaults(dst []byte, t *avroType, v map[string]any, depth int) (_ []byte, err error) {
	switch t.kind {
	case avroRecord:
		for i := range t.fields {
			f := &t.fields[i]
			val, ok := v[f.name]
			if !ok && f.hasDef {
				val = f.def
			}
			if dst, err = appendAvroDefault(dst, f.typ, val, depth); err != nil {
				return dst, fmt.Errorf("field %s: %w", f.name, err)
			}
		}
		return dst, nil
	case avroMap:
		keys := make([]string, 0, len(v))
		for k := range v { // order: sorted next
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if len(keys) > 0 {
			dst = binary.AppendVarint(dst, int64(len(keys)))
		}
		for _, k := range keys {
			dst = append(binary.AppendVarint(dst, int64(len(k))), k...)
			if dst, err = appendAvroDefault(dst, t.of, v[k], depth); err != nil {
				return dst, fmt.Errorf("key %s: %w", k, err)
			}
		}
		return append(dst, 0), nil
	default:
		return dst, due("a record", t.text())
	}
}
