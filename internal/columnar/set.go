package columnar

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// Times that nanoseconds of 64 bits can tell: the years 1678 to 2261.
var (
	minTime = time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

var (
	errCut    = errors.New("the record ends within a value")
	errObject = errors.New("a record has no value of its own; name one of its fields with a dot")
	errDeep   = fmt.Errorf("records lie in each other more than %d deep", maxDepth)
)

// slot is one row of a column, as something to set. Setting it ends its being null.
type slot struct {
	c    *vec.Column
	i    int
	text Text
}

func (s slot) due(is string) error {
	return fmt.Errorf("%s where %s is due", is, s.c.Type.Article())
}

func (s slot) null() { s.c.SetNull(s.i) }

func (s slot) set() {
	if s.c.HasNulls() {
		s.c.Null[s.i] = false
	}
}

func (s slot) bool(b bool) error {
	s.set()
	switch s.c.Type.Kind {
	case vec.Bool:
		s.c.Bool[s.i] = b
	case vec.Any:
		s.c.Any[s.i] = value.BoolOf(b)
	default:
		return s.due("a bool")
	}
	return nil
}

func (s slot) int(n int64) error {
	s.set()
	switch s.c.Type.Kind {
	case vec.Int:
		s.c.Int[s.i] = n
	case vec.Any:
		s.c.Any[s.i] = value.IntOf(n)
	case vec.Float:
		const exact = 1 << 53
		if n < -exact || n > exact {
			return fmt.Errorf("%d has more digits than a float holds", n)
		}
		s.c.Float[s.i] = float64(n)
	case vec.Decimal:
		s.c.Dec[s.i] = decimal.FromInt(n)
	case vec.Time:
		return s.time(n, time.Millisecond)
	default:
		return s.due("an int")
	}
	return nil
}

func (s slot) uint(n uint64) error {
	if n <= math.MaxInt64 {
		return s.int(int64(n))
	}
	s.set()
	v := value.UintOf(n)
	switch s.c.Type.Kind {
	case vec.Any:
		s.c.Any[s.i] = v
	case vec.Decimal:
		s.c.Dec[s.i] = v.Decimal()
	case vec.Int:
		return fmt.Errorf("%d is beyond the range of an int", n)
	default:
		return s.due("an int beyond 64 bits")
	}
	return nil
}

func (s slot) float(f float64) error {
	s.set()
	switch s.c.Type.Kind {
	case vec.Float:
		s.c.Float[s.i] = f
	case vec.Any:
		s.c.Any[s.i] = value.FloatOf(f)
	default:
		return s.due("a float")
	}
	return nil
}

func (s slot) decimal(d decimal.Decimal) error {
	s.set()
	switch s.c.Type.Kind {
	case vec.Decimal:
		s.c.Dec[s.i] = d
	case vec.Any:
		s.c.Any[s.i] = value.DecimalOf(d)
	default:
		return s.due("a decimal")
	}
	return nil
}

// time sets n units since 1970.
func (s slot) time(n int64, unit time.Duration) error {
	if n < minTime.UnixNano()/int64(unit) || n >= maxTime.Unix()*(int64(time.Second)/int64(unit)) {
		return fmt.Errorf("a time of %d times %s since 1970 lies outside the years 1678 to 2261", n, unit)
	}
	s.set()
	switch ns := n * int64(unit); s.c.Type.Kind {
	case vec.Time:
		s.c.Int[s.i] = ns
	case vec.Any:
		s.c.Any[s.i] = value.TimeOf(ns)
	default:
		return s.due("a timestamp")
	}
	return nil
}

// str sets a string, which lies in the record's own memory or in an arena.
func (s slot) str(b []byte) error {
	if !utf8.Valid(b) {
		return fmt.Errorf("%.40q is not UTF-8", b)
	}
	s.set()
	switch s.c.Type.Kind {
	case vec.String:
		s.c.Str[s.i] = b
	case vec.Any:
		s.c.Any[s.i] = value.StringOf(vec.Text(b))
	case vec.Decimal, vec.Time:
		return s.text(s.c, s.i, b)
	default:
		return s.due("a string")
	}
	return nil
}

func (s slot) bytes(b []byte) error {
	s.set()
	switch s.c.Type.Kind {
	case vec.Bytes:
		s.c.Str[s.i] = b
	case vec.Any:
		s.c.Any[s.i] = value.BytesOf(b)
	default:
		return s.due("bytes")
	}
	return nil
}

func (s slot) list(vs []value.Value) error {
	s.set()
	if s.c.Type.Kind != vec.Any {
		return s.due("a list")
	}
	s.c.Any[s.i] = value.ListOf(vs)
	return nil
}

// one is a column of a single row, for what becomes part of a list.
type one struct{ col vec.Column }

func (o *one) slot(text Text) slot {
	o.col.Reset(vec.Type{Kind: vec.Any}, 1)
	return slot{c: &o.col, text: text}
}

// node is where a path leads: to a column, to members, or to both.
type node struct {
	name    string
	col     *vec.Column // nil: nothing reads the field itself
	members []*node     // empty: nothing reads within it
}

// tree sorts targets by the records that they lie in.
func tree(targets []Target) *node {
	root := &node{}
	for _, t := range targets {
		at := root
		for name := range strings.SplitSeq(t.Name, ".") {
			at = at.member(name)
		}
		at.col = t.Col
	}
	return root
}

func (n *node) member(name string) *node {
	for _, m := range n.members {
		if m.name == name {
			return m
		}
	}
	m := &node{name: name}
	n.members = append(n.members, m)
	return m
}

// setNull makes all columns at and below n null.
func (n *node) setNull(i int) {
	if n.col != nil {
		n.col.SetNull(i)
	}
	for _, m := range n.members {
		m.setNull(i)
	}
}
