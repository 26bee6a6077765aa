// Package enc writes and reads the byte layouts of the store. What is appended is read back equal; garbage gives
// an error and never a panic or an allocation beyond the input's length.
//
// Integers are LEB128 varints (encoding/binary), byte strings are led by their length. The Key functions encode
// strings so that the bytes sort as the strings do and no encoding is the prefix of another.
package enc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrMalformed is wrapped by every error of a Reader.
var ErrMalformed = errors.New("malformed encoding")

// AppendUvarint appends v in 1 to 10 bytes.
func AppendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

// AppendVarint appends v zig-zag encoded, in 1 to 10 bytes.
func AppendVarint(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }

// AppendUint64 appends v in 8 bytes, big endian: the order of the bytes is the order of the numbers.
func AppendUint64(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }

// AppendBool appends one byte.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendBytes appends b with its length. Nil and empty are the same.
func AppendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// AppendNullable appends b so that nil is read back as nil, and empty as empty.
func AppendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b))+1)
	return append(dst, b...)
}

// AppendString appends s with its length.
func AppendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// AppendTime appends t to the nanosecond; the location is lost.
func AppendTime(dst []byte, t time.Time) []byte {
	dst = binary.AppendVarint(dst, t.Unix())
	return binary.AppendUvarint(dst, uint64(t.Nanosecond()))
}

// AppendKeyString appends s escaped: 0x00 becomes 0x00 0xff, and 0x00 0x01 ends it.
func AppendKeyString(dst []byte, s string) []byte {
	for i := range len(s) {
		if dst = append(dst, s[i]); s[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}

// AppendKeyInt32 appends v in 4 bytes that sort as the numbers do.
func AppendKeyInt32(dst []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(v)^1<<31)
}

// PrefixEnd returns the smallest byte string above every one that begins with prefix; nil if there is none.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

// Reader takes an encoding apart. After the first error every method returns zero values; Err or Done tells.
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a Reader of b. Byte strings that it returns refer to b.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Done returns the first error, or one if bytes are left.
func (r *Reader) Done() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes left over", len(r.b))
	}
	return r.err
}

// Rest returns what hasn't been read.
func (r *Reader) Rest() []byte { return r.b }

func (r *Reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	r.b = nil
}

// Uvarint reads what AppendUvarint wrote.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("no unsigned varint")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Varint reads what AppendVarint wrote.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("no varint")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Int32 reads a varint within int32.
func (r *Reader) Int32() int32 {
	v := r.Varint()
	if int64(int32(v)) != v {
		r.fail("%d is beyond 32 bits", v)
		return 0
	}
	return int32(v)
}

// Uint32 reads an unsigned varint within uint32.
func (r *Reader) Uint32() uint32 {
	v := r.Uvarint()
	if uint64(uint32(v)) != v {
		r.fail("%d is beyond 32 bits", v)
		return 0
	}
	return uint32(v)
}

// Uint64 reads what AppendUint64 wrote.
func (r *Reader) Uint64() uint64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	b := r.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// Bool reads what AppendBool wrote.
func (r *Reader) Bool() bool {
	switch r.Byte() {
	case 0:
		return false
	case 1:
		return r.err == nil
	}
	r.fail("no boolean")
	return false
}

// Bytes reads what AppendBytes wrote; never nil without an error.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if r.err != nil {
		return nil
	}
	return r.take(n)
}

// Nullable reads what AppendNullable wrote.
func (r *Reader) Nullable() []byte {
	n := r.Uvarint()
	if r.err != nil || n == 0 {
		return nil
	}
	return r.take(n - 1)
}

// String reads what AppendString wrote.
func (r *Reader) String() string { return string(r.Bytes()) }

// Time reads what AppendTime wrote, in UTC.
func (r *Reader) Time() time.Time {
	sec, nsec := r.Varint(), r.Uvarint()
	if nsec >= 1e9 {
		r.fail("%d nanoseconds", nsec)
	}
	if r.err != nil {
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec)).UTC()
}

// Count reads the number of elements that follow, each of at least size bytes (1 or more): a count that the rest
// can't hold is an error, so that a caller may allocate by it.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if r.err == nil && n > uint64(len(r.b)/size) {
		r.fail("%d elements announced, %d bytes left", n, len(r.b))
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// KeyString reads what AppendKeyString wrote.
func (r *Reader) KeyString() string {
	var s []byte
	for i := 0; i < len(r.b); i++ {
		if r.b[i] != 0 {
			s = append(s, r.b[i])
			continue
		}
		if i+1 == len(r.b) {
			break
		}
		switch i++; r.b[i] {
		case 0xff:
			s = append(s, 0)
		case 1:
			r.b = r.b[i+1:]
			return string(s)
		default:
			r.fail("byte %#x after 0x00 in a string of a key", r.b[i])
			return ""
		}
	}
	r.fail("a string of a key has no end")
	return ""
}

// KeyInt32 reads what AppendKeyInt32 wrote.
func (r *Reader) KeyInt32() int32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b) ^ 1<<31)
}

func (r *Reader) take(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.b)) {
		r.fail("%d bytes announced, %d left", n, len(r.b))
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}
