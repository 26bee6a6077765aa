package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
)

// openPatience bounds how long Open waits for single brokers once the cluster has answered. Their partitions are
// settled in the background when they come back.
const openPatience = 10 * time.Second

// Open begins reading. A cluster that can't be reached, or doesn't answer within Config.Timeout, is a transient
// error; partitions without a leader, or whose leader is away, don't hold Open up: they show in Status and join when
// they can.
func (e *Emitter) Open(ctx context.Context, saved []batch.Position, first bool) ([]batch.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	e.mu.Lock()
	if e.opened || e.closed {
		e.mu.Unlock()
		panic("kafka: Open of an emitter that was opened or closed before")
	}
	e.first = first
	client, err := kgo.NewClient(e.opts...)
	e.client = client
	e.mu.Unlock()
	if err != nil {
		return nil, configError("kafka", "correct the client's options", "%w", err)
	}

	m, err := e.openMetadata(ctx, saved)
	if err != nil {
		return nil, err
	}
	e.restore(m, saved)
	e.update(m)
	if err := e.loadCommitted(ctx); err != nil {
		return nil, err
	}

	starts, err := e.settleAll(ctx)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, batch.NewError(batch.Transient, batch.CodeUnavailable, "open", fmt.Errorf("source %s was closed", e.id), "")
	}
	e.opened = true
	e.wg.Add(2)
	go e.watch()
	go e.warnCompacted(sortedKeys(m))
	for _, p := range e.sorted {
		p.mu.Lock()
		if p.leader >= 0 {
			e.fetcherOf(p.leader)
		}
		p.mu.Unlock()
	}
	return starts, nil
}

// openMetadata asks until the cluster answers and says nothing that may be a lagging broker's word: a topic that is
// missing or has another id than saved is asked for once more. It soon gives up on a cluster that can't be reached:
// who opens the source shows the cause then, and tries again with growing pauses.
func (e *Emitter) openMetadata(ctx context.Context, saved []batch.Position) (map[string]*kmsg.MetadataResponseTopic, error) {
	var last *batch.Error
	for doubts, failures := 0, 0; ; {
		m, err := e.wanted(ctx)
		switch {
		case err != nil:
			if last == nil || !errors.Is(err, context.DeadlineExceeded) { // the cause says more than the end of patience
				last = e.unreachable(err)
			}
			if last.Kind == batch.Permanent {
				return nil, last
			}
			if failures++; failures > 2+len(e.cfg.Brokers) { // each has been tried
				return nil, last
			}
		default:
			if last = e.doubt(ctx, m, saved); last == nil {
				return m, nil
			}
			if doubts++; doubts > 2 {
				return nil, last
			}
		}
		if err := sleep(ctx, settleTime); err != nil {
			return nil, last
		}
	}
}

// doubt returns what is wrong with the topics, if anything.
func (e *Emitter) doubt(ctx context.Context, m map[string]*kmsg.MetadataResponseTopic, saved []batch.Position) *batch.Error {
	for _, name := range e.cfg.Topics {
		if m[name] == nil {
			return e.topicMissing(name, e.nearest(ctx, name))
		}
	}
	for _, name := range sortedKeys(m) {
		if err := kerr.ErrorForCode(m[name].ErrorCode); err != nil && isRefused(err) {
			e := transient("open", err).At(batch.Partition{Source: e.id, Topic: name}, batch.NoOffset)
			e.Kind = batch.Permanent
			return e
		}
	}
	for _, pos := range saved {
		t := m[pos.Topic]
		if t == nil || pos.Source != e.id || pos.Identity == "" {
			continue
		}
		if id := formatID(t.TopicID); id != "" && id != pos.Identity {
			return topicChanged(pos.Partition, pos.Next, pos.Identity, id)
		}
	}
	return nil
}

