package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// scenarios run against kfake and, with the build tag realkafka, against a real broker.
var scenarios = map[string]func(*testing.T, *cluster){
	"DeletedRecords":           deletedRecords,
	"DeletedWhileRunning":      deletedWhileRunning,
	"OpenTransaction":          openTransaction,
	"AbortedTransactions":      abortedTransactions,
	"CompactionGaps":           compactionGaps,
	"PartitionAdded":           partitionAdded,
	"TopicMadeAgain":           topicMadeAgain,
	"TopicMadeAgainAndRunning": topicMadeAgainAndRunning,
	"TopicMissing":             topicMissing,
	"TopicUnderPattern":        topicUnderPattern,
	"Starts":                   starts,
	"Unlisted":                 unlisted,
}

// permanent checks that err is a permanent *batch.Error with a place, a remedy and these texts.
func permanent(t *testing.T, err error, code batch.Code, p batch.Partition, texts ...string) {
	t.Helper()
	var e *batch.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a *batch.Error with code %s", err, code)
	}
	if e.Kind != batch.Permanent || e.Code != code || e.Partition != p || e.Remedy == "" {
		t.Fatalf("error %v (%s, %s, at %v), want a permanent one with code %s at %v and a remedy", err, e.Kind, e.Code, e.Partition, code, p)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Fatalf("error %q lacks %q", err, text)
		}
	}
}

// deletedRecords is case G02.
func deletedRecords(t *testing.T, c *cluster) {
	c.create("g02", 1, nil)
	p := part("g02", 0)
	c.produce("g02", 0, numbered("v", 10)...)
	s := open(t, c.config("g02"))
	values, pos := s.read(p, 0, 10)
	equalValues(t, "before", values, numbered("v", 10))
	old := batch.Range{Partition: p, Start: 5, End: 10, Identity: pos.Identity}
	s.close()

	c.produce("g02", 0, numbered("w", 10)...)
	c.deleteBelow("g02", 0, 15)
	_, err := tryOpen(t, c.config("g02"), pos)
	permanent(t, err, batch.CodeOutOfRange, p, "wanted 10, available [15,20), 5 lost")

	// After a reset to what is there, it goes on; the old range stays lost.
	pos.Next, pos.LeaderEpoch = 15, batch.NoEpoch
	s = open(t, c.config("g02"), pos)
	values, _ = s.read(p, 15, 5)
	equalValues(t, "after the reset", values, numbered("w", 10)[5:])
	_, err = s.tryValues(old)
	permanent(t, err, batch.CodeUnreplayable, p, "[5,10) cannot be re-read", "available [15,20)", "[5,10) gone")
}

// deletedWhileRunning: the log start moves beyond the position of an emitter that runs, and beyond what it holds.
func deletedWhileRunning(t *testing.T, c *cluster) {
	c.create("g02r", 1, nil)
	p := part("g02r", 0)
	c.produce("g02r", 0, numbered("v", 20)...)
	s := open(t, c.config("g02r"))
	s.read(p, 0, 20)
	// Planning goes back to where nothing is buffered any more, as after a dropped batch that was never acknowledged.
	s.Ack(1, []batch.Range{{Partition: p, Start: 0, End: 20}})
	c.deleteBelow("g02r", 0, 15)
	s.eventually("failure", func() bool {
		if r, ok := s.Plan(p, 10, emitter.Limit{}); ok {
			t.Fatalf("planned %v", r)
		}
		return s.Err() != nil
	})
	permanent(t, s.Err(), batch.CodeOutOfRange, p, "wanted 10, available [15,20), 5 lost")
}

