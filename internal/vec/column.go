package vec

import (
	"fmt"
	"unsafe"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
)

// Span is one row of a list column: a run of its elements.
type Span struct{ Start, Len int32 }

// Column is one field of a chunk of rows. Only the slice that belongs to Type.Kind is in use, and has Len rows:
//
//	Bool                 Bool
//	Int, Time            Int
//	Float                Float
//	Decimal              Dec
//	String, Bytes        Str
//	Any                  Any
//	List                 List, with the elements in Elems
//
// What stands in it at a null row is undefined.
type Column struct {
	Type Type
	// Null tells the null rows. It is empty where no row is null, and has Len entries otherwise.
	Null []bool

	Bool  []bool
	Int   []int64
	Float []float64
	Dec   []decimal.Decimal
	Str   [][]byte
	Any   []value.Value
	List  []Span
	Elems *Column

	n int
}

// Len is the number of rows.
func (c *Column) Len() int { return c.n }

// Reset makes c a column of n rows of undefined content, none of them null. Elems, if there are any, become empty.
func (c *Column) Reset(t Type, n int) {
	c.Type, c.n = t, n
	c.Null = c.Null[:0]
	switch t.Kind {
	case Bool:
		c.Bool = resize(c.Bool, n)
	case Int, Time:
		c.Int = resize(c.Int, n)
	case Float:
		c.Float = resize(c.Float, n)
	case Decimal:
		c.Dec = resize(c.Dec, n)
	case String, Bytes:
		c.Str = resize(c.Str, n)
	case Any:
		c.Any = resize(c.Any, n)
	case List:
		c.List = resize(c.List, n)
		if c.Elems == nil {
			c.Elems = new(Column)
		}
		c.Elems.Reset(Type{Kind: t.Elem}, 0)
	case Null:
		c.AllNull()
	}
}

// resize returns s with length n. Unlike append it doesn't keep the content where it has to grow.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, max(n, 2*cap(s)))
	}
	return s[:n]
}

// grow returns s one longer, its content kept.
func grow[T any](s []T) []T {
	var zero T
	return append(s, zero)
}

// IsNull tells whether row i is null.
func (c *Column) IsNull(i int) bool { return len(c.Null) != 0 && c.Null[i] }

// HasNulls tells whether a row may be null.
func (c *Column) HasNulls() bool { return len(c.Null) != 0 }

// SetNull makes row i null.
func (c *Column) SetNull(i int) {
	if len(c.Null) == 0 {
		c.MakeNulls()
	}
	c.Null[i] = true
}

// MakeNulls makes Null as long as the column, with no row null. It is for loops that are about to set it.
func (c *Column) MakeNulls() {
	c.Null = resize(c.Null, c.n)
	clear(c.Null)
}

// AllNull makes every row null.
func (c *Column) AllNull() {
	c.Null = resize(c.Null, c.n)
	for i := range c.Null {
		c.Null[i] = true
	}
}

// extend adds a row, not null.
func (c *Column) extend() {
	c.n++
	if len(c.Null) != 0 {
		c.Null = append(c.Null, false)
	}
}

// Appended tells that n rows, not null, were appended to the slice that holds the values.
func (c *Column) Appended(n int) {
	c.n += n
	if len(c.Null) != 0 {
		c.Null = append(c.Null, make([]bool, n)...)
	}
}

// AppendNull adds a null row.
func (c *Column) AppendNull() {
	switch c.Type.Kind {
	case Bool:
		c.Bool = grow(c.Bool)
	case Int, Time:
		c.Int = grow(c.Int)
	case Float:
		c.Float = grow(c.Float)
	case Decimal:
		c.Dec = grow(c.Dec)
	case String, Bytes:
		c.Str = grow(c.Str)
	case Any:
		c.Any = grow(c.Any)
	case List:
		c.List = grow(c.List)
	}
	c.extend()
	c.SetNull(c.n - 1)
}

// AppendBool adds a row to a Bool column.
func (c *Column) AppendBool(v bool) { c.Bool = append(c.Bool, v); c.extend() }

