package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

func surveyOf(t *testing.T, cfg Config, q emitter.SurveyQuery) []emitter.Survey {
	t.Helper()
	all, err := Survey(t.Context(), cfg, "src", emitter.Env{}, q)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSurveyOfPattern: topics that match are listed in order, others not; a saved partition that should be there and isn't has
// its reason, one that isn't wanted isn't listed.
func TestSurveyOfPattern(t *testing.T) {
	c := fakeCluster(t)
	for _, topic := range []string{"in-b", "in-a", "out"} {
		c.create(topic, 2, nil)
	}
	c.produce("in-a", 1, numbered("v", 3)...)
	cfg := c.config()
	cfg.Topics, cfg.Pattern = nil, "in-.*"
	gone := batch.Position{Partition: part("in-c", 0), Next: 7}
	all := surveyOf(t, cfg, emitter.SurveyQuery{Saved: []batch.Position{gone, {Partition: part("out", 0), Next: 1}}})
	var got []string
	for _, s := range all {
		got = append(got, fmt.Sprintf("%s-%d [%d,%d) %v", s.Topic, s.Number, s.Start, s.End, s.Err == nil))
	}
	want := []string{"in-a-0 [0,0) true", "in-a-1 [0,3) true", "in-b-0 [0,0) true", "in-b-1 [0,0) true", "in-c-0 [-1,-1) false"}
	equalValues(t, "partitions", got, want)
	if err := all[len(all)-1].Err; batch.CodeOf(err) != batch.CodeTopicMissing {
		t.Errorf("%v", err)
	}
	if all[0].Identity == "" || all[0].Identity != all[1].Identity || all[0].Identity == all[2].Identity {
		t.Errorf("identities %q, %q, %q", all[0].Identity, all[1].Identity, all[2].Identity)
	}
	cfg.Topics, cfg.Pattern = []string{"in-d"}, ""
	if _, err := Survey(t.Context(), cfg, "src", emitter.Env{}, emitter.SurveyQuery{}); batch.CodeOf(err) != batch.CodeTopicMissing {
		t.Errorf("a topic that doesn't exist: %v", err)
	}
}

// TestSurveyTimes: offsets of times, and the time of the first record that isn't processed, past what a transaction took back.
func TestSurveyTimes(t *testing.T) {
	c := fakeCluster(t)
	c.create("t", 1, nil)
	at := time.UnixMilli(1_700_000_000_000).UTC()
	send := func(d time.Duration) {
		c.send(c.cl, &kgo.Record{Topic: "t", Value: []byte("v"), Timestamp: at.Add(d)})
	}
	send(0)
	x := c.begin("taken-back")
	x.produce("t", 0, "a", "b")
	x.end(false)
	send(time.Minute)
	cfg := c.config("t")
	for _, tc := range []struct {
		saved  int64
		oldest time.Time
	}{{-1, at}, {0, at}, {1, at.Add(time.Minute)}, {3, at.Add(time.Minute)}, {5, time.Time{}}} {
		q := emitter.SurveyQuery{Oldest: true, Time: at.Add(time.Second)}
		if tc.saved >= 0 {
			q.Saved = []batch.Position{{Partition: part("t", 0), Next: tc.saved}}
		}
		s := surveyOf(t, cfg, q)[0]
		if s.End != 5 || s.Begin != 0 || !s.Oldest.Equal(tc.oldest) {
			t.Errorf("from %d: ends at %d, begins at %d, the time is %s, want %s", tc.saved, s.End, s.Begin, s.Oldest, tc.oldest)
		}
		// Records of a transaction that was taken back have times, too: brokers don't tell them apart here.
		if s.At < 1 || s.At > 4 {
			t.Errorf("the first offset behind %s is %d", q.Time, s.At)
		}
	}
	if s := surveyOf(t, cfg, emitter.SurveyQuery{Time: time.Now().Add(time.Hour)})[0]; s.At != s.End {
		t.Errorf("a time behind all: %+v", s)
	}
	cfg.Start = StartAt(at.Add(time.Hour))
	if s := surveyOf(t, cfg, emitter.SurveyQuery{})[0]; s.Begin < 1 {
		t.Errorf("%+v", s)
	}
	if s := surveyOf(t, cfg, emitter.SurveyQuery{Saved: []batch.Position{{Partition: batch.Partition{Source: "src"}}}})[0]; s.Begin != 0 {
		t.Errorf("a source that has been opened before begins at its beginning: %+v", s)
	}
}

// TestSurveyEnds: it ends with its context, and a leader that has moved is asked for again.
func TestSurveyEnds(t *testing.T) {
	c := fakeCluster(t)
	c.create("t", 1, nil)
	c.produce("t", 0, "a")
	moved := 0
	c.fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if moved++; moved > 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, t := range req.(*kmsg.ListOffsetsRequest).Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.NotLeaderForPartition.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	if s := surveyOf(t, c.config("t"), emitter.SurveyQuery{})[0]; s.Err != nil || s.End != 1 {
		t.Errorf("%+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Survey(ctx, c.config("t"), "src", emitter.Env{}, emitter.SurveyQuery{}); err == nil {
		t.Error("no error of a context that has ended")
	}
}