// openTransaction is case G06.
func openTransaction(t *testing.T, c *cluster) {
	c.create("g06", 1, nil)
	p := part("g06", 0)
	c.produce("g06", 0, numbered("v", 5)...)
	s := open(t, c.config("g06"))
	want := numbered("v", 5)
	values, pos := s.read(p, 0, 5)
	equalValues(t, "before", values, want)
	for round, commit := range []bool{false, true} {
		x := c.begin(fmt.Sprintf("g06-%d", round))
		x.produce("g06", 0, "in transaction")
		c.produce("g06", 0, numbered("w", 4)...)
		held := pos.Next
		s.eventually("sign of the transaction", func() bool {
			st := s.status(p)
			return st.End == held && st.LogEnd == held+5 && !st.AtEnd && st.Err == nil
		})
		if r, ok := s.Plan(p, pos.Next, emitter.Limit{}); ok {
			t.Fatalf("planned %v although a transaction is open", r)
		}
		ends, err := s.Ends(t.Context())
		if err != nil || ends[p] != held {
			t.Fatalf("Ends %v, %v: want %d", ends, err, held)
		}
		x.end(commit)
		want = numbered("w", 4)
		if commit {
			want = append([]string{"in transaction"}, want...)
		}
		values, pos = s.read(p, pos.Next, len(want))
		equalValues(t, fmt.Sprintf("commit %v", commit), values, want)
		pos = s.atEnd(p, pos.Next)
		if want := held + 6; pos.Next != want { // the marker counts
			t.Fatalf("position %d behind the marker, want %d", pos.Next, want)
		}
		s.eventually("end", func() bool { return s.status(p).AtEnd })
	}
}

// abortedTransactions: markers and aborted records yield nothing, and ranges go on over them.
func abortedTransactions(t *testing.T, c *cluster) {
	c.create("aborts", 1, nil)
	p := part("aborts", 0)
	var committed, all []string
	for i := range 12 {
		x := c.begin(fmt.Sprintf("aborts-%d", i%2))
		values := numbered(fmt.Sprintf("t%d-", i), 7)
		x.produce("aborts", 0, values...)
		x.end(i%3 == 0)
		x.cl.Close()
		all = append(all, values...)
		if i%3 == 0 {
			committed = append(committed, values...)
		}
	}
	s := open(t, c.config("aborts"))
	values, _ := s.read(p, 0, len(committed))
	equalValues(t, "read_committed", values, committed)
	pos := s.atEnd(p, 0)
	if want := int64(len(all) + 12); pos.Next != want {
		t.Fatalf("the end is %d, want %d: records and markers", pos.Next, want)
	}
	// A range of nothing but aborted records, again and by offset.
	for range 2 {
		if got := s.values(batch.Range{Partition: p, Start: 8, End: 24, Identity: pos.Identity}); len(got) != 0 {
			t.Fatalf("aborted records were read: %q", got)
		}
		s.Ack(1, []batch.Range{{Partition: p, End: pos.Next}})
	}
	s.close()

	cfg := c.config("aborts")
	cfg.Isolation = ReadUncommitted
	s = open(t, cfg)
	values, _ = s.read(p, 0, len(all))
	equalValues(t, "read_uncommitted", values, all)
}

// compactionGaps is case G07.
func compactionGaps(t *testing.T, c *cluster) {
	c.create("g07", 1, map[string]string{
		"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0",
		"max.compaction.lag.ms": "100", "delete.retention.ms": "0",
	})
	p := part("g07", 0)
	// Offsets 0 to 8, one batch each; compaction leaves 0, 3, 7 and 8.
	for i, key := range []string{"a", "b", "c", "b", "c", "d", "e", "c", "d"} {
		if key == "e" {
			key = "c"
		}
		c.put("g07", key, fmt.Sprintf("v%d", i))
	}
	s := open(t, c.config("g07"))
	before, _ := s.read(p, 0, 9)
	whole := batch.Range{Partition: p, Start: 0, End: 9, Identity: s.starts[0].Identity}
	s.close()

	c.compact("g07", 9)
	var left []string
	s = open(t, c.config("g07"))
	left = s.values(whole)
	if len(left) >= len(before) || len(left) < 4 {
		t.Fatalf("compaction left %q of %q", left, before)
	}

	// (a) Limits count records, and gaps don't stop progress.
	var got []string
	at := int64(0)
	for at < 9 {
		var r batch.Range
		s.eventually("range", func() (ok bool) { r, ok = s.Plan(p, at, emitter.Limit{Records: 2}); return ok })
		values := s.values(r)
		if len(values) > 2 || len(values) == 0 {
			t.Fatalf("%v holds %q, want one or two records", r, values)
		}
		got, at = append(got, values...), r.End
	}
	equalValues(t, "in batches of two", got, left)
	s.close()

	// (b) A saved position inside of a gap goes on behind it.
	in := batch.Position{Partition: p, Next: 4, Identity: whole.Identity, LeaderEpoch: batch.NoEpoch}
	s = open(t, c.config("g07"), in)
	r := batch.Range{}
	s.eventually("range", func() (ok bool) { r, ok = s.Plan(p, 4, emitter.Limit{Records: 1}); return ok })
	values := s.values(r)
	if len(values) != 1 || values[0] != "v7" {
		t.Fatalf("behind the gap: %q, want v7", values)
	}
}

