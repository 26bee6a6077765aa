// Package jsonscan finds the wanted fields of a JSON object in one pass over its text and checks the whole of it.
//
// A document is accepted exactly if it is one JSON object by RFC 8259 in valid UTF-8, with nothing but white space
// around it and no more than MaxDepth levels: text that isn't wanted is checked as strictly as text that is, so
// that whether a record is bad doesn't depend on which fields a pipeline uses. A wanted field that occurs twice is
// an error, since parsers disagree on which of the two counts. The result is a pure function of the document.
//
// Scan allocates nothing and copies nothing: the fields it finds point into the document and are valid as long as
// that is. Numbers stay text until somebody asks for a type, so no digit is lost.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays may lie within each other, the outermost included.
const MaxDepth = 512

// Kind is what stands for a field.
type Kind uint8

const (
	Missing Kind = iota // the object has no such field
	Null
	True
	False
	Number // an integer's text: digits, perhaps behind a minus sign
	Float  // a number with a fraction or an exponent
	String
	Array
	Object
)

var kindNames = [...]string{"missing", "null", "true", "false", "an integer", "a number with a fraction or an exponent", "a string", "an array", "an object"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Field is a field's value, pointing into the document.
type Field struct {
	Raw     []byte // a string's content between its quotes; otherwise the value's text
	Kind    Kind
	Escaped bool // the string holds escapes: see Unescape
}

// Scanner scans for one list of fields. It may not be used by several goroutines at once.
type Scanner struct {
	fields []string
	index  map[string]int32
	key    []byte // an unescaped name

	// shape holds the names of the last document's members in their order. Most documents of a source have the
	// same members in the same order, and comparing a name to the one expected is much cheaper than looking it
	// up. It speeds up, it never decides.
	shape []member
}

type member struct {
	text  []byte // the name in quotes with the colon behind it, without white space
	field int32  // -1: not wanted
}

const (
	maxShape     = 64 // members
	maxShapeText = 64 // bytes
	linearFields = 6  // up to here comparing one by one is quicker than a map
)

// New returns a scanner for the given names of the outermost object's members; their order is that of Scan's out.
// It panics if a name is given twice.
func New(fields []string) *Scanner {
	s := &Scanner{fields: slices.Clone(fields), index: make(map[string]int32, len(fields))}
	for i, f := range s.fields {
		if _, ok := s.index[f]; ok {
			panic("jsonscan: field " + f + " is given twice")
		}
		s.index[f] = int32(i)
	}
	return s
}

// Scan checks doc and sets out[i] for each wanted field, to Kind Missing where the object hasn't got it. out has
// room for all fields; after an error its content means nothing. The error is an *Error.
func (s *Scanner) Scan(doc []byte, out []Field) error {
	out = out[:len(s.fields)]
	clear(out)
	i := skipSpace(doc, 0)
	if i == len(doc) {
		return fail(doc, i, badEnd)
	}
	if doc[i] != '{' {
		return fail(doc, i, badDocument)
	}
	i = skipSpace(doc, i+1)
	if i < len(doc) && doc[i] == '}' {
		return trailing(doc, i+1)
	}
	for n := 0; ; n++ {
		var field int32
		if n < len(s.shape) && bytes.HasPrefix(doc[i:], s.shape[n].text) {
			i += len(s.shape[n].text)
			field = s.shape[n].field
		} else {
			var why reason
			if i, field, why = s.name(doc, i, n); why != ok {
				return fail(doc, i, why)
			}
		}
		if i < len(doc) && doc[i] <= ' ' {
			i = skipSpace(doc, i)
		}
		start := i
		end, kind, escaped, why := value(doc, i, 1)
		if why != ok {
			return fail(doc, end, why)
		}
		if field >= 0 {
			f := &out[field]
			if f.Kind != Missing {
				return &Error{Offset: start, Msg: "field " + s.fields[field] + " occurs twice"}
			}
			f.Kind, f.Escaped = kind, escaped
			if kind == String {
				f.Raw = doc[start+1 : end-1 : end-1]
			} else {
				f.Raw = doc[start:end:end]
			}
		}
		i = end
		if i < len(doc) && doc[i] <= ' ' {
			i = skipSpace(doc, i)
		}
		if i == len(doc) {
			return fail(doc, i, badEnd)
		}
		switch doc[i] {
		case ',':
			i++
			if i < len(doc) && doc[i] <= ' ' {
				i = skipSpace(doc, i)
			}
		case '}':
			return trailing(doc, i+1)
		default:
			return fail(doc, i, badAfterMember)
		}
	}
}

// name reads the n-th member's name and the colon behind it.
func (s *Scanner) name(doc []byte, i, n int) (next int, field int32, why reason) {
	end, escaped, why := key(doc, i)
	if why != ok {
		return end, 0, why
	}
	text := doc[i+1 : end-1]
	if escaped {
		var err error
		if s.key, err = Unescape(s.key[:0], text); err != nil {
			text = nil // half of a surrogate pair: it can't be the name of a wanted field
			field = -1
		} else {
			text = s.key
		}
	}
	if text != nil {
		field = s.find(text)
	}
	next, why = colon(doc, end)
	if why != ok {
		return next, 0, why
	}
	if next == end+1 && n < maxShape && next-i <= maxShapeText {
		if n < len(s.shape) {
			m := &s.shape[n]
			m.text, m.field = append(m.text[:0], doc[i:next]...), field
		} else if n == len(s.shape) {
			s.shape = append(s.shape, member{text: bytes.Clone(doc[i:next]), field: field})
		}
	}
	return next, field, ok
}

func (s *Scanner) find(name []byte) int32 {
	if len(s.fields) <= linearFields {
		for i, f := range s.fields {
			if f == string(name) {
				return int32(i)
			}
		}
		return -1
	}
	if i, ok := s.index[string(name)]; ok {
		return i
	}
	return -1
}

func trailing(doc []byte, i int) error {
	if i == len(doc) {
		return nil
	}
	if i = skipSpace(doc, i); i < len(doc) {
		return fail(doc, i, badTrailing)
	}
	return nil
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\r' || doc[i] == '\t') {
		i++
	}
	return i
}

