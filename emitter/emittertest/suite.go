package emittertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

func testContiguous(t *testing.T, s *Source) {
	want := make([][]string, s.Partitions)
	for i := range want {
		want[i] = fill(t, s, i, 40+3*i)
	}
	b, at := starts(t, s)
	defer b.close()
	for i, p := range b.partitions(s.Partitions) {
		d := b.drain(p, at[p].Next, count(s, 40+3*i), emitter.Limit{Records: 7})
		for j := 1; j < len(d.ranges); j++ {
			if d.ranges[j].Start != d.ranges[j-1].End {
				t.Fatalf("%v follows %v", d.ranges[j], d.ranges[j-1])
			}
		}
		if want[i] == nil {
			continue
		}
		var got []string
		for _, r := range d.all() {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, want[i]) {
			t.Errorf("%v: read %q, appended %q", p, got, want[i])
		}
	}
}

func testReadAgain(t *testing.T, s *Source) {
	fill(t, s, 0, 60)
	b, at := starts(t, s)
	p := b.partitions(s.Partitions)[0]
	d := b.drain(p, at[p].Next, count(s, 60), emitter.Limit{Records: 13})
	for i, r := range d.ranges {
		b.same("before Ack", b.read(r), d.records[i])
	}
	for i, r := range d.ranges {
		b.em.Ack(batch.Txid(i+1), []batch.Range{r})
	}
	for i, v := range slices.Backward(d.ranges) {
		b.same("after Ack", b.read(v), d.records[i])
	}
	b.close()

	last := d.ranges[len(d.ranges)-1].Position()
	b = open(t, s, []batch.Position{last}, false)
	defer b.close()
	for i, r := range d.ranges {
		b.same("after a restart", b.read(r), d.records[i])
	}
}

func testLimits(t *testing.T, s *Source) {
	fill(t, s, 0, 30)
	b, at := starts(t, s)
	defer b.close()
	p := b.partitions(s.Partitions)[0]
	n := count(s, 30)
	all := b.drain(p, at[p].Next, n, emitter.Limit{}).all()
	for _, limit := range []emitter.Limit{{Records: 1}, {Records: 2}, {Bytes: 1}, {Bytes: 40}, {Records: 3, Bytes: 50}, {Records: 1 << 40, Bytes: 1 << 40}} {
		d := b.drain(p, at[p].Next, n, limit)
		b.same("under a limit", d.all(), all)
	}
}

func testReplan(t *testing.T, s *Source) {
	fill(t, s, 0, 50)
	b, at := starts(t, s)
	defer b.close()
	p := b.partitions(s.Partitions)[0]
	n := count(s, 50)
	d := b.drain(p, at[p].Next, n, emitter.Limit{Records: 10})
	// All but the first range are dropped, and planned otherwise.
	b.em.Ack(1, d.ranges[:1])
	rest := slices.Concat(d.records[1:]...)
	again := b.drain(p, d.ranges[1].Start, len(rest), emitter.Limit{Records: 4})
	b.same("planned again", again.all(), rest)
	for i, r := range d.ranges {
		b.same("a range of the dropped attempt", b.read(r), d.records[i])
	}
}

