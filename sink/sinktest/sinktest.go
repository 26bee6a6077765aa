// Package sinktest is the conformance suite of sinks: whoever writes one runs Run on it. Memory is a target to test pipelines with.
package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// Target is one place outside, empty when the suite gets it. It outlives the sinks that write to it.
type Target interface {
	// Open returns a sink as a process makes it that has just started. The suite may never close it: that is a crash.
	Open() (sink.Sink, error)
	// Records lists what readers find, in the order of batches and, within a batch, of records with the same key. Offsets aren't
	// compared.
	Records(ctx context.Context) ([]sink.Record, error)
}

// Option says what a kind of target doesn't do.
type Option func(*suite)

// ValuesOnly is for targets that hold nothing of a record but its value, which is text of one line.
func ValuesOnly() Option { return func(s *suite) { s.valuesOnly = true } }

// Run tests the sinks of the targets that newTarget returns.
func Run(t *testing.T, newTarget func(t *testing.T) Target, opts ...Option) {
	for _, c := range []struct {
		name string
		f    func(*suite)
	}{
		{"an empty target has no progress", empty},
		{"what is prepared isn't seen, what is committed is", visible},
		{"an abort leaves nothing", aborted},
		{"a crash between any two calls", crashes},
		{"a batch of many records", many},
		{"records as they are", exact},
		{"a zombie changes nothing", zombie},
		{"a zombie that claims again gives up", deposed},
		{"forget", forget},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			s := &suite{T: t, ctx: ctx, target: newTarget(t)}
			for _, o := range opts {
				o(s)
			}
			c.f(s)
		})
	}
}

type suite struct {
	*testing.T
	ctx    context.Context
	target Target

	valuesOnly bool
}

func (s *suite) open() sink.Sink {
	s.Helper()
	k, err := s.target.Open()
	if err != nil {
		s.Fatal(err)
	}
	return k
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// claim claims the target and checks what it says of itself.
func (s *suite) claim(k sink.Sink, epoch batch.Epoch, txid batch.Txid, chain uint64) {
	s.Helper()
	p, err := k.Claim(s.ctx, epoch)
	s.ok(err)
	if want := (sink.Progress{Txid: txid, Epoch: epoch, Chain: chain}); p != want {
		s.Fatalf("after the claim: %+v, want %+v", p, want)
	}
}

// output is the output of a batch: one record for each value.
func output(txid batch.Txid, epoch batch.Epoch, values ...string) *sink.Output {
	out := &sink.Output{Txid: txid, Epoch: epoch, Chain: chainOf(txid), Time: time.UnixMilli(1_700_000_000_000).UTC(), Count: int64(len(values))}
	var recs []sink.Record
	for i, v := range values {
		recs = append(recs, sink.Record{Offset: int64(i), Timestamp: sink.NoTimestamp, Key: []byte("k"), Value: []byte(v)})
	}
	out.Parts = []sink.Part{{Partition: batch.Partition{Source: "in", Topic: "t"}, Records: recs}}
	return out
}

func chainOf(txid batch.Txid) uint64 { return 0xfeed_0000_0000_0000 | uint64(txid) }

func (s *suite) deliver(k sink.Sink, out *sink.Output) {
	s.Helper()
	s.ok(k.Prepare(s.ctx, out))
	s.ok(k.Commit(s.ctx))
}

// sees compares the values that readers find.
func (s *suite) sees(values ...string) {
	s.Helper()
	recs, err := s.target.Records(s.ctx)
	s.ok(err)
	var got []string
	for i := range recs {
		got = append(got, string(recs[i].Value))
	}
	if fmt.Sprint(got) != fmt.Sprint(values) {
		s.Fatalf("readers find %d records, %.200q …, want %d, %.200q …", len(got), fmt.Sprint(got), len(values), fmt.Sprint(values))
	}
}

func empty(s *suite) {
	k := s.open()
	p, err := k.Progress(s.ctx)
	s.ok(err)
	if p != (sink.Progress{}) {
		s.Fatalf("progress %+v", p)
	}
	s.claim(k, 1, 0, 0)
	s.sees()
	s.ok(k.Close(s.ctx))
}

func visible(s *suite) {
	k := s.open()
	s.claim(k, 1, 0, 0)
	s.ok(k.Prepare(s.ctx, output(1, 1, "a", "b")))
	s.sees()
	s.ok(k.Commit(s.ctx))
	s.sees("a", "b")
	s.deliver(k, output(4, 1, "c"))
	s.sees("a", "b", "c")
	s.ok(k.Close(s.ctx))
	next := s.open()
	p, err := next.Progress(s.ctx)
	s.ok(err)
	if want := (sink.Progress{Txid: 4, Epoch: 1, Chain: chainOf(4)}); p != want {
		s.Fatalf("progress %+v, want %+v", p, want)
	}
	s.claim(next, 2, 4, chainOf(4))
	s.deliver(next, output(5, 2, "d"))
	s.sees("a", "b", "c", "d")
	s.ok(next.Close(s.ctx))
}

func aborted(s *suite) {
	k := s.open()
	s.claim(k, 1, 0, 0)
	s.ok(k.Prepare(s.ctx, output(1, 1, "x")))
	s.ok(k.Abort(s.ctx))
	s.sees()
	s.claim(k, 1, 0, 0) // by the same process
	s.deliver(k, output(1, 1, "a"))
	s.ok(k.Prepare(s.ctx, output(2, 1, "y")))
	s.ok(k.Abort(s.ctx))
	s.deliver(k, output(2, 1, "b"))
	s.sees("a", "b")
	s.ok(k.Close(s.ctx))
}

// crashes drops the sink, and with it the process, after each call.
func crashes(s *suite) {
	var want []string
	txid, epoch := batch.Txid(0), batch.Epoch(0)
	for range 2 {
		for after := range 4 {
			value := fmt.Sprintf("%d", txid+1)
			calls := []func(k sink.Sink){
				func(k sink.Sink) {
					if _, err := k.Progress(s.ctx); err != nil {
						s.Fatal(err)
					}
				},
				func(k sink.Sink) { epoch++; s.claim(k, epoch, txid, ifAny(txid)) },
				func(k sink.Sink) { s.ok(k.Prepare(s.ctx, output(txid+1, epoch, value))) },
				func(k sink.Sink) {
					s.ok(k.Commit(s.ctx))
					txid++
					want = append(want, value)
				},
			}
			k := s.open()
			for _, c := range calls[:after+1] {
				c(k)
			}
		}
		epoch++
		s.claim(s.open(), epoch, txid, ifAny(txid))
		s.sees(want...)
	}
}

func ifAny(txid batch.Txid) uint64 {
	if txid == 0 {
		return 0
	}
	return chainOf(txid)
}

func many(s *suite) {
	k := s.open()
	s.claim(k, 1, 0, 0)
	var values []string
	for i := range 20_000 {
		values = append(values, fmt.Sprintf("%06d", i))
	}
	s.deliver(k, output(1, 1, values...))
	s.sees(values...)
	s.ok(k.Close(s.ctx))
}

// exact compares all of the records.
func exact(s *suite) {
	k := s.open()
	s.claim(k, 1, 0, 0)
	out := output(1, 1)
	out.Parts[0].Records = []sink.Record{
		{Timestamp: 1_600_000_000_123, Key: []byte("k"), Value: []byte("v"), Headers: []batch.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{}}, {Key: "n"}}},
		{Timestamp: sink.NoTimestamp, Key: []byte("k"), Value: nil},
		{Timestamp: sink.NoTimestamp, Key: []byte("k"), Value: []byte{}},
		{Timestamp: sink.NoTimestamp, Key: []byte("k"), Value: bytes.Repeat([]byte{0, 255}, 1000)},
	}
	if s.valuesOnly {
		out.Parts[0].Records = []sink.Record{{Value: []byte("é")}, {Value: []byte{}}, {Value: []byte(`{"a":"\n"}`)}, {Value: bytes.Repeat([]byte("x"), 200_000)}}
	}
	out.Count = 4
	s.deliver(k, out)
	got, err := s.target.Records(s.ctx)
	s.ok(err)
	if len(got) != 4 {
		s.Fatalf("%d records", len(got))
	}
	for i := range got {
		want, g := out.Parts[0].Records[i], got[i]
		if want.Timestamp == sink.NoTimestamp && g.Timestamp != sink.NoTimestamp {
			want.Timestamp = out.Time.UnixMilli()
		}
		if s.valuesOnly {
			want, g = sink.Record{Value: want.Value}, sink.Record{Value: g.Value}
		}
		same := want.Timestamp == g.Timestamp && equal(want.Key, g.Key) && equal(want.Value, g.Value) && len(want.Headers) == len(g.Headers)
		for j := 0; same && j < len(want.Headers); j++ {
			same = want.Headers[j].Key == g.Headers[j].Key && bytes.Equal(want.Headers[j].Value, g.Headers[j].Value)
		}
		if !same {
			s.Errorf("record %d: %+v, want %+v", i, g, want)
		}
	}
	s.ok(k.Close(s.ctx))
}

