package jsonscan

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Error is a fault of a document.
type Error struct {
	Offset int // bytes before the fault
	Msg    string
}

func (e *Error) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Msg) }

// reason is why a document is refused.
type reason uint8

const (
	ok reason = iota
	badEnd
	badDocument
	badName
	badColon
	badValue
	badLiteral
	badNumber
	badAfterMember
	badAfterElement
	badTrailing
	badControl
	badUTF8
	badEscape
	tooDeep
)

var reasonTexts = [...]string{
	badDocument:     "where an object must begin",
	badName:         "where a name in quotes is due",
	badColon:        "after a name, where a colon is due",
	badValue:        "where a value is due",
	badLiteral:      "in a word: only true, false and null are words",
	badNumber:       "in a number",
	badAfterMember:  "after an object's member",
	badAfterElement: "after an array's element",
	badTrailing:     "after the object",
	badControl:      "in a string: it must be escaped",
	badEscape:       "in an escape",
}

func fail(doc []byte, i int, why reason) error {
	switch why {
	case badEnd:
		return &Error{Offset: i, Msg: "the text ends too early"}
	case badUTF8:
		return &Error{Offset: i, Msg: fmt.Sprintf("byte 0x%02x is not UTF-8", doc[i])}
	case tooDeep:
		return &Error{Offset: i, Msg: fmt.Sprintf("more than %d levels of objects and arrays", MaxDepth)}
	}
	r, size := utf8.DecodeRune(doc[i:])
	if r == utf8.RuneError && size == 1 {
		return &Error{Offset: i, Msg: fmt.Sprintf("invalid byte 0x%02x %s", doc[i], reasonTexts[why])}
	}
	return &Error{Offset: i, Msg: fmt.Sprintf("invalid character %q %s", r, reasonTexts[why])}
}

var errSurrogate = errors.New("an escape for half of a surrogate pair stands for no character")

// Unescape appends to dst what the content of an accepted string stands for. A lone half of a surrogate pair has no
// form in UTF-8 and is an error, never a replacement character.
func Unescape(dst, raw []byte) ([]byte, error) {
	for i := 0; i < len(raw); {
		n := bytes.IndexByte(raw[i:], '\\')
		if n < 0 {
			return append(dst, raw[i:]...), nil
		}
		dst = append(dst, raw[i:i+n]...)
		if i += n + 1; i == len(raw) {
			return dst, &Error{Offset: i, Msg: "the text ends within an escape"}
		}
		c := raw[i]
		i++
		switch c {
		case '"', '\\', '/':
			dst = append(dst, c)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(raw[i:])
			if r < 0 {
				return dst, &Error{Offset: i, Msg: "four hexadecimal digits are due"}
			}
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if len(raw)-i >= 6 && raw[i] == '\\' && raw[i+1] == 'u' {
					low = hex4(raw[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return dst, fmt.Errorf("offset %d: %w", i-6, errSurrogate)
				}
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			return dst, &Error{Offset: i - 1, Msg: fmt.Sprintf("invalid character %q in an escape", c)}
		}
	}
	return dst, nil
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		h := unhex(c)
		if h < 0 {
			return -1
		}
		r = r<<4 | h
	}
	return r
}

// ParseInt reads an integer's text: the Raw of Kind Number, or the same form from elsewhere. ok is false for anything
// else and for what int64 can't hold.
func ParseInt(raw []byte) (n int64, ok bool) {
	digits := raw
	neg := len(digits) > 0 && digits[0] == '-'
	if neg {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var u uint64 // 19 digits stay below 2^64
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		} else {
			u = u*10 + uint64(c)
		}
	}
	switch {
	case !neg && u <= math.MaxInt64:
		return int64(u), true
	case neg && u <= 1<<63:
		return -int64(u), true
	default:
		return 0, false
	}
}

// ParseFloat reads a number's text, rounded to the nearest float64. ok is false for what is no number and for what
// would be infinite.
func ParseFloat(raw []byte) (f float64, ok bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
}

// Elements passes the elements of an array to yield, in order, until it returns false. raw is the Raw of Kind Array
// of an accepted document; anything else panics.
func Elements(raw []byte, yield func(Field) bool) {
	walk(raw, '[', ']', func(i int) int {
		f, end := accepted(raw, i)
		if !yield(f) {
			return -1
		}
		return end
	})
}

// Members passes the members of an object to yield, in order and repeated names included, until it returns false.
// raw is the Raw of Kind Object of an accepted document, or the whole of it; anything else panics.
func Members(raw []byte, yield func(name, value Field) bool) {
	walk(raw, '{', '}', func(i int) int {
		name, end := accepted(raw, i)
		f, end := accepted(raw, skipSpace(raw, skipSpace(raw, end)+1))
		if !yield(name, f) {
			return -1
		}
		return end
	})
}

// walk calls one at the beginning of each item; one returns where the item ends, or -1 to stop.
func walk(raw []byte, open, closing byte, one func(i int) int) {
	i := skipSpace(raw, 0)
	if i == len(raw) || raw[i] != open {
		panic(fmt.Sprintf("jsonscan: %q doesn't begin with %q", raw, open))
	}
	if i = skipSpace(raw, i+1); raw[i] == closing {
		return
	}
	for {
		if i = one(i); i < 0 {
			return
		}
		if i = skipSpace(raw, i); raw[i] == closing {
			return
		}
		i = skipSpace(raw, i+1)
	}
}

func accepted(raw []byte, i int) (Field, int) {
	end, kind, escaped, why := value(raw, i, 0)
	if why != ok {
		panic("jsonscan: a document that was not accepted: " + fail(raw, end, why).Error())
	}
	if kind == String {
		return Field{Raw: raw[i+1 : end-1 : end-1], Kind: kind, Escaped: escaped}, end
	}
	return Field{Raw: raw[i:end:end], Kind: kind}, end
}
