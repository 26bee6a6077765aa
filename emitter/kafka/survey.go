package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

const (
	// surveyTimeout bounds each request of a survey: less than what people wait for, so that there is time to say who
	// didn't answer.
	surveyTimeout = 8 * time.Second
	// surveyReads is how many partitions of one broker are read at once for their oldest record.
	surveyReads = 8
)

// Survey asks the cluster what it holds of the topics of cfg; see emitter.Surveyed. It opens nothing and changes nothing.
func Survey(ctx context.Context, cfg Config, id string, env emitter.Env, q emitter.SurveyQuery) ([]emitter.Survey, error) {
	if cfg.Timeout == 0 || cfg.Timeout > surveyTimeout {
		cfg.Timeout = surveyTimeout
	}
	e, err := New(id, cfg, env)
	if err != nil {
		return nil, err
	}
	defer e.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it has been used for questions only
	if e.client, err = kgo.NewClient(e.opts...); err != nil {
		return nil, configError("kafka", "correct the client's options", "%w", err)
	}
	for tries := 0; ; tries++ {
		s := &surveyor{e: e, q: q, saved: map[batch.Partition]batch.Position{}, first: len(q.Saved) == 0}
		for _, p := range q.Saved {
			if p.Source == id && p.Topic != "" {
				s.saved[p.Partition] = p
			}
		}
		if err := s.look(ctx); err != nil {
			return nil, err
		}
		// A partition whose leader has moved is asked for once more.
		moved := slices.ContainsFunc(s.parts, func(u *surveyed) bool { return u.Err != nil && movesLeader(u.Err) })
		if !moved || tries == 2 || sleep(ctx, settleTime) != nil {
			return s.results(), nil
		}
	}
}

// surveyor does one look at the cluster.
type surveyor struct {
	e         *Emitter
	q         emitter.SurveyQuery
	saved     map[batch.Partition]batch.Position
	first     bool             // the source has never been opened: the start policy counts
	brokers   map[int32]string // addresses
	parts     []*surveyed      // in no order
	committed kadm.OffsetResponses
}

// surveyed is one partition under survey. It belongs to the goroutine that asks its leader.
type surveyed struct {
	emitter.Survey
	topic       *topic
	leader      int32
	leaderEpoch int32
}

func (s *surveyor) look(ctx context.Context) error {
	if err := s.find(ctx); err != nil {
		return err
	}
	if err := s.loadCommitted(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for leader, parts := range s.byLeader() {
		wg.Go(func() { s.ask(ctx, leader, parts) })
	}
	wg.Wait()
	return nil
}

// find asks for the topics and their leaders.
func (s *surveyor) find(ctx context.Context) error {
	e := s.e
	m, err := e.wanted(ctx)
	if err != nil {
		return e.unreachable(err)
	}
	s.brokers = map[int32]string{}
	if all, err := kadm.NewClient(e.client).ListBrokers(ctx); err == nil {
		for _, b := range all {
			s.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
	}
	seen := map[batch.Partition]bool{}
	for _, name := range sortedKeys(m) {
		mt := m[name]
		t := &topic{name: name}
		t.learn(mt.TopicID)
		if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
			return transient("survey", err).At(batch.Partition{Source: e.id, Topic: name}, batch.NoOffset)
		}
		for i := range mt.Partitions {
			p := &mt.Partitions[i]
			id := batch.Partition{Source: e.id, Topic: name, Number: p.Partition}
			seen[id] = true
			u := &surveyed{Survey: emitter.Unasked(id, nil), topic: t, leader: p.Leader, leaderEpoch: p.LeaderEpoch}
			u.Identity = t.identity()
			if p.Leader < 0 || errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.LeaderNotAvailable) {
				u.leader = -1
				u.Err = batch.NewError(batch.Transient, batch.CodeUnavailable, "survey",
					errors.New("the partition has no leader"), "start the brokers that hold its replicas").At(id, batch.NoOffset)
			}
			s.parts = append(s.parts, u)
		}
	}
	for _, name := range e.cfg.Topics {
		if m[name] == nil {
			return e.topicMissing(name, e.nearest(ctx, name))
		}
	}
	for id, p := range s.saved { // order: results sorts them
		wanted := slices.Contains(e.cfg.Topics, id.Topic) || e.pattern != nil && e.pattern.MatchString(id.Topic)
		if !seen[id] && wanted {
			err := batch.NewError(batch.Permanent, batch.CodeTopicMissing, "survey", errors.New("the cluster doesn't have this partition any more"),
				"make the topic again with as many partitions as it had, or take it off the list").At(id, p.Next)
			s.parts = append(s.parts, &surveyed{Survey: emitter.Unasked(id, err), leader: -1})
		}
	}
	return nil
}

// loadCommitted asks the group of the start policy, if that counts.
func (s *surveyor) loadCommitted(ctx context.Context) error {
	if !s.first || s.e.cfg.Start.kind != startCommitted {
		return nil
	}
	var topics []string
	for _, u := range s.parts {
		topics = append(topics, u.Topic)
	}
	slices.Sort(topics)
	all, err := s.e.fetchCommitted(ctx, slices.Compact(topics))
	if err != nil {
		return err
	}
	s.committed = all
	return nil
}

func (s *surveyor) byLeader() map[int32][]*surveyed {
	by := map[int32][]*surveyed{}
	for _, u := range s.parts {
		if u.leader >= 0 {
			by[u.leader] = append(by[u.leader], u)
		}
	}
	return by
}

