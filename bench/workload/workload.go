// Package workload makes the records of the benchmarks and knows what must come out of them.
//
// A Spec gives the same bytes in the same order on every machine, so that figures of different programs, and of
// different days, are about the same work. What a program says it has counted is held against Expected, key by key.
package workload

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
)

// Kind is what a record is.
type Kind string

const (
	// Views are page views, JSON objects of 64 to 80 bytes: {"user":"u00012","page":"/shop/item/p077","ms":1764600000001,"n":3}.
	Views Kind = "views"
	// Lines are lines of ten words.
	Lines Kind = "lines"
)

const (
	// DefaultUsers is how many users there are.
	DefaultUsers = 100_000
	// WordsPerLine is how many words a line of Lines has.
	WordsPerLine = 10
	// Vocabulary is how many different words there are.
	Vocabulary = 10_000

	exponent = 1.1 // Zipf's
	pages    = 1000
	maxN     = 9
	// countries is how many a table of users has.
	countries = 200
	// firstMilli is the time of the first view; each is one millisecond later than the one before.
	firstMilli = 1_764_600_000_000
)

// Spec says which records there are.
type Spec struct {
	Kind       Kind
	Records    int64
	Partitions int32 // records are dealt to them in turn
	// Users is how many users there may be; 0: DefaultUsers.
	Users int64
	// Uniform deals records to users in equal shares instead of by Zipf's law. The first Users records then have one user each.
	Uniform bool
}

// Topic is a name for the topic that holds exactly these records.
func (s Spec) Topic() string {
	name := fmt.Sprintf("bench-%s-%d-p%d", s.Kind, s.Records, s.Partitions)
	if s.Uniform {
		name += fmt.Sprintf("-uniform%d", s.users())
	} else if s.Users != 0 {
		name += fmt.Sprintf("-zipf%d", s.users())
	}
	return name
}

func (s Spec) users() int64 {
	if s.Users == 0 {
		return DefaultUsers
	}
	return s.Users
}

// Total is what a key comes to.
type Total struct{ Count, Sum int64 }

// Generator makes the records of a Spec one after the other, and adds up what they come to.
type Generator struct {
	spec   Spec
	rng    *rand.Rand
	zipf   *rand.Zipf
	i      int64
	width  int // digits of a user's number
	totals []Total
}

// NewGenerator begins at the first record.
func NewGenerator(s Spec) *Generator {
	keys := s.users()
	if s.Kind == Lines {
		keys = Vocabulary
	}
	rng := rand.New(rand.NewPCG(20260101, 8))
	return &Generator{
		spec: s, rng: rng, zipf: rand.NewZipf(rng, exponent, 1, uint64(keys-1)),
		width: max(len(strconv.FormatInt(keys-1, 10)), 5), totals: make([]Total, keys),
	}
}

// Next appends the next record to dst and names its partition.
func (g *Generator) Next(dst []byte) ([]byte, int32) {
	i := g.i
	g.i++
	part := int32(i % int64(g.spec.Partitions))
	if g.spec.Kind == Lines {
		for w := range WordsPerLine {
			if w > 0 {
				dst = append(dst, ' ')
			}
			word := int64(g.zipf.Uint64())
			g.totals[word].Count++
			dst = g.appendKey(dst, word)
		}
		return dst, part
	}
	user := i % g.spec.users()
	if !g.spec.Uniform {
		user = int64(g.zipf.Uint64())
	}
	n := 1 + g.rng.Int64N(maxN)
	g.totals[user].Count++
	g.totals[user].Sum += n
	dst = append(dst, `{"user":"`...)
	dst = g.appendKey(dst, user)
	dst = append(dst, `","page":"/shop/item/p`...)
	dst = appendPadded(dst, g.rng.Int64N(pages), 3)
	dst = append(dst, `","ms":`...)
	dst = strconv.AppendInt(dst, firstMilli+i, 10)
	dst = append(dst, `,"n":`...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '}'), part
}

func (g *Generator) appendKey(dst []byte, k int64) []byte {
	c := byte('u')
	if g.spec.Kind == Lines {
		c = 'w'
	}
	return appendPadded(append(dst, c), k, g.width)
}

func appendPadded(dst []byte, n int64, width int) []byte {
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], n, 10)
	for range width - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// Expected is what the records made so far must come to.
func (g *Generator) Expected() Expected {
	var c Check
	var key []byte
	for k, t := range g.totals {
		if t.Count > 0 {
			key = g.appendKey(key[:0], int64(k))
			c.Add(string(key), t)
		}
	}
	return c.Expected(g.i)
}

// WriteUsers writes the table of all users that a join looks them up in: CSV with the columns user and country.
func (s Spec) WriteUsers(w io.Writer) error {
	g := NewGenerator(Spec{Kind: Views, Partitions: 1, Users: s.users()})
	b := []byte("user,country\n")
	for u := range s.users() {
		b = append(g.appendKey(b, u), ',', 'c')
		b = append(appendPadded(b, u%countries, 3), '\n')
	}
	_, err := w.Write(b)
	return err
}
