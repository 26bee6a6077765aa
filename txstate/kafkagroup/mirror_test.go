package kafkagroup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror()
		m.Committed(0, 3, at(0, 0, 0, 0))
		time.Sleep(time.Second)
		w.want("0:0@0 1:0@0 2:0@0")
		m.Committed(1, 3, at(1, 20, 20, 20))
		time.Sleep(time.Second)
		w.want("0:20@1 1:20@1 2:20@1")
		if st := m.Status(); st.Txid != 1 || st.Pending || st.Err != nil || st.Written.IsZero() || len(st.Failures) != 0 {
			t.Errorf("status %+v", st)
		}
		offsets, err := w.adm.FetchOffsets(context.Background(), group)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := offsets.Lookup(topic, 1)
		if want := `{"tridentd":1,"pipeline":"words","source":"lines","txid":1,"epoch":3}`; o.Metadata != want || o.LeaderEpoch != 4 {
			t.Errorf("metadata %s, leader epoch %d, want %s and 4", o.Metadata, o.LeaderEpoch, want)
		}
		if n := w.log.count("[WARN]"); n != 0 {
			t.Errorf("%d warnings:\n%s", n, w.log)
		}
		w.closed(m)
	})
}

func TestUnchangedOffsetsAreNotWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror()
		m.Committed(1, 1, at(1, 20, 20, 20))
		time.Sleep(time.Second)
		moved := at(1, 20, 20, 20)
		moved[2].Next, moved[2].Txid = 25, 2
		m.Committed(2, 1, moved)
		time.Sleep(time.Second)
		w.want("0:20@1 1:25@2 2:20@1")
		if ps := w.requests()[1].Topics[0].Partitions; len(ps) != 1 || ps[0].Partition != 1 {
			t.Errorf("the second commit has %v", ps)
		}
		if st := m.Status(); st.Txid != 2 || st.Pending {
			t.Errorf("status %+v", st)
		}
		w.closed(m)
	})
}

// TestRate: five writes a second, and the last positions are what the group holds at the end.
func TestRate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.delay = 30 * time.Millisecond
		m := w.mirror()
		const batches = 400
		for i := range int64(batches) {
			m.Committed(batch.Txid(i+1), 1, at(batch.Txid(i+1), i+1, i+1, i+1))
			time.Sleep(5 * time.Millisecond)
		}
		w.closed(m)
		w.want("0:400@400 1:400@400 2:400@400")
		writes := w.times()
		if n := len(writes); n < 8 || n > 12 {
			t.Errorf("%d writes in 2 seconds", n)
		}
		for i := 1; i < len(writes)-1; i++ { // the last is that of Close
			if d := writes[i].Sub(writes[i-1]); d < DefaultInterval {
				t.Errorf("write %d came %s after the one before", i, d)
			}
		}
	})
}

// TestNeverAhead: whatever the times, no write has an offset beyond what the store had told by then.
func TestNeverAhead(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror(func(c *Config) { c.Interval = 3 * time.Millisecond })
		for i := range int64(300) {
			m.Committed(batch.Txid(i+1), 1, at(batch.Txid(i+1), i+1, 2*i, i/2))
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			for _, c := range w.requests() {
				for _, p := range c.Topics[0].Partitions {
					if limit := [...]int64{i + 1, 2 * i, i / 2}[p.Partition]; p.Offset > limit {
						t.Fatalf("partition %d: %d is written, the store stands at %d", p.Partition, p.Offset, limit)
					}
				}
			}
		}
		w.closed(m)
		w.want("0:300@300 1:598@300 2:149@300")
	})
}

func TestRefresh(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror()
		m.Committed(1, 1, at(1, 5, 5, 5))
		time.Sleep(59 * time.Minute)
		if n := w.written(); n != 1 {
			t.Errorf("%d writes in an hour's quiet", n)
		}
		time.Sleep(2*time.Hour + 10*time.Minute)
		if n := w.written(); n != 4 {
			t.Errorf("%d writes after three hours, want 4", n)
		}
		w.closed(m)
	})
}

