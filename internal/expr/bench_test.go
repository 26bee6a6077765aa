package expr

import (
	"fmt"
	"testing"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// benchRows is a chunk of 4,096 rows: delay (int, some null), distance (int), carrier (string), any (dynamic ints),
// ratio (float), line (string of six words).
func benchRows() (*Scope, *vec.Rows) {
	const n = 4096
	s := NewScope()
	in := &vec.Rows{N: n}
	add := func(name string, t Type, fill func(c *vec.Column, i int)) {
		c := new(vec.Column)
		c.Reset(t.Type, 0)
		for i := range n {
			fill(c, i)
		}
		s.Set(name, Field{t, len(in.Cols)})
		in.Cols = append(in.Cols, c)
	}
	state := uint64(1)
	next := func(n uint64) int64 {
		state = state*6364136223846793005 + 1442695040888963407
		return int64(state >> 33 % n)
	}
	add("delay", Int, func(c *vec.Column, i int) {
		if i%50 == 0 {
			c.AppendNull()
			return
		}
		c.AppendInt(next(100) - 20)
	})
	add("distance", Int, func(c *vec.Column, _ int) { c.AppendInt(next(3000)) })
	add("carrier", String, func(c *vec.Column, _ int) { c.AppendStr([]byte([]string{"UA", "AA", "DL", "B6"}[next(4)])) })
	add("any", Any, func(c *vec.Column, _ int) { c.AppendAny(value.IntOf(next(100))) })
	add("ratio", Float, func(c *vec.Column, _ int) { c.AppendFloat(float64(next(1000)) / 1000) })
	add("line", String, func(c *vec.Column, i int) { c.AppendStr(fmt.Appendf(nil, "The quick brown %d fox jumps", i)) })
	return s, in
}

func BenchmarkFilter(b *testing.B) {
	for _, src := range []string{
		`delay > 15 && distance > 500 && carrier == "UA"`,
		`distance > 500 && ratio < 0.5 && distance <= 2500`,
		`delay != nil`,
		`any > 15`,
		`carrier in ["UA", "AA"]`,
	} {
		b.Run(src, func(b *testing.B) {
			s, in := benchRows()
			e, err := Parse(src)
			if err != nil {
				b.Fatal(err)
			}
			p, err := CompileFilter(e, s)
			if err != nil {
				b.Fatal(err)
			}
			var ctx Context
			var sel []int32
			b.ReportAllocs()
			for b.Loop() {
				sel = p.Filter(&ctx, in, nil, sel[:0])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(in.N), "ns/row")
		})
	}
}

func BenchmarkEval(b *testing.B) {
	for _, src := range []string{
		`distance * 2 + 1`,
		`ratio * 2.5 - 1.0`,
		`lower(line)`,
		`split(lower(line), " ")`,
		`delay ?? 0`,
		`delay > 0 ? carrier : "none"`,
		`any + 1`,
		`abs(any)`,
	} {
		b.Run(src, func(b *testing.B) {
			s, in := benchRows()
			e, err := Parse(src)
			if err != nil {
				b.Fatal(err)
			}
			p, err := Compile(e, s)
			if err != nil {
				b.Fatal(err)
			}
			var ctx Context
			var out vec.Column
			p.Eval(&ctx, in, nil, &out)
			b.ReportAllocs()
			for b.Loop() {
				p.Eval(&ctx, in, nil, &out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(in.N), "ns/row")
		})
	}
}
