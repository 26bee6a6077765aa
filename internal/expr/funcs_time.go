package expr

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

func init() {
	part := func(name string, f func(t time.Time) int) *function {
		return &function{name: name, overloads: []overload{{params: params(tTime), result: tInt, run: map1(ints, ints,
			func(ns int64) (int64, error) { return int64(f(time.Unix(0, ns).UTC())), nil })}}}
	}
	register(
		part("year", time.Time.Year),
		part("month", func(t time.Time) int { return int(t.Month()) }),
		part("day", time.Time.Day),
		part("hour", time.Time.Hour),
		part("minute", time.Time.Minute),
		part("second", time.Time.Second),
		part("weekday", func(t time.Time) int { return (int(t.Weekday())+6)%7 + 1 }),
		&function{name: "date", overloads: []overload{{params: params(tTime), result: tString, run: dates}}},
		&function{name: "unix_ms", overloads: []overload{{params: params(tTime), result: tInt, run: map1(ints, ints,
			func(ns int64) (int64, error) { return floorDiv(ns, int64(time.Millisecond)), nil })}}},
		&function{name: "truncate", overloads: []overload{{params: params(tTime, tString), result: tTime, constant: 1, prepare: prepareTruncate}}},
		&function{name: "add", overloads: []overload{{params: params(tTime, tString), result: tTime, constant: 1, prepare: prepareAdd}}},
		&function{name: "now", impure: true, overloads: []overload{{result: tTime, run: now}}},
		&function{name: "rand", impure: true, overloads: []overload{{result: tFloat, run: random}}},
		&function{name: "uuid", impure: true, overloads: []overload{{result: tString, run: uuid}}},
	)
}

var errTime = errors.New("timestamps reach from 1677-09-21T00:12:43Z to 2262-04-11T23:47:16Z")

// ParseTime reads an RFC 3339 timestamp as nanoseconds since 1970. It fails on a time that int64 nanoseconds don't
// reach.
func ParseTime(s []byte) (int64, error) {
	t, err := time.Parse(time.RFC3339Nano, vec.Text(s))
	// time.Parse also takes a comma before the fraction, and one digit for the hour.
	if err != nil || strings.IndexByte(vec.Text(s), ',') >= 0 || len(s) < len("2006-01-02T15:04:05Z") {
		return 0, fmt.Errorf("%s is no timestamp such as 2013-01-01T10:00:00Z", quote(value.StringOf(vec.Text(s))))
	}
	ns := t.UnixNano()
	if back := time.Unix(0, ns); !back.Equal(t) {
		return 0, errTime
	}
	return ns, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// ParseDuration reads a positive duration: Go's notation, with "7d" for days besides.
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no duration such as 15m, 1h or 7d", s)
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, atoi := strconv.ParseInt(days, 10, 32)
		if atoi != nil || n > math.MaxInt64/int64(24*time.Hour) {
			return 0, bad
		}
		d, err = time.Duration(n)*24*time.Hour, nil
	}
	if err != nil {
		return 0, bad
	}
	return d, nil
}

func prepareTruncate(v value.Value) (loop, error) {
	d, err := ParseDuration(v.Str())
	if err != nil {
		return nil, err
	}
	if d <= 0 {
		return nil, fmt.Errorf("the duration %s is not positive", v.Str())
	}
	return map1(ints, ints, func(ns int64) (int64, error) {
		down := ns - floorMod(ns, int64(d))
		if down > ns {
			return 0, errTime
		}
		return down, nil
	}), nil
}

func floorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}

func prepareAdd(v value.Value) (loop, error) {
	d, err := ParseDuration(v.Str())
	if err != nil {
		return nil, err
	}
	return map1(ints, ints, func(ns int64) (int64, error) {
		sum, ok := addInt(ns, int64(d))
		if !ok {
			return 0, errTime
		}
		return sum, nil
	}), nil
}

func dates(_ *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	for _, r := range sel {
		out.Str[r] = m.arena.Take(time.Unix(0, args[0].Int[r]).UTC().AppendFormat(m.arena.Tail(10), time.DateOnly))
	}
}

// now is the batch's clock: the same at every row and in every replay.
func now(_ *callKernel, m *machine, _ []*vec.Column, sel []int32, out *vec.Column) {
	ns := m.ctx.Batch.Time.UnixNano()
	for _, r := range sel {
		out.Int[r] = ns
	}
}

// uuid draws a version 4 UUID for each record. Its halves come of two sequences: one has 64 bits of state, too few to keep billions of
// records apart.
func uuid(c *callKernel, m *machine, _ []*vec.Column, sel []int32, out *vec.Column) {
	step := m.ctx.Step + "#uuid" + strconv.Itoa(c.site)
	for _, r := range sel {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], m.ctx.Batch.Rand(step+"a", m.ctx.Partition, m.ctx.Offsets[r]).Uint64())
		binary.BigEndian.PutUint64(b[8:], m.ctx.Batch.Rand(step+"b", m.ctx.Partition, m.ctx.Offsets[r]).Uint64())
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		t := hex.AppendEncode(m.arena.Tail(uuidLength), b[:4])
		for _, group := range [...][]byte{b[4:6], b[6:8], b[8:10], b[10:]} {
			t = hex.AppendEncode(append(t, '-'), group)
		}
		out.Str[r] = m.arena.Take(t)
	}
}

const uuidLength = 36

// random draws a number for each record, from the batch's seed, the step, the record's place, and the place of the
// call among those of its expression.
func random(c *callKernel, m *machine, _ []*vec.Column, sel []int32, out *vec.Column) {
	step := m.ctx.Step
	if c.site > 0 {
		step += "#" + strconv.Itoa(c.site)
	}
	for _, r := range sel {
		out.Float[r] = m.ctx.Batch.Rand(step, m.ctx.Partition, m.ctx.Offsets[r]).Float64()
	}
}