// TestCloseWrites: what has committed just before the end is written, though the interval isn't over.
func TestCloseWrites(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror(func(c *Config) { c.Interval = time.Hour })
		m.Committed(1, 1, at(1, 5, 5, 5))
		time.Sleep(time.Second)
		m.Committed(2, 1, at(2, 9, 9, 9))
		time.Sleep(time.Second)
		w.want("0:5@1 1:5@1 2:5@1")
		w.closed(m)
		w.want("0:9@2 1:9@2 2:9@2")
	})
}

func TestCloseIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.SleepControl(func() { time.Sleep(time.Minute) })
			return nil, nil, false
		})
		m := w.mirror()
		m.Committed(7, 1, at(7, 5, 5, 5))
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := m.Close(ctx)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %s", took)
		}
		if err == nil || batch.CodeOf(err) != batch.CodeTimeout || !strings.Contains(err.Error(), "next run writes it") {
			t.Errorf("Close: %v", err)
		}
		time.Sleep(time.Minute) // the server's own wait
	})
}

func TestCloseOfAnIdleMirror(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror()
		w.closed(m)
		w.closed(m) // again
		if n := w.written(); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestRefused: each refusal is named, warned of once, counted at each attempt, tried again ever more rarely, holds up
// nobody, and is made good once it is over.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		answer *kerr.Error
		code   batch.Code
		text   string
	}{
		{kerr.UnknownMemberID, batch.CodeGroupMembers, "end the consumers in the group"},
		{kerr.RebalanceInProgress, batch.CodeGroupMembers, "end the consumers in the group"},
		{kerr.IllegalGeneration, batch.CodeGroupMembers, "end the consumers in the group"},
		{kerr.GroupAuthorizationFailed, batch.CodeUnauthorized, "grant the user Read on group tridentd-words"},
		{kerr.NotCoordinator, batch.CodeGroupCoordinator, "moved to another broker"},
		{kerr.CoordinatorNotAvailable, batch.CodeGroupCoordinator, "__consumer_offsets"},
		{kerr.CoordinatorLoadInProgress, batch.CodeGroupCoordinator, "__consumer_offsets"},
		{kerr.GroupIDNotFound, batch.CodeGroupForeign, "another kind"},
		{kerr.InvalidGroupID, batch.CodeConfiguration, "name another group"},
		{kerr.OffsetMetadataTooLarge, batch.CodeConfiguration, "offset.metadata.max.bytes"},
		{kerr.RequestTimedOut, batch.CodeTimeout, "in time"},
		{kerr.UnknownServerError, batch.CodeUnavailable, ""},
	} {
		t.Run(c.answer.Message, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.answer(c.answer)
				m := w.mirror()
				for i := range int64(60) {
					began := time.Now()
					m.Committed(batch.Txid(i+1), 1, at(batch.Txid(i+1), i+1, i+1, i+1))
					if took := time.Since(began); took != 0 {
						t.Fatalf("Committed took %s", took)
					}
					time.Sleep(time.Second)
				}
				st := m.Status()
				if batch.CodeOf(st.Err) != c.code || batch.KindOf(st.Err) != batch.Transient || !strings.Contains(st.Err.Error(), c.text) {
					t.Errorf("failure %v, code %s, want %s", st.Err, batch.CodeOf(st.Err), c.code)
				}
				// 0.1+0.2+0.4+…+25.6 s: at most ten attempts in a minute.
				if n := st.Failures[c.code]; n < 3 || n > 11 || len(st.Failures) != 1 {
					t.Errorf("failures %v", st.Failures)
				}
				if st.Txid != 0 || !st.Pending || st.Since.IsZero() || time.Since(st.Since) < 50*time.Second {
					t.Errorf("status %+v", st)
				}
				if n := w.log.count("[WARN]"); n != 1 || w.log.count("[WARN]", "code="+string(c.code)) != 1 {
					t.Errorf("%d warnings:\n%s", n, w.log)
				}
				w.want("")
				w.answer(nil)
				time.Sleep(31 * time.Second)
				w.want("0:60@60 1:60@60 2:60@60")
				if st := m.Status(); st.Err != nil || st.Txid != 60 || st.Pending {
					t.Errorf("afterwards: %+v", st)
				}
				if w.log.count("[INFO]", "up to date again") != 1 {
					t.Errorf("the end of it isn't told:\n%s", w.log)
				}
				w.closed(m)
			})
		})
	}
}