// The functions below read one thing that begins at i. They return where it ends, or the offset of the fault.

// value reads a value; depth is how many objects and arrays it lies in.
func value(doc []byte, i, depth int) (end int, kind Kind, escaped bool, why reason) {
	if i == len(doc) {
		return i, Missing, false, badEnd
	}
	switch c := doc[i]; c {
	case '"':
		end, escaped, why = str(doc, i+1)
		return end, String, escaped, why
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		end, kind, why = number(doc, i)
		return end, kind, false, why
	case '{':
		end, why = object(doc, i+1, depth+1)
		return end, Object, false, why
	case '[':
		end, why = array(doc, i+1, depth+1)
		return end, Array, false, why
	case 't':
		end, why = literal(doc, i, "true")
		return end, True, false, why
	case 'f':
		end, why = literal(doc, i, "false")
		return end, False, false, why
	case 'n':
		end, why = literal(doc, i, "null")
		return end, Null, false, why
	default:
		return i, Missing, false, badValue
	}
}

func literal(doc []byte, i int, want string) (int, reason) {
	if len(doc)-i >= len(want) && string(doc[i:i+len(want)]) == want {
		return i + len(want), ok
	}
	for j := range len(want) {
		if i+j == len(doc) {
			return i + j, badEnd
		}
		if doc[i+j] != want[j] {
			return i + j, badLiteral
		}
	}
	panic("jsonscan: a literal that differs nowhere")
}

func number(doc []byte, i int) (int, Kind, reason) {
	if doc[i] == '-' {
		i++
	}
	if i == len(doc) {
		return i, Missing, badEnd
	}
	switch c := doc[i]; {
	case c == '0':
		i++
	case '1' <= c && c <= '9':
		i = digits(doc, i+1)
	default:
		return i, Missing, badNumber
	}
	if i == len(doc) || doc[i] != '.' && doc[i]|0x20 != 'e' {
		return i, Number, ok
	}
	if doc[i] == '.' {
		first := i + 1
		if i = digits(doc, first); i == first {
			return numberFault(doc, i)
		}
	}
	if i < len(doc) && doc[i]|0x20 == 'e' {
		i++
		if i < len(doc) && (doc[i] == '+' || doc[i] == '-') {
			i++
		}
		first := i
		if i = digits(doc, first); i == first {
			return numberFault(doc, i)
		}
	}
	return i, Float, ok
}