func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func zombie(s *suite) {
	old, now := s.open(), s.open()
	s.claim(old, 1, 0, 0)
	s.deliver(old, output(1, 1, "a"))
	s.ok(old.Prepare(s.ctx, output(2, 1, "zombie")))
	s.claim(now, 2, 1, chainOf(1))
	if err := old.Commit(s.ctx); err == nil {
		s.Fatal("a commit under an epoch that was taken over succeeded")
	}
	s.sees("a")
	s.deliver(now, output(2, 2, "b"))
	s.sees("a", "b")
}

func deposed(s *suite) {
	old, now := s.open(), s.open()
	s.claim(old, 1, 0, 0)
	s.claim(now, 2, 0, 0)
	if err := old.Prepare(s.ctx, output(1, 1, "zombie")); err == nil {
		if err := old.Commit(s.ctx); err == nil {
			s.Fatal("a commit under an epoch that was taken over succeeded")
		}
	}
	_, err := old.Claim(s.ctx, 1)
	if batch.CodeOf(err) != batch.CodeDeposed || batch.KindOf(err) != batch.Permanent {
		s.Fatalf("claimed again under a lower epoch: %v, want a permanent error with code deposed", err)
	}
	// It may have taken something from the other, which then claims it back.
	if err := now.Prepare(s.ctx, output(1, 2, "a")); err != nil {
		s.claim(now, 2, 0, 0)
		s.ok(now.Prepare(s.ctx, output(1, 2, "a")))
	}
	if err := now.Commit(s.ctx); err != nil {
		s.claim(now, 2, 0, 0)
		s.deliver(now, output(1, 2, "a"))
	}
	s.sees("a")
}

func forget(s *suite) {
	k := s.open()
	s.claim(k, 1, 0, 0)
	s.deliver(k, output(7, 1, "a"))
	s.claim(k, 1, 7, chainOf(7))
	s.ok(k.Forget(s.ctx))
	s.claim(s.open(), 2, 0, 0)
	s.sees("a")
}