// TestBackoff: waits double from RetryMin to RetryMax.
func TestBackoff(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answer(kerr.UnknownMemberID)
		m := w.mirror(func(c *Config) { c.RetryMin, c.RetryMax = time.Second, 8*time.Second })
		m.Committed(1, 1, at(1, 1, 1, 1))
		time.Sleep(40 * time.Second)
		var waits []time.Duration
		attempts := w.times()
		for i := 1; i < len(attempts); i++ {
			waits = append(waits, attempts[i].Sub(attempts[i-1]))
		}
		want := []time.Duration{1, 2, 4, 8, 8, 8, 8}
		if len(waits) != len(want) {
			t.Fatalf("waits %v", waits)
		}
		for i := range want {
			if waits[i] != want[i]*time.Second {
				t.Errorf("waits %v", waits)
				break
			}
		}
		w.answer(nil)
		w.closed(m)
	})
}

// TestMember is the same with a consumer: first on another topic, then on ours.
func TestMember(t *testing.T) {
	for _, topics := range []string{"other", topic} {
		t.Run(topics, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.mirror(func(c *Config) { c.RetryMax = 2 * time.Second })
				m.Committed(1, 1, at(1, 5, 5, 5))
				time.Sleep(time.Second)
				consumer := w.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics), kgo.DisableAutoCommit())
				time.Sleep(10 * time.Second)
				m.Committed(2, 1, at(2, 9, 9, 9))
				time.Sleep(10 * time.Second)
				w.want("0:5@1 1:5@1 2:5@1")
				if st := m.Status(); batch.CodeOf(st.Err) != batch.CodeGroupMembers || st.Failures[batch.CodeGroupMembers] < 3 || st.Txid != 1 {
					t.Errorf("status %+v", st)
				}
				consumer.Close()
				time.Sleep(3 * time.Second)
				w.want("0:9@2 1:9@2 2:9@2")
				if n := w.log.count("[WARN]"); n != 1 {
					t.Errorf("%d warnings:\n%s", n, w.log)
				}
				w.closed(m)
			})
		})
	}
}

func TestUnreachable(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror(func(c *Config) {
			c.Client = append(c.Client, kgo.SeedBrokers("localhost:1"))
		})
		m.Committed(1, 1, at(1, 5, 5, 5))
		time.Sleep(time.Minute)
		st := m.Status()
		if code := batch.CodeOf(st.Err); code != batch.CodeUnavailable && code != batch.CodeTimeout {
			t.Errorf("failure %v, code %s", st.Err, code)
		}
		if _, err := m.Carried(context.Background()); err == nil || batch.KindOf(err) != batch.Transient {
			t.Errorf("Carried: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := m.Close(ctx); err == nil {
			t.Error("Close didn't tell what isn't written")
		}
	})
}

// TestCoordinatorMoves: a coordinator that is found elsewhere at once is no failure.
func TestCoordinatorMoves(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror()
		for i := range int64(6) {
			m.Committed(batch.Txid(i+1), 1, at(batch.Txid(i+1), i+1, i+1, i+1))
			time.Sleep(3 * time.Second)
			w.fake.RehashCoordinators()
		}
		w.closed(m)
		w.want("0:6@6 1:6@6 2:6@6")
		if st := m.Status(); len(st.Failures) != 0 {
			t.Errorf("failures %v\n%s", st.Failures, w.log)
		}
	})
}

