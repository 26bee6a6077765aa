package enc_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/internal/enc"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint64().Draw(t, "u")
		i := rapid.Int64().Draw(t, "i")
		i32 := rapid.Int32().Draw(t, "i32")
		u32 := rapid.Uint32().Draw(t, "u32")
		s := rapid.String().Draw(t, "s")
		p := rapid.SliceOf(rapid.Byte()).Draw(t, "p")
		flag := rapid.Bool().Draw(t, "flag")
		at := time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "sec"), rapid.Int64Range(0, 999999999).Draw(t, "nsec")).UTC()

		var b []byte
		b = enc.AppendUvarint(b, u)
		b = enc.AppendVarint(b, i)
		b = enc.AppendVarint(b, int64(i32))
		b = enc.AppendUvarint(b, uint64(u32))
		b = enc.AppendUint64(b, u)
		b = enc.AppendString(b, s)
		b = enc.AppendBytes(b, p)
		b = enc.AppendNullable(b, nil)
		b = enc.AppendNullable(b, []byte{})
		b = enc.AppendNullable(b, p)
		b = enc.AppendBool(b, flag)
		b = enc.AppendTime(b, at)
		b = enc.AppendTime(b, time.Time{})
		b = enc.AppendKeyString(b, s)
		b = enc.AppendKeyInt32(b, i32)

		r := enc.NewReader(b)
		eq(t, "uvarint", r.Uvarint(), u)
		eq(t, "varint", r.Varint(), i)
		eq(t, "int32", r.Int32(), i32)
		eq(t, "uint32", r.Uint32(), u32)
		eq(t, "uint64", r.Uint64(), u)
		eq(t, "string", r.String(), s)
		eq(t, "bytes", string(r.Bytes()), string(p))
		if got := r.Nullable(); got != nil {
			t.Fatalf("nil came back as %v", got)
		}
		if got := r.Nullable(); got == nil || len(got) != 0 {
			t.Fatalf("empty came back as %v", got)
		}
		if got := r.Nullable(); (got == nil) != (p == nil) || !bytes.Equal(got, p) {
			t.Fatalf("%v came back as %v", p, got)
		}
		eq(t, "bool", r.Bool(), flag)
		eq(t, "time", r.Time(), at)
		eq(t, "zero time", r.Time(), time.Time{})
		eq(t, "key string", r.KeyString(), s)
		eq(t, "key int32", r.KeyInt32(), i32)
		if err := r.Done(); err != nil {
			t.Fatal(err)
		}

		// Whatever is cut off must be missed.
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		r = enc.NewReader(b[:cut])
		readAll(r)
		if err := r.Done(); !errors.Is(err, enc.ErrMalformed) {
			t.Fatalf("cut at %d of %d: %v", cut, len(b), err)
		}
	})
}

func readAll(r *enc.Reader) {
	r.Uvarint()
	r.Varint()
	r.Int32()
	r.Uint32()
	r.Uint64()
	_ = r.String()
	r.Bytes()
	r.Nullable()
	r.Nullable()
	r.Nullable()
	r.Bool()
	r.Time()
	r.Time()
	r.KeyString()
	r.KeyInt32()
}

func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune{0, 1, 2, 'a', 'b', 0xff}))
		s1, s2 := text.Draw(t, "s1"), text.Draw(t, "s2")
		n1, n2 := rapid.Int32().Draw(t, "n1"), rapid.Int32().Draw(t, "n2")
		k1 := enc.AppendKeyInt32(enc.AppendKeyString(nil, s1), n1)
		k2 := enc.AppendKeyInt32(enc.AppendKeyString(nil, s2), n2)
		want := strings.Compare(s1, s2)
		if want == 0 {
			want = cmp(n1, n2)
		}
		if got := bytes.Compare(k1, k2); got != want {
			t.Fatalf("(%q,%d) and (%q,%d) compare as %d, their keys as %d", s1, n1, s2, n2, want, got)
		}
	})
}

func TestPrefixEnd(t *testing.T) {
	for _, c := range []struct{ prefix, end string }{
		{"a", "b"}, {"a\xff", "b"}, {"a\x00", "a\x01"}, {"\xff\xff", ""}, {"", ""}, {"ab\xff\xff", "ac"},
	} {
		if got := string(enc.PrefixEnd([]byte(c.prefix))); got != c.end {
			t.Errorf("PrefixEnd(%q) = %q, want %q", c.prefix, got, c.end)
		}
	}
}

func TestMalformed(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		read func(*enc.Reader)
	}{
		"int32 too large":    {enc.AppendVarint(nil, 1<<31), func(r *enc.Reader) { r.Int32() }},
		"uint32 too large":   {enc.AppendUvarint(nil, 1<<32), func(r *enc.Reader) { r.Uint32() }},
		"boolean":            {[]byte{2}, func(r *enc.Reader) { r.Bool() }},
		"nanoseconds":        {enc.AppendUvarint(enc.AppendVarint(nil, 0), 1e9), func(r *enc.Reader) { r.Time() }},
		"count":              {enc.AppendUvarint(nil, 1<<40), func(r *enc.Reader) { r.Count(1) }},
		"count of wide ones": {append(enc.AppendUvarint(nil, 3), make([]byte, 5)...), func(r *enc.Reader) { r.Count(2) }},
		"left over":          {[]byte{1, 2}, func(r *enc.Reader) { r.Byte() }},
		"unknown escape":     {[]byte{'a', 0, 7}, func(r *enc.Reader) { r.KeyString() }},
		"endless key string": {[]byte{'a', 'b'}, func(r *enc.Reader) { r.KeyString() }},
		"length beyond end":  {enc.AppendUvarint(nil, 1<<63), func(r *enc.Reader) { r.Bytes() }},
	} {
		r := enc.NewReader(c.in)
		c.read(r)
		if err := r.Done(); !errors.Is(err, enc.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{0x80, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		readAll(enc.NewReader(b))
		r := enc.NewReader(b)
		if n := r.Count(3); n > len(b) {
			t.Fatalf("a count of %d in %d bytes", n, len(b))
		}
	})
}

func eq[T comparable](t *rapid.T, what string, got, want T) {
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func cmp(a, b int32) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