func partitionAdded(t *testing.T, c *cluster) {
	c.create("grows", 1, nil)
	cfg := c.config("grows")
	cfg.Start = Latest
	c.produce("grows", 0, "skipped")
	s := open(t, cfg)
	c.grow("grows", 3)
	c.produce("grows", 1, "one")
	c.produce("grows", 2, "two")
	var joined []batch.Position
	s.eventually("new partitions", func() bool { joined = append(joined, s.Discovered()...); return len(joined) == 2 })
	slices.SortFunc(joined, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	for i, pos := range joined {
		if pos.Partition != part("grows", int32(i+1)) || pos.Next != 0 || pos.Identity != s.starts[0].Identity {
			t.Fatalf("joined %+v", joined)
		}
	}
	s.Admit(joined)
	values, _ := s.read(joined[0].Partition, 0, 1)
	equalValues(t, "partition 1", values, []string{"one"})
	values, _ = s.read(joined[1].Partition, 0, 1)
	equalValues(t, "partition 2", values, []string{"two"})
	if r, ok := s.Plan(part("grows", 0), s.starts[0].Next, emitter.Limit{}); ok {
		t.Fatalf("planned %v although the start was latest", r)
	}
}

func topicMadeAgain(t *testing.T, c *cluster) {
	c.create("again", 1, nil)
	p := part("again", 0)
	c.produce("again", 0, numbered("old", 5)...)
	s := open(t, c.config("again"))
	_, pos := s.read(p, 0, 5)
	s.close()
	if pos.Identity == "" {
		t.Fatal("the position carries no topic id")
	}
	c.remove("again")
	c.createSoon("again")
	c.produce("again", 0, numbered("new", 9)...)

	_, err := tryOpen(t, c.config("again"), pos)
	permanent(t, err, batch.CodeTopicChanged, p, "deleted and made again", pos.Identity)

	s = open(t, c.config("again"))
	values, _ := s.read(p, 0, 9)
	equalValues(t, "the new topic", values, numbered("new", 9))
	_, err = s.tryValues(batch.Range{Partition: p, Start: 0, End: 5, Identity: pos.Identity})
	permanent(t, err, batch.CodeUnreplayable, p, "[0,5) cannot be re-read", "deleted and made again")
}

func topicMadeAgainAndRunning(t *testing.T, c *cluster) {
	c.create("again2", 1, nil)
	p := part("again2", 0)
	c.produce("again2", 0, numbered("old", 5)...)
	s := open(t, c.config("again2"))
	s.read(p, 0, 5)
	c.remove("again2")
	c.createSoon("again2")
	c.produce("again2", 0, numbered("new", 9)...)
	s.eventually("failure", func() bool {
		if r, ok := s.Plan(p, 5, emitter.Limit{}); ok {
			t.Fatalf("planned %v of the new topic", r)
		}
		return s.Err() != nil
	})
	permanent(t, s.Err(), batch.CodeTopicChanged, p, "deleted and made again")
}

func topicMissing(t *testing.T, c *cluster) {
	c.create("lines", 1, nil)
	_, err := tryOpen(t, c.config("lins"))
	permanent(t, err, batch.CodeTopicMissing, batch.Partition{Source: "src", Topic: "lins"}, `topic "lins" does not exist`, "did you mean lines?")
	topics, err := kadm.NewClient(c.cl).ListTopics(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if topics.Has("lins") {
		t.Fatal("the topic was created by asking for it")
	}
}

func topicUnderPattern(t *testing.T, c *cluster) {
	c.create("ev-a", 1, nil)
	c.create("other-ev-a", 1, nil)
	cfg := c.config()
	cfg.Pattern = "ev-.*"
	s := open(t, cfg)
	if got := s.Partitions(); !slices.Equal(got, []batch.Partition{part("ev-a", 0)}) {
		t.Fatalf("partitions %v", got)
	}
	c.create("ev-b", 1, nil)
	c.produce("ev-b", 0, "first")
	var joined []batch.Position
	s.eventually("new topic", func() bool { joined = append(joined, s.Discovered()...); return len(joined) > 0 })
	if len(joined) != 1 || joined[0].Partition != part("ev-b", 0) || joined[0].Next != 0 || joined[0].Identity == s.starts[0].Identity {
		t.Fatalf("joined %+v", joined)
	}
	s.Admit(joined)
	values, _ := s.read(part("ev-b", 0), 0, 1)
	equalValues(t, "new topic", values, []string{"first"})
}

func starts(t *testing.T, c *cluster) {
	c.create("starts", 2, nil)
	c.produce("starts", 0, numbered("v", 10)...) // timestamps 1_700_000_000_000 and up
	var group kadm.Offsets
	group.AddOffset("starts", 0, 4, -1)
	if err := kadm.NewClient(c.cl).CommitAllOffsets(c.ctx(), "g-starts", group); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		start Start
		want  [2]int64
	}{
		{Earliest, [2]int64{0, 0}},
		{Latest, [2]int64{10, 0}},
		{StartAt(time.UnixMilli(1_700_000_000_007)), [2]int64{7, 0}},
		{StartAt(time.UnixMilli(1_800_000_000_000)), [2]int64{10, 0}},
		{StartCommitted(Earliest), [2]int64{4, 0}},
		{StartCommitted(Latest), [2]int64{4, 0}},
	} {
		t.Run(tc.start.String(), func(t *testing.T) {
			cfg := c.config("starts")
			cfg.Start, cfg.Group = tc.start, "g-starts"
			s := open(t, cfg)
			if len(s.starts) != 2 || s.starts[0].Next != tc.want[0] || s.starts[1].Next != tc.want[1] {
				t.Fatalf("starts %+v, want %v", s.starts, tc.want)
			}
			// The policy doesn't count on a restart, and not for partitions without a position then.
			s.close()
			s = &source{Emitter: newEmitter(t, cfg), t: t}
			defer s.close()
			again, err := s.Open(t.Context(), []batch.Position{{Partition: part("starts", 1), LeaderEpoch: batch.NoEpoch}}, false)
			if err != nil || len(again) != 1 || again[0].Next != 0 {
				t.Fatalf("starts on a restart: %+v, %v; want the beginning of partition 0", again, err)
			}
		})
	}
	group = kadm.Offsets{}
	group.AddOffset("starts", 0, 99, -1)
	if err := kadm.NewClient(c.cl).CommitAllOffsets(c.ctx(), "g-starts", group); err != nil {
		t.Fatal(err)
	}
	cfg := c.config("starts")
	cfg.Start, cfg.Group = StartCommitted(Earliest), "g-starts"
	_, err := tryOpen(t, cfg)
	permanent(t, err, batch.CodeOutOfRange, part("starts", 0), "committed offset 99", "[0,10)")
}

// unlisted: saved positions of topics that aren't wanted any more, and of other sources, don't matter (case G31).
func unlisted(t *testing.T, c *cluster) {
	c.create("kept", 1, nil)
	c.produce("kept", 0, "a", "b")
	other := batch.Position{Partition: batch.Partition{Source: "other", Topic: "kept"}, Next: 77, LeaderEpoch: 3}
	gone := batch.Position{Partition: part("gone", 0), Next: 4, Identity: "x", LeaderEpoch: 0}
	s := open(t, c.config("kept"), batch.Position{Partition: part("kept", 0), Next: 1, LeaderEpoch: batch.NoEpoch}, other, gone)
	if got := s.Partitions(); !slices.Equal(got, []batch.Partition{part("kept", 0)}) || len(s.starts) != 0 {
		t.Fatalf("partitions %v, starts %v", got, s.starts)
	}
	values, _ := s.read(part("kept", 0), 1, 1)
	equalValues(t, "kept", values, []string{"b"})
}