func testRestart(t *testing.T, s *Source) {
	fill(t, s, 0, 25)
	b, at := starts(t, s)
	p := b.partitions(s.Partitions)[0]
	n := count(s, 25)
	d := b.drain(p, at[p].Next, n, emitter.Limit{Records: 5})
	b.close()

	var saved []batch.Position
	for q, pos := range at {
		if q != p {
			saved = append(saved, pos)
		}
	}
	k := 1
	for i := range d.ranges {
		if len(d.records[i]) > 0 {
			k = i + 1
			break
		}
	}
	saved = append(saved, d.ranges[k-1].Position())
	slices.SortFunc(saved, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	saved = append(saved, batch.Position{Partition: batch.Partition{Source: p.Source, Topic: p.Topic + "-not-listed"}, Next: 3, LeaderEpoch: batch.NoEpoch})

	em := s.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	fresh, err := em.Open(ctx, saved, false)
	if err != nil {
		t.Fatalf("Open with saved positions: %v", err)
	}
	if len(fresh) != 0 {
		t.Fatalf("Open gave new starts %v for partitions with saved positions", fresh)
	}
	b = &bench{t: t, em: em}
	defer b.close()
	b.partitions(s.Partitions)
	rest := slices.Concat(d.records[k:]...)
	got := b.drain(p, d.ranges[k-1].End, len(rest), emitter.Limit{Records: 3})
	b.same("after a restart", got.all(), rest)

	if s.Append == nil {
		return
	}
	more := []string{"later-1", "later-2"}
	s.Append(t, 0, more)
	next := d.ranges[k-1].End
	if n := len(got.ranges); n > 0 {
		next = got.ranges[n-1].End
	}
	for i, r := range b.drain(p, next, len(more), emitter.Limit{}).all() {
		if string(r.Value) != more[i] {
			t.Errorf("record %d appended after the restart: %q, want %q", i, r.Value, more[i])
		}
	}
}

// testCuts cuts a partition at random limits, drops batches at random, and compares every range with the whole.
func testCuts(t *testing.T, s *Source) {
	fill(t, s, 0, 80)
	b, at := starts(t, s)
	defer b.close()
	p := b.partitions(s.Partitions)[0]
	n := count(s, 80)
	all := b.drain(p, at[p].Next, n, emitter.Limit{}).all()
	end := all[len(all)-1].Offset + 1
	inside := func(r batch.Range) []record {
		var recs []record
		for _, rec := range all {
			if rec.Offset >= r.Start && rec.Offset < r.End {
				recs = append(recs, rec)
			}
		}
		return recs
	}
	rapid.Check(t, func(rt *rapid.T) {
		var pending []batch.Range
		at := at[p].Next
		for step := 0; at < end && step < 200; step++ {
			if len(pending) > 0 && rapid.IntRange(0, 9).Draw(rt, "drop") == 0 {
				k := rapid.IntRange(0, len(pending)-1).Draw(rt, "from")
				at = pending[k].Start
				pending = pending[:k]
			}
			limit := emitter.Limit{
				Records: rapid.Int64Range(0, 20).Draw(rt, "records"),
				Bytes:   rapid.Int64Range(0, 400).Draw(rt, "bytes"),
			}
			r := b.plan(p, at, limit)
			b.same("cut", b.read(r), inside(r))
			pending = append(pending, r)
			at = r.End
		}
		if len(pending) > 0 {
			r := rapid.SampledFrom(pending).Draw(rt, "again")
			b.same("read again", b.read(r), inside(r))
		}
	})
}

func testJoin(t *testing.T, s *Source) {
	if s.AddPartition == nil {
		return
	}
	fill(t, s, 0, 5)
	b, at := starts(t, s)
	old := b.partitions(s.Partitions)
	s.AddPartition(t)
	s.Append(t, s.Partitions, []string{"a", "b", "c"})
	var joined []batch.Position
	b.until("discovered partition", func() bool { joined = append(joined, b.em.Discovered()...); return len(joined) > 0 })
	if len(joined) != 1 || at[joined[0].Partition].Partition != (batch.Partition{}) {
		t.Fatalf("discovered %v", joined)
	}
	p := joined[0].Partition
	if got := b.em.Partitions(); !slices.Equal(got, old) {
		t.Fatalf("Partitions before Admit: %v", got)
	}
	if r, ok := b.em.Plan(p, joined[0].Next, emitter.Limit{}); ok {
		t.Fatalf("planned %v before Admit", r)
	}
	b.em.Admit(joined)
	if got := b.em.Partitions(); len(got) != s.Partitions+1 || got[s.Partitions] != p {
		t.Fatalf("Partitions after Admit: %v", got)
	}
	recs := b.drain(p, joined[0].Next, 3, emitter.Limit{}).all()
	if string(recs[0].Value) != "a" {
		t.Fatalf("the joined partition begins with %q", recs[0].Value)
	}
	b.close()

	// Not admitted before the restart: it begins at its beginning once more.
	var saved []batch.Position
	for _, pos := range at {
		saved = append(saved, pos)
	}
	em := s.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	again, err := em.Open(ctx, saved, false)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	b = &bench{t: t, em: em}
	defer b.close()
	b.until("new partition", func() bool { again = append(again, em.Discovered()...); return len(again) > 0 })
	if len(again) != 1 || again[0] != joined[0] {
		t.Fatalf("after a restart the new partition starts at %v, want %v", again, joined)
	}
	em.Admit(again)
	b.same("joined partition after a restart", b.drain(p, again[0].Next, 3, emitter.Limit{}).all(), recs)
}

func testYieldError(t *testing.T, s *Source) {
	fill(t, s, 0, 10)
	b, at := starts(t, s)
	defer b.close()
	p := b.partitions(s.Partitions)[0]
	r := b.drain(p, at[p].Next, count(s, 10), emitter.Limit{Records: int64(count(s, 10))}).ranges[0]
	boom := errors.New("boom")
	calls := 0
	err := b.em.Read(t.Context(), r, func(*batch.Chunk) error { calls++; return boom })
	if !errors.Is(err, boom) || err.Error() != boom.Error() {
		t.Fatalf("Read returned %v, want the error of yield as it is", err)
	}
	if calls != 1 {
		t.Fatalf("yield was called %d times after its error", calls-1)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want := b.read(r)
	if recs, err := collect(ctx, b.em, r); err == nil {
		b.same("Read with a context that is done and no error", recs, want)
	}
}

func testStatus(t *testing.T, s *Source) {
	fill(t, s, 0, 12)
	b, at := starts(t, s)
	defer b.close()
	ps := b.partitions(s.Partitions)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	ends, err := b.em.Ends(ctx)
	if err != nil {
		t.Fatalf("Ends: %v", err)
	}
	if len(ends) != len(ps) {
		t.Fatalf("Ends of %d partitions, %d are admitted", len(ends), len(ps))
	}
	for i, p := range ps {
		n := 0
		if i == 0 || s.Append == nil {
			n = count(s, 12)
		}
		from := at[p].Next
		if n > 0 {
			d := b.drain(p, from, n, emitter.Limit{Records: 5})
			from = d.ranges[len(d.ranges)-1].End
		}
		if ends[p] != from {
			t.Errorf("%v: Ends says %d, the records end at %d", p, ends[p], from)
		}
	}
	b.until("end reached", func() bool {
		st := b.em.Status()
		if len(st) != len(ps) {
			t.Fatalf("Status of %d partitions, %d are admitted", len(st), len(ps))
		}
		for i := range st {
			if st[i].Partition != ps[i] {
				t.Fatalf("Status is not in order: %v", st)
			}
			if st[i].Err != nil {
				t.Fatalf("%v: %v", ps[i], st[i].Err)
			}
			if !st[i].AtEnd || st[i].End != ends[ps[i]] || st[i].LogEnd != ends[ps[i]] || st[i].Oldest != 0 {
				return false
			}
		}
		return true
	})
}

func testReady(t *testing.T, s *Source) {
	if s.Append == nil {
		return
	}
	b, at := starts(t, s)
	defer b.close()
	p := b.partitions(s.Partitions)[0]
	b.until("end", func() bool { return b.em.Status()[0].AtEnd })
	if r, ok := b.em.Plan(p, at[p].Next, emitter.Limit{}); ok {
		t.Fatalf("planned %v of an empty partition", r)
	}
	s.Append(t, 0, []string{"x"})
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	for {
		if _, ok := b.em.Plan(p, at[p].Next, emitter.Limit{}); ok {
			return
		}
		select {
		case <-b.em.Ready():
		case <-ctx.Done():
			t.Fatal("a record was appended, and Ready stayed silent")
		}
	}
}

func testConcurrent(t *testing.T, s *Source) {
	for i := range s.Partitions {
		fill(t, s, i, 60)
	}
	b, at := starts(t, s)
	defer b.close()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				b.em.Status()
				b.em.Partitions()
			}
		}
	})
	errs := make(chan string, s.Partitions)
	var readers sync.WaitGroup
	for _, p := range b.partitions(s.Partitions) {
		readers.Go(func() {
			from, got, txid := at[p].Next, 0, batch.Txid(0)
			for got < count(s, 60) {
				r, ok := b.em.Plan(p, from, emitter.Limit{Records: 9})
				if !ok {
					continue
				}
				recs, err := collect(t.Context(), b.em, r)
				if err != nil {
					errs <- err.Error()
					return
				}
				txid++
				b.em.Ack(txid, []batch.Range{r})
				from, got = r.End, got+len(recs)
			}
		})
	}
	readers.Wait()
	close(stop)
	wg.Wait()
	close(errs)
	for e := range errs {
		t.Error(e)
	}
}