// ask puts all questions to one broker.
func (s *surveyor) ask(ctx context.Context, leader int32, parts []*surveyed) {
	iso := s.e.cfg.Isolation
	s.list(ctx, leader, parts, ReadUncommitted, tsEarliest, func(u *surveyed, o int64) { u.Start = o })
	s.list(ctx, leader, parts, iso, tsLatest, func(u *surveyed, o int64) { u.End = o })
	s.list(ctx, leader, parts, ReadUncommitted, tsLatest, func(u *surveyed, o int64) { u.LogEnd = max(o, u.End) })
	if !s.q.Time.IsZero() {
		s.list(ctx, leader, parts, iso, s.q.Time.UnixMilli(), func(u *surveyed, o int64) { u.At = orEnd(o, u) })
	}
	var timed []*surveyed
	for _, u := range parts {
		if u.Err == nil && s.begin(u) {
			timed = append(timed, u)
		}
	}
	if len(timed) > 0 {
		s.list(ctx, leader, timed, iso, s.e.cfg.Start.at.UnixMilli(), func(u *surveyed, o int64) { u.Begin = orEnd(o, u) })
	}
	if s.q.Oldest {
		s.readOldest(ctx, leader, parts)
	}
}

// orEnd is the answer to a question for a time: without a record that is as late, the end.
func orEnd(offset int64, u *surveyed) int64 {
	if offset < 0 {
		return u.End
	}
	return offset
}

// begin sets where a partition without a position would begin, or tells that this takes a question for a time.
func (s *surveyor) begin(u *surveyed) (byTime bool) {
	kind := s.e.cfg.Start.kind
	if !s.first {
		kind = startEarliest
	}
	if kind == startCommitted {
		if o, ok := s.committed.Lookup(u.Topic, u.Number); ok && o.At >= 0 {
			u.Begin = o.At
			return false
		}
		kind = s.e.cfg.Start.fallback
	}
	switch kind {
	case startLatest:
		u.Begin = u.End
	case startTimestamp:
		return true
	case startEarliest, startCommitted:
		u.Begin = u.Start
	}
	return false
}

// list asks one question about all partitions that have answered so far.
func (s *surveyor) list(ctx context.Context, leader int32, parts []*surveyed, iso Isolation, ts int64, into func(*surveyed, int64)) {
	var qs []query
	var asked []*surveyed
	for _, u := range parts {
		if u.Err == nil {
			qs = append(qs, query{id: u.Partition, epoch: u.leaderEpoch, ts: ts})
			asked = append(asked, u)
		}
	}
	if len(qs) == 0 {
		return
	}
	as, err := s.e.listOffsets(ctx, leader, iso, qs)
	for i, u := range asked {
		switch {
		case err != nil:
			s.fail(u, leader, err)
		case as[i].err != nil:
			s.fail(u, leader, as[i].err)
		default:
			into(u, as[i].offset)
		}
	}
}

// fail notes why a partition couldn't be asked: which broker, and where that should be.
func (s *surveyor) fail(u *surveyed, leader int32, err error) {
	who := fmt.Sprintf("broker %d", leader)
	if addr := s.brokers[leader]; addr != "" {
		who += " (" + addr + ")"
	}
	e := transient("survey", fmt.Errorf("%s: %w", who, err)).At(u.Partition, batch.NoOffset)
	if e.Remedy == "" {
		e.Remedy = "check that the broker runs and can be reached from here"
	}
	was := u.Survey
	u.Survey = emitter.Unasked(u.Partition, e)
	u.Identity = was.Identity
}

// readOldest reads the first record behind each position.
func (s *surveyor) readOldest(ctx context.Context, leader int32, parts []*surveyed) {
	slots := make(chan struct{}, surveyReads)
	var wg sync.WaitGroup
	for _, u := range parts {
		next := int64(-1)
		if p, ok := s.saved[u.Partition]; ok {
			next = p.Next
		}
		from := u.From(next)
		if u.Err != nil || from >= u.End {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			// That a time isn't known is no failure of the survey.
			u.Oldest, _ = s.timeAt(ctx, leader, u, from)
		})
	}
	wg.Wait()
}

// timeAt is the timestamp of the first record at an offset or behind it, below the end. What transactions took back, and
// their markers, are passed over.
func (s *surveyor) timeAt(ctx context.Context, leader int32, u *surveyed, from int64) (time.Time, error) {
	e := s.e
	opts := kgo.ProcessFetchPartitionOpts{Topic: u.Topic, Partition: u.Number, IsolationLevel: kgo.ReadUncommitted()}
	if e.cfg.Isolation == ReadCommitted {
		opts.IsolationLevel = kgo.ReadCommitted()
	}
	for from < u.End {
		// One batch at a time: of the first partition a broker sends at least that, whatever its limit.
		req := fetchRequest(e.cfg.Isolation, 0, DefaultFetchMaxBytes)
		t := fetchTopic(u.topic)
		t.Partitions = []kmsg.FetchRequestTopicPartition{fetchPartition(u.Number, from, u.leaderEpoch, 1)}
		req.Topics = append(req.Topics, t)
		resp, err := e.exchange(ctx, e.client, leader, req, 0)
		if err != nil {
			return time.Time{}, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return time.Time{}, errors.New("the broker's answer lacks the partition")
		}
		opts.Offset = from
		p, next := kgo.ProcessFetchPartition(opts, &resp.Topics[0].Partitions[0], e.dec, nil)
		if len(p.Records) > 0 {
			return p.Records[0].Timestamp.UTC(), nil
		}
		if p.Err != nil || next <= from {
			return time.Time{}, p.Err
		}
		from = next
	}
	return time.Time{}, nil
}

func (s *surveyor) results() []emitter.Survey {
	slices.SortFunc(s.parts, func(a, b *surveyed) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
	})
	all := make([]emitter.Survey, len(s.parts))
	for i, u := range s.parts {
		all[i] = u.Survey
	}
	return all
}
