// Package csvscan cuts CSV text (RFC 4180) into records and records into fields.
//
// Where a record ends depends on its text alone, and is defined for faulty records too: Cut never fails, so that one
// bad record doesn't shift the numbers of those behind it. Split then says what is wrong with it. Together they take
// what encoding/csv takes with its defaults, except that a carriage return within quotes stays as it was written.
//
// The separator is the comma. Fields are bytes; nothing is trimmed, and whether an empty field is a null is the
// caller's affair.
package csvscan

import (
	"bytes"
	"fmt"
)

// Cut finds the first record of data. rec is its text without the line end (LF or CRLF), size the bytes that it takes
// with it. A size of 0 says that data ends before the record does; at the end of the input the rest is then the last
// record: see Rest. A line without a character in it is a record with empty text; readers of files pass over it.
func Cut(data []byte) (rec []byte, size int) {
	lf := bytes.IndexByte(data, '\n')
	if lf < 0 {
		return nil, 0
	}
	// Without a quote in its first line a record is that line.
	if q := bytes.IndexByte(data[:lf], '"'); q >= 0 {
		if lf = lineEnd(data); lf < 0 {
			return nil, 0
		}
	}
	return Rest(data[:lf]), lf + 1
}

// Rest takes the carriage return off the last record of an input that doesn't end with a line feed.
func Rest(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] == '\r' {
		return data[:n-1]
	}
	return data
}

// lineEnd returns the offset of the first line feed outside quotes, -1 if there is none. Quotes open at a field's
// beginning only.
func lineEnd(data []byte) int {
	for i := 0; ; {
		if i < len(data) && data[i] == '"' {
			for i++; ; i += 2 {
				n := bytes.IndexByte(data[i:], '"')
				if n < 0 || i+n+1 == len(data) {
					return -1 // a closing quote at the very end may turn out to be the first of two
				}
				if i += n; data[i+1] != '"' {
					break
				}
			}
			i++
		}
		for ; ; i++ {
			if i == len(data) {
				return -1
			}
			if data[i] == '\n' {
				return i
			}
			if data[i] == ',' {
				i++
				break
			}
		}
	}
}

// Error is a fault of a record.
type Error struct {
	Offset int // bytes of the record before the fault
	Msg    string
}

func (e *Error) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Msg) }

// Split appends the fields of a record, as Cut returned it, to dst. Fields point into raw, or into scratch if they
// hold doubled quotes; both are handed back, grown if need be, for the next call. It doesn't know how many fields are
// due: see Count.
func Split(raw []byte, dst [][]byte, scratch []byte) (fields [][]byte, newScratch []byte, err error) {
	for i := 0; ; {
		if i < len(raw) && raw[i] == '"' {
			var field []byte
			if field, scratch, i, err = quoted(raw, i, scratch); err != nil {
				return dst, scratch, err
			}
			dst = append(dst, field)
			if i == len(raw) {
				return dst, scratch, nil
			}
			i++ // the comma
			continue
		}
		start := i
		for i < len(raw) && raw[i] != ',' {
			if raw[i] == '"' {
				return dst, scratch, &Error{Offset: i, Msg: "a quote inside a field that doesn't begin with one"}
			}
			if raw[i] == '\n' {
				return dst, scratch, &Error{Offset: i, Msg: "a line feed outside quotes"}
			}
			i++
		}
		dst = append(dst, raw[start:i:i])
		if i == len(raw) {
			return dst, scratch, nil
		}
		i++
	}
}

// quoted reads the field whose opening quote is at i, and returns where the comma behind it or the end is.
func quoted(raw []byte, i int, scratch []byte) (field, newScratch []byte, end int, err error) {
	open := i
	start := i + 1
	held := len(scratch) // what scratch holds of this field begins here
	for i = start; ; {
		n := bytes.IndexByte(raw[i:], '"')
		if n < 0 {
			return nil, scratch, 0, &Error{Offset: open, Msg: "this quote is never closed"}
		}
		i += n
		if i+1 < len(raw) && raw[i+1] == '"' {
			scratch = append(scratch, raw[start:i+1]...)
			i += 2
			start = i
			continue
		}
		field = raw[start:i:i]
		if len(scratch) > held {
			scratch = append(scratch, field...)
			field = scratch[held:len(scratch):len(scratch)]
		}
		if i++; i < len(raw) && raw[i] != ',' {
			return nil, scratch, 0, &Error{Offset: i, Msg: "text between a closing quote and the comma"}
		}
		return field, scratch, i, nil
	}
}

// Count holds the number of a record's fields against that of the header line.
func Count(fields [][]byte, columns int) error {
	if len(fields) == columns {
		return nil
	}
	return fmt.Errorf("%d fields where the header line has %d", len(fields), columns)
}