// testOverlap reads ranges of one partition at once, each twice, and holds every read at its first records until three
// later ranges have been planned: as a pipeline does that has several batches in flight. What has been yielded stays as it
// is until yield returns.
func testOverlap(t *testing.T, s *Source) {
	const ahead, each = 3, 7
	values := fill(t, s, 0, 60)
	b, at := starts(t, s)
	defer b.close()
	p := b.partitions(s.Partitions)[0]
	n := count(s, 60)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()

	type reading struct {
		recs []record
		err  error
	}
	var (
		ranges  []batch.Range
		planned []chan struct{} // by range; closed when it has been planned, or none will be any more
		reads   [][2]reading
		mu      sync.Mutex // guards reads
		readers sync.WaitGroup
	)
	for range n + ahead {
		planned = append(planned, make(chan struct{}))
	}
	read := func(i, j int, r batch.Range) {
		var got reading
		held := false
		got.err = b.em.Read(ctx, r, func(c *batch.Chunk) error {
			before := clones(c)
			if !held && len(before) > 0 {
				held = true
				select {
				case <-planned[i+ahead]:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if after := clones(c); !same(before, after) {
				return fmt.Errorf("records changed while yield held them: %v, then %v", brief(before), brief(after))
			}
			got.recs = append(got.recs, before...)
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		reads[i][j] = got
	}
	ends, err := b.em.Ends(ctx)
	if err != nil {
		t.Fatalf("Ends: %v", err)
	}
	for from, i := at[p].Next, 0; from < ends[p]; i++ {
		if i == n {
			t.Fatalf("more ranges than records: %v", ranges)
		}
		r := b.plan(p, from, emitter.Limit{Records: each})
		ranges, from = append(ranges, r), r.End
		mu.Lock()
		reads = append(reads, [2]reading{})
		mu.Unlock()
		for j := range 2 {
			readers.Go(func() { read(i, j, r) })
		}
		close(planned[i])
	}
	for _, c := range planned[len(ranges):] {
		close(c)
	}
	readers.Wait()

	var all []string
	for i, r := range ranges {
		for j, got := range reads[i] {
			if got.err != nil {
				t.Fatalf("read %d of %v, at once with others: %v", j+1, r, got.err)
			}
			b.same(fmt.Sprintf("%v read by itself, and at once with others", r), b.read(r), got.recs)
		}
		for _, rec := range reads[i][0].recs {
			all = append(all, string(rec.Value))
		}
	}
	if len(all) != n || values != nil && !slices.Equal(all, values) {
		t.Errorf("%d records of %d: %q, appended were %q", len(all), n, all, values)
	}
}

func clones(c *batch.Chunk) []record {
	recs := make([]record, len(c.Records))
	for i := range c.Records {
		recs[i] = clone(&c.Records[i])
	}
	return recs
}

func testClose(t *testing.T, s *Source) {
	fill(t, s, 0, 10)
	ignore := append([]goleak.Option{goleak.IgnoreCurrent()}, s.Ignore...)
	b, at := starts(t, s)
	p := b.partitions(s.Partitions)[0]
	b.plan(p, at[p].Next, emitter.Limit{Records: 2})
	b.close()
	goleak.VerifyNone(t, ignore...)

	// Never opened: Close has nothing to wait for.
	em := s.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if err := em.Close(ctx); err != nil {
		t.Errorf("Close of an emitter that was never opened: %v", err)
	}
	goleak.VerifyNone(t, ignore...)
}
