package expr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"unicode"
	"unicode/utf8"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

func contains(s, sub []byte) (bool, error)     { return bytes.Contains(s, sub), nil }
func hasPrefix(s, prefix []byte) (bool, error) { return bytes.HasPrefix(s, prefix), nil }
func hasSuffix(s, suffix []byte) (bool, error) { return bytes.HasSuffix(s, suffix), nil }

func textOperator(name string, f func(s, t []byte) (bool, error)) *function {
	return &function{name: name, operator: true, nulls: nullIsFalse, overloads: []overload{
		{params: params(tString, tString), result: tBool, run: map2(strs, strs, bools, f)},
	}}
}

func prepareMatches(v value.Value) (loop, error) {
	re, err := regexp.Compile(v.Str())
	if err != nil {
		return nil, err
	}
	return func(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
		for _, r := range sel {
			out.Bool[r] = re.Match(args[0].Str[r])
		}
	}, nil
}

func init() {
	string1 := func(name string, run loop) *function {
		return &function{name: name, overloads: []overload{{params: params(tString), result: tString, run: run}}}
	}
	string2 := func(name string, result vec.Type, run loop) *function {
		return &function{name: name, overloads: []overload{{params: params(tString, tString), result: result, run: run}}}
	}
	register(
		string1("lower", mapCase('A', unicode.ToLower)),
		string1("upper", mapCase('a', unicode.ToUpper)),
		&function{name: "trim", overloads: []overload{
			{params: params(tString), result: tString, run: map1(strs, strs, func(s []byte) ([]byte, error) { return bytes.TrimSpace(s), nil })},
			{params: params(tString, tString), result: tString, run: map2(strs, strs, strs, func(s, chars []byte) ([]byte, error) {
				return bytes.Trim(s, vec.Text(chars)), nil
			})},
		}},
		string2("trimPrefix", tString, map2(strs, strs, strs, func(s, t []byte) ([]byte, error) { return bytes.TrimPrefix(s, t), nil })),
		string2("trimSuffix", tString, map2(strs, strs, strs, func(s, t []byte) ([]byte, error) { return bytes.TrimSuffix(s, t), nil })),
		string2("hasPrefix", tBool, map2(strs, strs, bools, hasPrefix)),
		string2("hasSuffix", tBool, map2(strs, strs, bools, hasSuffix)),
		string2("indexOf", tInt, map2(strs, strs, ints, indexOf)),
		string2("split", tStrings, split),
		&function{name: "join", overloads: []overload{{params: params(tStrings, tString), result: tString, run: join}}},
		&function{name: "replace", overloads: []overload{{params: params(tString, tString, tString), result: tString, run: replace}}},
		&function{name: "substr", overloads: []overload{
			{params: params(tString, tInt), result: tString, run: map2(strs, ints, strs, func(s []byte, from int64) ([]byte, error) {
				return substr(s, from, int64(len(s)))
			})},
			{params: params(tString, tInt, tInt), result: tString, run: map3(strs, ints, ints, strs, substr)},
		}},
		&function{name: "len", overloads: []overload{
			{params: params(tString), result: tInt, run: map1(strs, ints, func(s []byte) (int64, error) { return int64(utf8.RuneCount(s)), nil })},
			{params: params(tBytes), result: tInt, run: map1(strs, ints, func(s []byte) (int64, error) { return int64(len(s)), nil })},
			{params: params(tList), result: tInt, run: listLen},
		}},
	)
}

// Eight bytes at once: each constant repeats a byte.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// letters marks, by the high bit of each byte, the ASCII letters within first to first+25 of a word that is all ASCII.
func letters(w uint64, first byte) uint64 {
	fromFirst := w + uint64(0x80-first)*ones
	beyondLast := w + uint64(0x80-first-26)*ones
	return (fromFirst ^ beyondLast) & highs
}

// caseOf tells whether s is all ASCII, and whether it has a letter within first to first+25.
func caseOf(s []byte, first byte) (ascii, found bool) {
	var all, marks uint64
	for ; len(s) >= 8; s = s[8:] {
		w := binary.LittleEndian.Uint64(s)
		all |= w
		marks |= letters(w&^highs, first)
	}
	for _, b := range s {
		all |= uint64(b)
		found = found || b-first < 26
	}
	return all&highs == 0, found || marks != 0
}