func TestPartitionRefused(t *testing.T) {
	for answer, code := range map[*kerr.Error]batch.Code{
		kerr.UnknownTopicOrPartition:  batch.CodeTopicMissing,
		kerr.TopicAuthorizationFailed: batch.CodeUnauthorized,
	} {
		t.Run(answer.Message, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.partial = map[int32]*kerr.Error{1: answer}
				m := w.mirror()
				for i := range int64(20) {
					m.Committed(batch.Txid(i+1), 1, at(batch.Txid(i+1), i+1, i+1, i+1))
					time.Sleep(time.Second)
				}
				all := w.requests()
				last := all[len(all)-1]
				if ps := last.Topics[0].Partitions; len(ps) != 2 || ps[0].Offset != 20 || ps[1].Partition != 2 {
					t.Errorf("the others aren't written by themselves: %v", ps)
				}
				st := m.Status()
				if batch.CodeOf(st.Err) != code || st.Failures[code] != 1 || len(st.Failures) != 1 {
					t.Errorf("status %+v", st)
				}
				if e, ok := errors.AsType[*batch.Error](st.Err); !ok || e.Partition.Number != 1 || e.Partition.Topic != topic {
					t.Errorf("the partition isn't named: %v", st.Err)
				}
				w.mu.Lock()
				w.partial = nil
				w.mu.Unlock()
				time.Sleep(31 * time.Second)
				if st := m.Status(); st.Err != nil || st.Txid != 20 || w.log.count("[WARN]") != 1 {
					t.Errorf("afterwards: %+v\n%s", st, w.log)
				}
				w.closed(m)
			})
		})
	}
}

// TestRepairs: what others do to the group is made good within seconds.
func TestRepairs(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world)
		code batch.Code // empty: nothing to tell
		text string
	}{
		{"the group is deleted", (*world).deleteGroup, batch.CodeGroupLost, "lines-0 is gone from the group, which has expired or was deleted; 9 is written again (and 2 more partitions)"},
		{"a tool moves it back", func(w *world) { w.put("", 1, 9, 9) }, batch.CodeGroupForeign, "somebody else has committed 1 for lines-0 to the group; 9 is written in its place"},
		{"a tool moves it on", func(w *world) { w.put("", 9, 9, 1000) }, batch.CodeGroupForeign, "somebody else has committed 1000 for lines-2"},
		{"a tool leaves it", func(w *world) { w.put("", 9, 9, 9) }, "", ""},
		{"an older process of ours", func(w *world) {
			w.put(stamp{Pipeline: pipeline, Source: source, Txid: 1, Epoch: 1}.encode(), 5, 9, 9)
		}, batch.CodeGroupForeign, "another process of this pipeline has committed 5 for lines-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.mirror()
				m.Committed(2, 1, at(2, 9, 9, 9))
				time.Sleep(time.Second)
				c.do(w)
				time.Sleep(5 * time.Second)
				w.want("0:9@2 1:9@2 2:9@2")
				st := m.Status()
				if st.Err != nil || st.Pending {
					t.Errorf("status %+v", st)
				}
				if c.code == "" {
					if len(st.Failures) != 0 || w.log.count("[WARN]") != 0 {
						t.Errorf("failures %v\n%s", st.Failures, w.log)
					}
				} else if st.Failures[c.code] != 1 || len(st.Failures) != 1 || w.log.count("[WARN]", c.text) != 1 {
					t.Errorf("failures %v\n%s", st.Failures, w.log)
				}
				w.closed(m)
			})
		})
	}
}

