package expr

import (
	"maps"
	"slices"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// inKernel is x in list. nil is in a list that holds nil; in a list that is nil is nothing.
type inKernel struct {
	x, list    kernel
	bufX, bufL vec.Column

	// Of a constant list of the type of x. A list of a few strings is searched from end to end.
	few     []string
	strings map[string]struct{}
	ints    map[int64]struct{}
	hasNull bool
}

// mostFew is up to where comparing is faster than hashing.
const mostFew = 8

// prepare makes a set of a constant list of strings, ints or times, for an operand of kind x.
func (k *inKernel) prepare(x vec.Kind, list value.Value) {
	if list.IsNull() {
		return
	}
	strings, ints := map[string]struct{}{}, map[int64]struct{}{}
	hasNull := false
	for _, e := range list.List() {
		kind := vec.KindOf(e)
		switch {
		case e.IsNull():
			hasNull = true
		case kind != x:
			return
		case kind == vec.String:
			strings[e.Str()] = struct{}{}
		case kind == vec.Int:
			ints[e.Int()] = struct{}{}
		case kind == vec.Time:
			ints[e.Nanos()] = struct{}{}
		default:
			return
		}
	}
	k.hasNull = hasNull
	switch x {
	case vec.String:
		if k.strings = strings; len(strings) <= mostFew {
			k.few = slices.Sorted(maps.Keys(strings))
		}
	case vec.Int, vec.Time:
		k.ints = ints
	}
}

func (k *inKernel) eval(m *machine, sel []int32, out *vec.Column) *vec.Column {
	x := k.x.eval(m, sel, &k.bufX)
	out.Reset(tBool, m.n)
	switch {
	case k.few != nil:
		for _, r := range sel {
			if x.IsNull(int(r)) {
				out.Bool[r] = k.hasNull
				continue
			}
			s, found := x.Str[r], false
			for _, t := range k.few {
				found = found || string(s) == t
			}
			out.Bool[r] = found
		}
		return out
	case k.strings != nil:
		for _, r := range sel {
			if x.IsNull(int(r)) {
				out.Bool[r] = k.hasNull
				continue
			}
			_, out.Bool[r] = k.strings[string(x.Str[r])]
		}
		return out
	case k.ints != nil:
		for _, r := range sel {
			if x.IsNull(int(r)) {
				out.Bool[r] = k.hasNull
				continue
			}
			_, out.Bool[r] = k.ints[x.Int[r]]
		}
		return out
	}
	list := k.list.eval(m, sel, &k.bufL)
	for _, r := range sel {
		out.Bool[r] = false
		if list.IsNull(int(r)) {
			continue
		}
		v := x.Value(int(r))
		switch list.Type.Kind {
		case vec.List:
			s := list.List[r]
			for i := s.Start; i < s.Start+s.Len && !out.Bool[r]; i++ {
				k.try(m, r, v, list.Elems.Value(int(i)), out)
			}
		case vec.Any:
			l := list.Any[r]
			if l.Kind() != value.List {
				m.fail(r, func() string { return "in needs a list, the right side is " + articleOf(l) })
				out.SetNull(int(r))
				continue
			}
			for _, e := range l.List() {
				k.try(m, r, v, e, out)
			}
		}
	}
	return out
}

// try sets the result where v is equal to an element.
func (k *inKernel) try(m *machine, r int32, v, elem value.Value, out *vec.Column) {
	if mixed(v, elem) || mixed(elem, v) {
		m.fail(r, func() string { return "in: " + errMixed })
		out.SetNull(int(r))
		return
	}
	out.Bool[r] = out.Bool[r] || equalValues(v, elem)
}