// AppendInt adds a row to an Int or a Time column.
func (c *Column) AppendInt(v int64) { c.Int = append(c.Int, v); c.extend() }

// AppendFloat adds a row to a Float column.
func (c *Column) AppendFloat(v float64) { c.Float = append(c.Float, v); c.extend() }

// AppendDecimal adds a row to a Decimal column.
func (c *Column) AppendDecimal(v decimal.Decimal) { c.Dec = append(c.Dec, v); c.extend() }

// AppendStr adds a row to a String or a Bytes column. v isn't copied.
func (c *Column) AppendStr(v []byte) { c.Str = append(c.Str, v); c.extend() }

// AppendAny adds a row to an Any column; a null value makes it null.
func (c *Column) AppendAny(v value.Value) {
	c.Any = append(c.Any, v)
	c.extend()
	if v.IsNull() {
		c.SetNull(c.n - 1)
	}
}

// AppendSpan adds a row to a List column: the elements from start to the present end of Elems.
func (c *Column) AppendSpan(start int) {
	c.List = append(c.List, Span{Start: int32(start), Len: int32(c.Elems.n - start)})
	c.extend()
}

// Gather makes c the rows of src whose numbers are in rows, in that order; a negative number gives a null row.
// Lists share nothing with src but the memory that src itself refers to.
func (c *Column) Gather(src *Column, rows []int32) {
	c.Reset(src.Type, len(rows))
	if c.Type.Kind == Null {
		return
	}
	missing := false
	switch src.Type.Kind {
	case Bool:
		missing = gather(c.Bool, src.Bool, rows)
	case Int, Time:
		missing = gather(c.Int, src.Int, rows)
	case Float:
		missing = gather(c.Float, src.Float, rows)
	case Decimal:
		missing = gather(c.Dec, src.Dec, rows)
	case String, Bytes:
		missing = gather(c.Str, src.Str, rows)
	case Any:
		missing = gather(c.Any, src.Any, rows)
	case List:
		for i, r := range rows {
			if r < 0 {
				missing = true
				continue
			}
			if src.IsNull(int(r)) {
				continue
			}
			from := src.List[r]
			c.List[i] = Span{Start: int32(c.Elems.n), Len: from.Len}
			for j := range from.Len {
				c.Elems.AppendFrom(src.Elems, int(from.Start+j))
			}
		}
	}
	if len(src.Null) == 0 && !missing {
		return
	}
	c.MakeNulls()
	for i, r := range rows {
		c.Null[i] = r < 0 || src.IsNull(int(r))
	}
}

func gather[T any](dst, src []T, rows []int32) (missing bool) {
	for i, r := range rows {
		if r < 0 {
			missing = true
			continue
		}
		dst[i] = src[r]
	}
	return missing
}

// AppendFrom adds row i of src, which has the same type or is Null; an Any column takes a row of any type.
func (c *Column) AppendFrom(src *Column, i int) {
	if src.IsNull(i) {
		c.AppendNull()
		return
	}
	switch c.Type.Kind {
	case Bool:
		c.AppendBool(src.Bool[i])
	case Int, Time:
		c.AppendInt(src.Int[i])
	case Float:
		c.AppendFloat(src.Float[i])
	case Decimal:
		c.AppendDecimal(src.Dec[i])
	case String, Bytes:
		c.AppendStr(src.Str[i])
	case Any:
		c.AppendAny(src.Value(i))
	case List:
		start := c.Elems.n
		from := src.List[i]
		for j := range from.Len {
			c.Elems.AppendFrom(src.Elems, int(from.Start+j))
		}
		c.AppendSpan(start)
	default:
		panic("vec: a row that is not null in a column of nulls")
	}
}