// TestRestart: what the group holds at a start is brought to what the store holds.
func TestRestart(t *testing.T) {
	ours := func(txid batch.Txid, epoch batch.Epoch) string {
		return stamp{Pipeline: pipeline, Source: source, Txid: txid, Epoch: epoch}.encode()
	}
	for _, c := range []struct {
		name     string
		metadata string
		nexts    []int64
		want     string
		code     batch.Code // of what stands; with a "?" of what was told
		told     bool
	}{
		{name: "nothing there", want: "0:9@2 1:9@2 2:9@2"},
		{name: "behind", metadata: ours(1, 1), nexts: []int64{5, 5, 5}, want: "0:9@2 1:9@2 2:9@2"},
		{name: "a partition is missing", metadata: ours(2, 1), nexts: []int64{9, 9}, want: "0:9@2 1:9@2 2:9@2"},
		{name: "an ordinary consumer's", nexts: []int64{100, 9, 3}, want: "0:9@2 1:9@2 2:9@2", code: batch.CodeGroupForeign, told: true},
		{name: "other metadata", metadata: `{"host":"a"}`, nexts: []int64{9, 9, 9}, want: "0:9@2 1:9@2 2:9@2"},
		{name: "ahead", metadata: ours(8, 1), nexts: []int64{30, 30, 30}, want: "0:30@8 1:30@8 2:30@8", code: batch.CodeGroupAhead},
		{name: "another pipeline's", metadata: stamp{Pipeline: "other", Source: source, Txid: 1, Epoch: 1}.encode(), nexts: []int64{5}, want: "0:5@1 1:9@2 2:9@2", code: batch.CodeGroupForeign},
		{name: "another source's", metadata: stamp{Pipeline: pipeline, Source: "twin", Txid: 1, Epoch: 6}.encode(), nexts: []int64{5}, want: "0:5@1 1:9@2 2:9@2", code: batch.CodeGroupForeign},
		{name: "a source's that had another name", metadata: stamp{Pipeline: pipeline, Source: "old", Txid: 9, Epoch: 5}.encode(), nexts: []int64{5}, want: "0:9@2 1:9@2 2:9@2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if c.nexts != nil {
					w.put(c.metadata, c.nexts...)
				}
				m := w.mirror()
				m.Committed(2, 6, at(2, 9, 9, 9))
				time.Sleep(time.Second)
				w.want(c.want)
				st := m.Status()
				switch {
				case c.code == "":
					if st.Err != nil || len(st.Failures) != 0 || w.log.count("[WARN]") != 0 {
						t.Errorf("status %+v\n%s", st, w.log)
					}
				case c.told:
					if st.Err != nil || st.Failures[c.code] != 1 || w.log.count("[WARN]", string(c.code)) != 1 {
						t.Errorf("status %+v\n%s", st, w.log)
					}
				default:
					if batch.CodeOf(st.Err) != c.code || st.Failures[c.code] != 1 || w.log.count("[WARN]", string(c.code)) != 1 {
						t.Errorf("status %+v\n%s", st, w.log)
					}
					// Once the group is empty the mirror goes on.
					w.deleteGroup()
					time.Sleep(6 * time.Second)
					w.want("0:9@2 1:9@2 2:9@2")
				}
				w.closed(m)
			})
		})
	}
}

// TestAhead: a group that is ahead is followed again once the store has passed it.
func TestAhead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(stamp{Pipeline: pipeline, Source: source, Txid: 3, Epoch: 9}.encode(), 30, 30, 30)
		m := w.mirror()
		for txid := batch.Txid(1); txid <= 2; txid++ {
			m.Committed(txid, 1, at(txid, 10*int64(txid), 5, 5))
			time.Sleep(10 * time.Second)
			w.want("0:30@3 1:30@3 2:30@3")
		}
		if st := m.Status(); st.Txid != 0 || !st.Pending || batch.CodeOf(st.Err) != batch.CodeGroupAhead {
			t.Errorf("status %+v", st)
		}
		m.Committed(3, 1, at(3, 31, 32, 33))
		time.Sleep(time.Second)
		w.want("0:31@3 1:32@3 2:33@3")
		if st := m.Status(); st.Txid != 3 || st.Err != nil {
			t.Errorf("status %+v", st)
		}
		w.closed(m)
	})
}

