package expr

import (
	"fmt"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// fieldKernel is a column of the input.
type fieldKernel struct {
	index int
	t     vec.Type
	name  string
}

func (k *fieldKernel) eval(m *machine, _ []int32, _ *vec.Column) *vec.Column {
	if k.index >= len(m.in.Cols) || m.in.Cols[k.index] == nil {
		panic(fmt.Sprintf("expr: column %d (%s) is missing", k.index, k.name))
	}
	col := m.in.Cols[k.index]
	if col.Type != k.t || col.Len() != m.n {
		panic(fmt.Sprintf("expr: column %d (%s) has %d rows of type %s, not %d of %s", k.index, k.name, col.Len(), col.Type, m.n, k.t))
	}
	return col
}

// constKernel is the same value at every row. Its column is filled once, up to the largest chunk seen.
type constKernel struct {
	t   vec.Type
	v   value.Value
	col vec.Column
}

func (k *constKernel) eval(m *machine, _ []int32, _ *vec.Column) *vec.Column {
	if k.col.Len() >= m.n {
		return &k.col
	}
	c := &k.col
	c.Reset(k.t, m.n)
	if k.v.IsNull() {
		c.AllNull()
		return c
	}
	if err := c.SetValue(0, k.v); err != nil {
		panic("expr: a constant: " + err.Error())
	}
	switch k.t.Kind {
	case vec.Bool:
		repeat(c.Bool)
	case vec.Int, vec.Time:
		repeat(c.Int)
	case vec.Float:
		repeat(c.Float)
	case vec.Decimal:
		repeat(c.Dec)
	case vec.String, vec.Bytes:
		repeat(c.Str)
	case vec.Any:
		repeat(c.Any)
	case vec.List:
		repeat(c.List)
	}
	return c
}

// repeat copies the first element to all others.
func repeat[T any](s []T) {
	for i := range s {
		s[i] = s[0]
	}
}

// notKernel is !x: null where x is.
type notKernel struct {
	x   kernel
	buf vec.Column
}

func (k *notKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	x := k.x.eval(m, sel, &k.buf)
	out.Reset(x.Type, m.n)
	if x.HasNulls() {
		out.MakeNulls()
		for _, r := range sel {
			out.Null[r] = x.Null[r]
		}
	}
	for _, r := range sel {
		out.Bool[r] = !x.Bool[r]
	}
	return out
}

// logicKernel is l && r, or l || r, in the logic of three values: false && null is false, true && null is null. The
// right side is evaluated at the rows only whose result the left side leaves open.
type logicKernel struct {
	l, r       kernel
	and        bool
	strict     bool // l is never null by its type
	bufL, bufR vec.Column
	open       []int32
	result     vec.Column // of a filter
}

func (k *logicKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	l := k.l.eval(m, sel, &k.bufL)
	out.Reset(vec.Type{Kind: vec.Bool}, m.n)
	k.open = k.open[:0]
	for _, r := range sel {
		if l.Bool[r] == k.and || l.IsNull(int(r)) {
			k.open = append(k.open, r)
		} else {
			out.Bool[r] = !k.and
		}
	}
	if len(k.open) == 0 {
		return out
	}
	right := k.r.eval(m, k.open, &k.bufR)
	for _, r := range k.open {
		switch {
		case !right.IsNull(int(r)) && right.Bool[r] != k.and: // it decides by itself
			out.Bool[r] = !k.and
		case l.IsNull(int(r)) || right.IsNull(int(r)):
			out.SetNull(int(r))
		default:
			out.Bool[r] = k.and
		}
	}
	return out
}

func (k *logicKernel) filter(m *machine, sel, dst []int32) []int32 {
	if k.and && k.strict {
		// The true rows of the left side are exactly those that the right side is needed for.
		start := len(dst)
		dst = filter(k.l, m, sel, dst, &k.bufL)
		return filter(k.r, m, dst[start:], dst[:start], &k.bufR)
	}
	return truths(k.eval(m, sel, &k.result), sel, dst)
}

// conditionalKernel is cond ? yes : no. Each side is evaluated at its own rows only; a null condition is not true.
type conditionalKernel struct {
	cond, yes, no         kernel
	t                     vec.Type
	bufCond, bufYes, bufN vec.Column
	selYes, selNo         []int32
}

func (k *conditionalKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	cond := k.cond.eval(m, sel, &k.bufCond)
	k.selYes, k.selNo = k.selYes[:0], k.selNo[:0]
	for _, r := range sel {
		if cond.Bool[r] && !cond.IsNull(int(r)) {
			k.selYes = append(k.selYes, r)
		} else {
			k.selNo = append(k.selNo, r)
		}
	}
	out.Reset(k.t, m.n)
	if len(k.selYes) > 0 {
		out.CopyRows(k.yes.eval(m, k.selYes, &k.bufYes), k.selYes)
	}
	if len(k.selNo) > 0 {
		out.CopyRows(k.no.eval(m, k.selNo, &k.bufN), k.selNo)
	}
	return out
}

// orElseKernel is l ?? r: r is evaluated at the rows only where l is null.
type orElseKernel struct {
	l, r       kernel
	t          vec.Type
	bufL, bufR vec.Column
	open, rest []int32
}

func (k *orElseKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	l := k.l.eval(m, sel, &k.bufL)
	k.open, k.rest = k.open[:0], k.rest[:0]
	if l.HasNulls() {
		for _, r := range sel {
			if l.Null[r] {
				k.open = append(k.open, r)
			} else {
				k.rest = append(k.rest, r)
			}
		}
	}
	if len(k.open) == 0 {
		return l
	}
	right := k.r.eval(m, k.open, &k.bufR)
	out.Reset(k.t, m.n)
	out.CopyRows(l, k.rest)
	out.CopyRows(right, k.open)
	return out
}

// listKernel builds a list of its elements.
type listKernel struct {
	t     vec.Type
	elems []kernel
	bufs  []vec.Column
	cols  []*vec.Column
}

func (k *listKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	for i, e := range k.elems {
		k.cols[i] = e.eval(m, sel, &k.bufs[i])
	}
	out.Reset(k.t, m.n)
	for _, r := range sel {
		out.List[r] = vec.Span{Start: int32(out.Elems.Len()), Len: int32(len(k.cols))}
		for _, c := range k.cols {
			out.Elems.AppendFrom(c, int(r))
		}
	}
	return out
}

// indexKernel is list[index], counted from 0, from the end if negative. It is null where list or index is; an index
// beyond the list fails.
type indexKernel struct {
	list, index kernel
	t           vec.Type
	text        string
	bufL, bufI  vec.Column
}

func (k *indexKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	list, index := k.list.eval(m, sel, &k.bufL), k.index.eval(m, sel, &k.bufI)
	out.Reset(k.t, m.n)
	out.MakeNulls()
	for _, r := range sel {
		if list.IsNull(int(r)) || index.IsNull(int(r)) {
			out.Null[r] = true
			continue
		}
		i := index.Int[r]
		var vs []value.Value
		n := int64(0)
		if list.Type.Kind == vec.List {
			n = int64(list.List[r].Len)
		} else {
			v := list.Any[r]
			if v.Kind() != value.List {
				m.fail(r, func() string { return fmt.Sprintf("%s: there is no list but %s", k.text, articleOf(v)) })
				out.Null[r] = true
				continue
			}
			vs = v.List()
			n = int64(len(vs))
		}
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			m.fail(r, func() string {
				return fmt.Sprintf("%s: the list has %d elements, none with index %d", k.text, n, index.Int[r])
			})
			out.Null[r] = true
			continue
		}
		if list.Type.Kind != vec.List {
			out.Any[r], out.Null[r] = vs[i], vs[i].IsNull()
			continue
		}
		k.copyElem(out, r, list.Elems, int(list.List[r].Start)+int(i))
	}
	return out
}

