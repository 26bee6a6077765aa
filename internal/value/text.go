package value

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends v as JSON: ints with all their digits, floats as the shortest text that reads back as the
// same float, NaN and infinities as the strings "NaN", "+Inf", "-Inf", decimals as strings, timestamps as RFC 3339
// in UTC, bytes as base64. Bytes of a string that aren't UTF-8 become U+FFFD.
func AppendJSON(dst []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return append(dst, "null"...)
	case Bool:
		return strconv.AppendBool(dst, v.num != 0)
	case Int:
		return strconv.AppendInt(dst, int64(v.num), 10)
	case Float:
		f := math.Float64frombits(v.num)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return append(appendFloat(append(dst, '"'), f), '"')
		}
		return appendFloat(dst, f)
	case Decimal:
		if v.raw {
			return appendPlain(dst, v)
		}
		return append(appendPlain(append(dst, '"'), v), '"')
	case String:
		if v.raw {
			return append(dst, v.data()...)
		}
		return appendQuoted(dst, v.text())
	case Bytes:
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), v.data())
		return append(dst, '"')
	case Time:
		return append(appendTime(append(dst, '"'), int64(v.num)), '"')
	case List:
		dst = append(dst, '[')
		for i, e := range v.List() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendJSON(dst, e)
		}
		return append(dst, ']')
	default:
		panic("value: unknown " + v.kind.String())
	}
}

// AppendText appends v for tables and CSV: as JSON but without quotes around strings, decimals, timestamps and
// bytes; null is empty.
func AppendText(dst []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return dst
	case Float:
		return appendFloat(dst, math.Float64frombits(v.num))
	case Decimal:
		return appendPlain(dst, v)
	case String:
		return append(dst, v.data()...)
	case Bytes:
		return base64.StdEncoding.AppendEncode(dst, v.data())
	case Time:
		return appendTime(dst, int64(v.num))
	default:
		return AppendJSON(dst, v)
	}
}

func appendPlain(dst []byte, v Value) []byte {
	dst, err := v.Decimal().AppendText(dst)
	if err != nil {
		panic("value: a decimal has no text: " + err.Error())
	}
	return dst
}

func appendTime(dst []byte, nanos int64) []byte {
	return time.Unix(0, nanos).UTC().AppendFormat(dst, time.RFC3339Nano)
}

// appendFloat appends the shortest text that reads back as f, with an exponent below 1e-6 and from 1e21 on. Whole
// numbers from 2^53 on get all their digits: a reader that takes a number without a point for an integer would
// otherwise see zeros in place of digits, and so another number.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "+Inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-Inf"...)
	}
	abs := math.Abs(f)
	switch {
	case abs >= 1<<53 && abs < 1e21:
		return strconv.AppendFloat(dst, f, 'f', 0, 64)
	case abs != 0 && abs < 1e-6 || abs >= 1e21:
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}

const hex = "0123456789abcdef"

// appendQuoted appends s as a JSON string. Only what must be escaped is.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// KeyText writes an encoded key for people: its columns' values, separated by commas.
func KeyText(key []byte) string {
	var b []byte
	for rest := key; len(rest) > 0; {
		v, next, err := DecodeKey(rest)
		if err != nil {
			return fmt.Sprintf("%x", key)
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		if v.IsNull() {
			b = append(b, "null"...)
		} else {
			b = AppendText(b, v)
		}
		rest = next
	}
	return string(b)
}