func numberFault(doc []byte, i int) (int, Kind, reason) {
	if i == len(doc) {
		return i, Missing, badEnd
	}
	return i, Missing, badNumber
}

func digits(doc []byte, i int) int {
	for i < len(doc) && doc[i]-'0' <= 9 {
		i++
	}
	return i
}

func array(doc []byte, i, depth int) (int, reason) {
	if depth > MaxDepth {
		return i - 1, tooDeep
	}
	i = skipSpace(doc, i)
	if i < len(doc) && doc[i] == ']' {
		return i + 1, ok
	}
	for {
		end, _, _, why := value(doc, i, depth)
		if why != ok {
			return end, why
		}
		i = skipSpace(doc, end)
		if i == len(doc) {
			return i, badEnd
		}
		switch doc[i] {
		case ',':
			i = skipSpace(doc, i+1)
		case ']':
			return i + 1, ok
		default:
			return i, badAfterElement
		}
	}
}

func object(doc []byte, i, depth int) (int, reason) {
	if depth > MaxDepth {
		return i - 1, tooDeep
	}
	i = skipSpace(doc, i)
	if i < len(doc) && doc[i] == '}' {
		return i + 1, ok
	}
	for {
		end, _, why := key(doc, i)
		if why != ok {
			return end, why
		}
		if i, why = colon(doc, end); why != ok {
			return i, why
		}
		end, _, _, why = value(doc, skipSpace(doc, i), depth)
		if why != ok {
			return end, why
		}
		i = skipSpace(doc, end)
		if i == len(doc) {
			return i, badEnd
		}
		switch doc[i] {
		case ',':
			i = skipSpace(doc, i+1)
		case '}':
			return i + 1, ok
		default:
			return i, badAfterMember
		}
	}
}

func key(doc []byte, i int) (end int, escaped bool, why reason) {
	if i == len(doc) {
		return i, false, badEnd
	}
	if doc[i] != '"' {
		return i, false, badName
	}
	return str(doc, i+1)
}

func colon(doc []byte, i int) (int, reason) {
	i = skipSpace(doc, i)
	if i == len(doc) {
		return i, badEnd
	}
	if doc[i] != ':' {
		return i, badColon
	}
	return i + 1, ok
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str reads a string whose content begins at i, up to and with its closing quote.
func str(doc []byte, i int) (end int, escaped bool, why reason) {
	for {
		// Eight bytes at a time up to the first that is a quote, a backslash, a control character or not ASCII.
		// A borrow of the subtractions spoils only bytes above that one.
		for i+8 <= len(doc) {
			x := binary.LittleEndian.Uint64(doc[i:])
			q, b := x^(ones*'"'), x^(ones*'\\')
			hit := ((q-ones)&^q | (b-ones)&^b | (x-ones*' ')&^x | x) & highs
			if hit != 0 {
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
			i += 8
		}
		for i < len(doc) && plain[doc[i]] {
			i++
		}
		if i == len(doc) {
			return i, escaped, badEnd
		}
		switch c := doc[i]; {
		case c == '"':
			return i + 1, escaped, ok
		case c == '\\':
			escaped = true
			if i, why = escape(doc, i+1); why != ok {
				return i, escaped, why
			}
		case c < ' ':
			return i, escaped, badControl
		default:
			r, size := utf8.DecodeRune(doc[i:])
			if r == utf8.RuneError && size <= 1 {
				return i, escaped, badUTF8
			}
			i += size
		}
	}
}

// plain are the bytes that stand for themselves in a string and are characters of their own.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// escape reads what follows a backslash.
func escape(doc []byte, i int) (int, reason) {
	if i == len(doc) {
		return i, badEnd
	}
	switch doc[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, ok
	case 'u':
		for j := i + 1; j < i+5; j++ {
			if j == len(doc) {
				return j, badEnd
			}
			if unhex(doc[j]) < 0 {
				return j, badEscape
			}
		}
		return i + 5, ok
	default:
		return i, badEscape
	}
}

func unhex(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	default:
		return -1
	}
}