// copyElem copies element i to row r of out, which has the elements' type.
func (k *indexKernel) copyElem(out *vec.Column, r int32, elems *vec.Column, i int) {
	if elems.IsNull(i) {
		out.Null[r] = true
		return
	}
	switch k.t.Kind {
	case vec.Bool:
		out.Bool[r] = elems.Bool[i]
	case vec.Int, vec.Time:
		out.Int[r] = elems.Int[i]
	case vec.Float:
		out.Float[r] = elems.Float[i]
	case vec.Decimal:
		out.Dec[r] = elems.Dec[i]
	case vec.String, vec.Bytes:
		out.Str[r] = elems.Str[i]
	case vec.Any:
		out.Any[r] = elems.Any[i]
	}
}

// convertKernel converts to another type: nil to any, int to float and decimal, anything to any, and any to what it
// should be; there a row that is something else fails.
type convertKernel struct {
	x    kernel
	t    vec.Type
	need string
	name string
	buf  vec.Column
}

func (k *convertKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	x := k.x.eval(m, sel, &k.buf)
	out.Reset(k.t, m.n)
	if x.Type.Kind == vec.Null {
		out.AllNull()
		return out
	}
	convertRows(out, x, sel, func(r int32) {
		m.fail(r, func() string { return fmt.Sprintf("%s, %s is %s", k.need, k.name, articleOf(x.Value(int(r)))) })
	})
	return out
}

// convertRows makes the rows in sel of dst those of src, which has another type. A row that is something else than
// dst's type is null, and failed is called.
func convertRows(dst, src *vec.Column, sel []int32, failed func(r int32)) {
	from, to := src.Type.Kind, dst.Type.Kind
	for _, r := range sel {
		if src.IsNull(int(r)) {
			dst.SetNull(int(r))
			continue
		}
		switch {
		case from == vec.Int && to == vec.Float:
			dst.Float[r] = float64(src.Int[r])
		case from == vec.Int && to == vec.Decimal:
			dst.Dec[r] = decimal.FromInt(src.Int[r])
		case to == vec.Any:
			dst.Any[r] = src.Value(int(r))
		default:
			v := src.Value(int(r))
			if v.Kind() == value.Int && to == vec.Float {
				v = value.FloatOf(float64(v.Int()))
			} else if v.Kind() == value.Int && to == vec.Decimal {
				v = value.DecimalOf(decimal.FromInt(v.Int()))
			}
			if err := dst.SetValue(int(r), v); err != nil {
				failed(r)
			}
		}
	}
}

// articleOf describes a value that isn't what it should be: an int (5).
func articleOf(v value.Value) string {
	if v.Kind() == value.List {
		return "a list of other values"
	}
	return fmt.Sprintf("%s (%s)", article(vec.Type{Kind: vec.KindOf(v)}), quote(v))
}

// quote writes a value for a message, cut to a readable length.
func quote(v value.Value) string {
	s := string(value.AppendText(nil, v))
	if v.Kind() == value.String {
		s = fmt.Sprintf("%q", v.Str())
	}
	return cut(s)
}