// TestAheadOfAQuietPartition: a store that was restored to an earlier batch passes the group's txid by what other partitions get. The
// epoch of the lost store may be above ours, if it couldn't be read.
func TestAheadOfAQuietPartition(t *testing.T) {
	for _, epoch := range []batch.Epoch{5, 6, 9} {
		t.Run(fmt.Sprint(epoch), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.put(stamp{Pipeline: pipeline, Source: source, Txid: 8, Epoch: epoch}.encode(), 30, 30, 30)
				m := w.mirror()
				m.Committed(2, 6, at(2, 9, 9, 9))
				time.Sleep(time.Second)
				positions := at(2, 9, 9, 9)
				positions[1].Next, positions[1].Txid = 40, 7
				m.Committed(7, 6, positions)
				time.Sleep(10 * time.Second)
				w.want("0:30@8 1:30@8 2:30@8")
				if st := m.Status(); batch.CodeOf(st.Err) != batch.CodeGroupAhead || !strings.Contains(st.Err.Error(), "has come to txid 7") {
					t.Errorf("status %+v", st)
				}
				positions[1].Next, positions[1].Txid = 41, 8
				m.Committed(8, 6, positions)
				time.Sleep(time.Second)
				w.want("0:41@8 1:9@2 2:9@2")
				if st := m.Status(); st.Txid != 8 || st.Err != nil || st.Pending {
					t.Errorf("status %+v", st)
				}
				w.closed(m)
			})
		})
	}
}

func TestRewind(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(stamp{Pipeline: pipeline, Source: source, Txid: 3, Epoch: 9}.encode(), 30, 30, 30)
		m := w.mirror()
		m.Rewind()
		m.Committed(0, 1, at(0, 0, 0, 0))
		time.Sleep(time.Second)
		w.want("0:0@0 1:0@0 2:0@0")
		// It counts once: what comes later from elsewhere is not overwritten.
		w.put(stamp{Pipeline: pipeline, Source: source, Txid: 4, Epoch: 9}.encode(), 40, 40, 40)
		time.Sleep(6 * time.Second)
		m.Committed(1, 1, at(1, 5, 5, 5))
		time.Sleep(time.Second)
		w.want("0:40@4 1:40@4 2:40@4")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := m.Close(ctx); batch.CodeOf(err) != batch.CodeGroupAhead {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestCarried(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.mirror()
		carried, err := m.Carried(context.Background())
		if err != nil || len(carried) != 0 {
			t.Errorf("an empty group carries %v, %v", carried, err)
		}
		w.put("", 1, 2)
		w.put(stamp{Pipeline: "other", Source: source, Txid: 5}.encode(), 1)
		if carried, err = m.Carried(context.Background()); err != nil || len(carried) != 0 {
			t.Errorf("others' offsets are taken for ours: %v, %v", carried, err)
		}
		w.put(stamp{Pipeline: pipeline, Source: "old", Txid: 5, Epoch: 2}.encode(), 7)
		carried, err = m.Carried(context.Background())
		want := txstate.Carried{Partition: batch.Partition{Source: "old", Topic: topic}, Next: 7, Txid: 5, Epoch: 2}
		if err != nil || len(carried) != 1 || carried[0] != want {
			t.Errorf("carried %v, %v, want %v", carried, err, want)
		}
		w.closed(m)
		unread := w.mirror(func(c *Config) { c.Reads = func(string) bool { return false } })
		if carried, err = unread.Carried(context.Background()); err != nil || len(carried) != 0 {
			t.Errorf("offsets of a topic that isn't read: %v, %v", carried, err)
		}
		w.closed(unread)
		w.fake.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group, g.ErrorCode = group, kerr.GroupAuthorizationFailed.Code
			resp.Groups = append(resp.Groups, g)
			return resp, nil, true
		})
		m = w.mirror()
		if _, err := m.Carried(context.Background()); batch.CodeOf(err) != batch.CodeUnauthorized {
			t.Errorf("Carried: %v", err)
		}
		w.closed(m)
	})
}