// restore takes over the saved positions of the topics that are wanted.
func (e *Emitter) restore(m map[string]*kmsg.MetadataResponseTopic, saved []batch.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pos := range saved {
		mt := m[pos.Topic]
		switch {
		case pos.Source != e.id:
			continue
		case mt == nil && e.pattern != nil && e.pattern.MatchString(pos.Topic):
			e.log.Warn("a topic with a saved position does not exist; its position is kept", "topic", pos.Topic, "partition", pos.Number, "offset", pos.Next)
			continue
		case mt == nil:
			continue
		}
		t := e.topics[pos.Topic]
		if t == nil {
			t = &topic{name: pos.Topic}
			t.learn(mt.TopicID)
			e.topics[pos.Topic] = t
		}
		p := newPartition(pos.Partition, t, Earliest, e.log)
		p.state, p.verify = admitted, true
		p.rewind(pos.Next, pos.LeaderEpoch)
		e.know(p)
		e.order = append(e.order, p.id)
	}
	slices.SortFunc(e.order, batch.Partition.Compare)
}

// loadCommitted asks the group for its offsets, where the start policy needs them.
func (e *Emitter) loadCommitted(ctx context.Context) error {
	var need []*partition
	topics := map[string]bool{}
	e.mu.RLock()
	for _, p := range e.sorted {
		if p.state == unresolved && p.start.kind == startCommitted {
			need = append(need, p)
			topics[p.id.Topic] = true
		}
	}
	e.mu.RUnlock()
	if len(need) == 0 {
		return nil
	}
	offsets, err := e.fetchCommitted(ctx, sortedKeys(topics))
	if err != nil {
		return err
	}
	for _, p := range need {
		if o, ok := offsets.Lookup(p.id.Topic, p.id.Number); ok {
			p.mu.Lock()
			p.committed = o.At
			p.mu.Unlock()
		}
	}
	return nil
}

// fetchCommitted asks for the offsets of the start policy's group. One that isn't there has none.
func (e *Emitter) fetchCommitted(ctx context.Context, topics []string) (kadm.OffsetResponses, error) {
	offsets, err := kadm.NewClient(e.client).FetchOffsetsForTopics(kadm.RequireStable(ctx), e.cfg.Group, topics...)
	if err == nil {
		err = offsets.Error()
	}
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil, nil
	case err != nil:
		return nil, e.unreachable(fmt.Errorf("offsets of group %s: %w", e.cfg.Group, err))
	}
	return offsets, nil
}

// warnCompacted says which topics are compacted: what compaction has passed over can't be replayed. Without the right
// to see a topic's settings nothing is said.
func (e *Emitter) warnCompacted(topics []string) {
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.Timeout)
	defer cancel()
	configs, err := kadm.NewClient(e.client).DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return
	}
	for _, c := range configs {
		for _, v := range c.Configs {
			if v.Key == "cleanup.policy" && strings.Contains(v.MaybeValue(), "compact") {
				e.log.Warn("the topic is compacted: its batches can't be replayed once compaction has taken some of their records", "topic", c.Name)
			}
		}
	}
}

// settleAll settles what the leaders answer for within openPatience.
func (e *Emitter) settleAll(ctx context.Context) ([]batch.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, min(openPatience, e.cfg.Timeout))
	defer cancel()
	byLeader := map[int32][]*partition{}
	e.mu.RLock()
	for _, p := range e.sorted {
		p.mu.Lock()
		if p.leader >= 0 {
			byLeader[p.leader] = append(byLeader[p.leader], p)
		}
		p.mu.Unlock()
	}
	e.mu.RUnlock()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var starts []batch.Position
	bad := map[*partition]*batch.Error{}
	for leader, ps := range byLeader {
		wg.Go(func() {
			s, b := e.settle(ctx, leader, ps)
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, s...)
			maps.Copy(bad, b)
		})
	}
	wg.Wait()
	if ps := sortedParts(bad); len(ps) > 0 {
		return nil, bad[ps[0]]
	}
	slices.SortFunc(starts, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	return starts, nil
}

// sleep waits, or returns the reason why ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