// mapCase swaps the case of the ASCII letters within first to first+25, and maps the characters of other text by
// full. An ASCII string that doesn't change isn't copied.
func mapCase(first byte, full func(rune) rune) loop {
	return func(_ *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
		in := args[0].Str
		for _, r := range sel {
			s := in[r]
			switch ascii, found := caseOf(s, first); {
			case !ascii:
				t := m.arena.Tail(len(s) + utf8.UTFMax)
				for len(s) > 0 {
					c, size := utf8.DecodeRune(s)
					t = utf8.AppendRune(t, full(c))
					s = s[size:]
				}
				out.Str[r] = m.arena.Take(t)
			case !found:
				out.Str[r] = s
			default:
				t := m.arena.Alloc(len(s))
				i := 0
				for ; i+8 <= len(s); i += 8 {
					w := binary.LittleEndian.Uint64(s[i:])
					binary.LittleEndian.PutUint64(t[i:], w^letters(w, first)>>2)
				}
				for ; i < len(s); i++ {
					t[i] = s[i]
					if s[i]-first < 26 {
						t[i] ^= 'a' - 'A'
					}
				}
				out.Str[r] = t
			}
		}
	}
}

// indexOf counts characters, not bytes; -1 if sub isn't in s.
func indexOf(s, sub []byte) (int64, error) {
	before, _, ok := bytes.Cut(s, sub)
	if !ok {
		return -1, nil
	}
	return int64(utf8.RuneCount(before)), nil
}

// substr counts characters; what lies beyond s is left out. A negative from counts from the end.
func substr(s []byte, from, length int64) ([]byte, error) {
	if length < 0 {
		return nil, fmt.Errorf("the length is %d", length)
	}
	if from < 0 {
		from = max(0, from+int64(utf8.RuneCount(s)))
	}
	s = s[characters(s, from):]
	return s[:characters(s, length)], nil
}

// characters returns the number of bytes that the first n characters of s take.
func characters(s []byte, n int64) int {
	i := 0
	for ; n > 0 && i < len(s); n-- {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, size := utf8.DecodeRune(s[i:])
		i += size
	}
	return i
}

// split cuts at every separator. The parts refer to the string; an empty separator cuts between characters.
func split(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	strings, seps := args[0].Str, args[1].Str
	parts := out.Elems.Str
	for _, r := range sel {
		s, sep := strings[r], seps[r]
		start := len(parts)
		switch len(sep) {
		case 0:
			for len(s) > 0 {
				_, size := utf8.DecodeRune(s)
				parts = append(parts, s[:size:size])
				s = s[size:]
			}
		case 1:
			for {
				i := bytes.IndexByte(s, sep[0])
				if i < 0 {
					break
				}
				parts = append(parts, s[:i:i])
				s = s[i+1:]
			}
			parts = append(parts, s)
		default:
			for {
				i := bytes.Index(s, sep)
				if i < 0 {
					break
				}
				parts = append(parts, s[:i:i])
				s = s[i+len(sep):]
			}
			parts = append(parts, s)
		}
		out.List[r] = vec.Span{Start: int32(start), Len: int32(len(parts) - start)}
	}
	out.Elems.Str = parts
	out.Elems.Appended(len(parts) - out.Elems.Len())
}

var errNilElement = errors.New("an element of the list is nil")

func join(c *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	elems := args[0].Elems
rows:
	for _, r := range sel {
		list, sep := args[0].List[r], args[1].Str[r]
		size := max(0, int(list.Len)-1) * len(sep)
		for i := list.Start; i < list.Start+list.Len; i++ {
			if elems.IsNull(int(i)) {
				c.fail(r, errNilElement)
				continue rows
			}
			size += len(elems.Str[i])
		}
		s := m.arena.Alloc(size)
		n := 0
		for i := list.Start; i < list.Start+list.Len; i++ {
			if i > list.Start {
				n += copy(s[n:], sep)
			}
			n += copy(s[n:], elems.Str[i])
		}
		out.Str[r] = s
	}
}

func replace(_ *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	for _, r := range sel {
		s, old, repl := args[0].Str[r], args[1].Str[r], args[2].Str[r]
		if len(old) == 0 || !bytes.Contains(s, old) {
			out.Str[r] = s
			continue
		}
		n := bytes.Count(s, old)
		t := m.arena.Alloc(len(s) + n*(len(repl)-len(old)))
		w := 0
		for range n {
			i := bytes.Index(s, old)
			w += copy(t[w:], s[:i])
			w += copy(t[w:], repl)
			s = s[i+len(old):]
		}
		copy(t[w:], s)
		out.Str[r] = t
	}
}

func listLen(_ *callKernel, _ *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	for _, r := range sel {
		out.Int[r] = int64(args[0].List[r].Len)
	}
}