// CopyRows copies the rows in sel from src, which has the type and the number of rows of c, each to its own place.
// A list's elements are copied as well.
func (c *Column) CopyRows(src *Column, sel []int32) {
	switch c.Type.Kind {
	case Bool:
		scatter(c.Bool, src.Bool, sel)
	case Int, Time:
		scatter(c.Int, src.Int, sel)
	case Float:
		scatter(c.Float, src.Float, sel)
	case Decimal:
		scatter(c.Dec, src.Dec, sel)
	case String, Bytes:
		scatter(c.Str, src.Str, sel)
	case Any:
		scatter(c.Any, src.Any, sel)
	case List:
		for _, r := range sel {
			if src.IsNull(int(r)) {
				continue
			}
			from := src.List[r]
			c.List[r] = Span{Start: int32(c.Elems.n), Len: from.Len}
			for j := range from.Len {
				c.Elems.AppendFrom(src.Elems, int(from.Start+j))
			}
		}
	}
	switch {
	case len(src.Null) != 0:
		if len(c.Null) == 0 {
			c.MakeNulls()
		}
		scatter(c.Null, src.Null, sel)
	case len(c.Null) != 0:
		for _, r := range sel {
			c.Null[r] = false
		}
	}
}

func scatter[T any](dst, src []T, sel []int32) {
	for _, r := range sel {
		dst[r] = src[r]
	}
}

// Value returns row i. Strings and bytes in it are those of the column, not copies; a list allocates.
func (c *Column) Value(i int) value.Value {
	if c.IsNull(i) {
		return value.NullValue()
	}
	switch c.Type.Kind {
	case Bool:
		return value.BoolOf(c.Bool[i])
	case Int:
		return value.IntOf(c.Int[i])
	case Time:
		return value.TimeOf(c.Int[i])
	case Float:
		return value.FloatOf(c.Float[i])
	case Decimal:
		return value.DecimalOf(c.Dec[i])
	case String:
		return value.StringOf(Text(c.Str[i]))
	case Bytes:
		return value.BytesOf(c.Str[i])
	case Any:
		return c.Any[i]
	case List:
		s := c.List[i]
		vs := make([]value.Value, s.Len)
		for j := range vs {
			vs[j] = c.Elems.Value(int(s.Start) + j)
		}
		return value.ListOf(vs)
	}
	return value.NullValue()
}

// AppendValue adds a row. It fails where v's kind isn't the column's.
func (c *Column) AppendValue(v value.Value) error {
	c.AppendNull()
	if v.IsNull() {
		return nil
	}
	return c.SetValue(c.n-1, v)
}

// SetValue makes row i the value v. It fails, and the row is null, where v's kind isn't the column's. Strings and
// bytes aren't copied.
func (c *Column) SetValue(i int, v value.Value) error {
	if v.IsNull() {
		c.SetNull(i)
		return nil
	}
	if c.Type.Kind != Any && KindOf(v) != c.Type.Kind {
		c.SetNull(i)
		return fmt.Errorf("a value of type %s in a column of type %s", KindOf(v), c.Type)
	}
	if len(c.Null) != 0 {
		c.Null[i] = false
	}
	switch c.Type.Kind {
	case Bool:
		c.Bool[i] = v.Bool()
	case Int:
		c.Int[i] = v.Int()
	case Time:
		c.Int[i] = v.Nanos()
	case Float:
		c.Float[i] = v.Float()
	case Decimal:
		c.Dec[i] = v.Decimal()
	case String:
		c.Str[i] = Raw(v.Str())
	case Bytes:
		c.Str[i] = v.Bytes()
	case Any:
		c.Any[i] = v
	case List:
		start := c.Elems.n
		for _, e := range v.List() {
			if err := c.Elems.AppendValue(e); err != nil {
				c.SetNull(i)
				return err
			}
		}
		c.List[i] = Span{Start: int32(start), Len: int32(c.Elems.n - start)}
	}
	return nil
}

// KindOf is the kind of column that holds v as it is.
func KindOf(v value.Value) Kind {
	switch v.Kind() {
	case value.Bool:
		return Bool
	case value.Int:
		return Int
	case value.Float:
		return Float
	case value.Decimal:
		return Decimal
	case value.String:
		return String
	case value.Bytes:
		return Bytes
	case value.Time:
		return Time
	case value.List:
		return List
	}
	return Null
}

// Text returns b as a string without copying: the string is good for as long as b isn't written to.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Raw returns the bytes of s without copying. They must not be written to.
func Raw(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
