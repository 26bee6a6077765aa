package main

import (
	"fmt"
	"testing"

	"github.com/tridentd/tridentd/bench/workload"
)

func TestScan(t *testing.T) {
	for in, want := range map[string]string{
		`{"user":"u1","page":"/p","ms":12,"n":3}`: "u1 3",
		`{"n":10,"user":"u2"}`:                    "u2 10",
		`{"user":"u1","page":"/p"}`:               "",
		`{"user":"u1","n":3`:                      "",
		`{"user":"u1","n":3}}`:                    "",
		`{"user":"u1","n":}`:                      "",
		`{"user`:                                  "",
		``:                                        "",
	} {
		got := ""
		if user, n, ok := scan([]byte(in)); ok {
			got = fmt.Sprintf("%s %d", user, n)
		}
		if got != want {
			t.Errorf("scan(%s) = %q, want %q", in, got, want)
		}
	}
}

// TestTable counts the benchmark's records, and compares with what is expected of them, twice with one table.
func TestTable(t *testing.T) {
	tb := newTable()
	for range 2 {
		spec := workload.Spec{Kind: workload.Views, Records: 100_000, Partitions: 4}
		g := workload.NewGenerator(spec)
		var v []byte
		for range spec.Records {
			v, _ = g.Next(v[:0])
			user, n, ok := scan(v)
			if !ok {
				t.Fatalf("%q can't be read", v)
			}
			tb.add(user, n)
		}
		tb.sort()
		var c workload.Check
		last := ""
		for i := range tb.entries {
			e := &tb.entries[i]
			key := string(tb.key(e))
			if key <= last {
				t.Fatalf("%q comes behind %q", key, last)
			}
			last = key
			c.Add(key, workload.Total{Count: e.count, Sum: e.sum})
		}
		if got := c.Expected(spec.Records); got != g.Expected() {
			t.Fatalf("%+v, want %+v", got, g.Expected())
		}
		tb.reset()
	}
}