// TestManyPartitions: requests stay small.
func TestManyPartitions(t *testing.T) {
	inWorld(t, func(w *world) {
		const parts = 2*maxWrite + 10
		if _, err := w.adm.CreateTopic(context.Background(), parts, 1, nil, "wide"); err != nil {
			t.Fatal(err)
		}
		m := w.mirror(func(c *Config) { c.Reads = func(t string) bool { return t == "wide" } })
		var positions []txstate.SavedPosition
		for i := range int32(parts) {
			positions = append(positions, txstate.SavedPosition{Position: batch.Position{Partition: batch.Partition{Source: source, Topic: "wide", Number: i}, Next: int64(i)}, Txid: 1})
		}
		m.Committed(1, 1, positions)
		w.closed(m)
		offsets, err := w.adm.FetchOffsets(context.Background(), group)
		if err != nil || len(offsets["wide"]) != parts || offsets["wide"][parts-1].At != parts-1 {
			t.Errorf("%d offsets, %v", len(offsets["wide"]), err)
		}
		if n := w.written(); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
}

// TestAnything: whatever others do and brokers answer, no write is ahead of the store, and the group is right once
// they have left it alone.
func TestAnything(t *testing.T) {
	refusals := []*kerr.Error{kerr.UnknownMemberID, kerr.GroupAuthorizationFailed, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.RequestTimedOut}
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				rng := rand.New(rand.NewPCG(seed, 4))
				m := w.mirror()
				var store [nParts]int64
				var moved [nParts]batch.Txid
				txid := batch.Txid(0)
				checked := 0
				for range 60 {
					switch rng.IntN(8) {
					case 0:
						w.deleteGroup()
					case 1:
						w.put("", rng.Int64N(100), rng.Int64N(100), rng.Int64N(100))
					case 2:
						w.answer(refusals[rng.IntN(len(refusals))])
					case 3:
						w.answer(nil)
					default:
						txid++
						positions := at(txid, store[:]...)
						for i := range store {
							if rng.IntN(2) == 0 {
								store[i] += rng.Int64N(10)
								moved[i] = txid
							}
							positions[i+1].Next, positions[i+1].Txid = store[i], moved[i]
						}
						m.Committed(txid, 1, positions)
					}
					time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
					for all := w.requests(); checked < len(all); checked++ {
						for _, p := range all[checked].Topics[0].Partitions {
							if p.Offset > store[p.Partition] {
								t.Fatalf("partition %d: %d is written, the store stands at %d", p.Partition, p.Offset, store[p.Partition])
							}
						}
					}
				}
				w.answer(nil)
				time.Sleep(31 * time.Second)
				var want []string
				for i := range store {
					want = append(want, fmt.Sprintf("%d:%d@%d", i, store[i], moved[i]))
				}
				w.want(strings.Join(want, " "))
				if st := m.Status(); st.Txid != txid || st.Pending || st.Err != nil {
					t.Errorf("status %+v", st)
				}
				w.closed(m)
			})
		})
	}
}

func TestConfig(t *testing.T) {
	reads := func(string) bool { return true }
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Pipeline: "p", Source: "s"}, "group: none is given"},
		{Config{Group: "g", Source: "s"}, "pipeline: none is given"},
		{Config{Group: "g", Pipeline: "p"}, "source: none is given"},
		{Config{Group: "g", Pipeline: "p", Source: strings.Repeat("s", 5000)}, "less than 4096"},
		{Config{Group: "g", Pipeline: "p", Source: "s", Interval: -1}, "interval: -1ns is negative"},
	} {
		c.cfg.Reads = reads
		_, err := New(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent {
			t.Errorf("%+v: %v, want %s", c.cfg, err, c.want)
		}
	}
}

func TestStamp(t *testing.T) {
	s := stamp{Version: 1, Pipeline: `a"b<`, Source: "s", Txid: ^batch.Txid(0), Epoch: ^batch.Epoch(0)}
	got := parseStamp(s.encode())
	if got == nil || *got != s {
		t.Errorf("%+v came back as %+v", s, got)
	}
	for _, text := range []string{"", "x", "{}", `{"pipeline":"words"}`, `{"tridentd":0,"pipeline":"words"}`, `{"tridentd":1}`, `{"tridentd":1,"pipeline":"words","txid":-1}`, `[1]`} {
		if got := parseStamp(text); got != nil {
			t.Errorf("%q is taken for ours: %+v", text, got)
		}
	}
	if got := parseStamp(`{"tridentd":2,"pipeline":"words","source":"s","txid":3,"epoch":1,"more":{}}`); got == nil || got.Txid != 3 {
		t.Errorf("a later form gives %+v", got)
	}
	if !json.Valid([]byte(s.encode())) {
		t.Errorf("no JSON: %s", s.encode())
	}
}
