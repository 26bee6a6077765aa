package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/names"
)

// topic is what the emitter knows of one topic. All but id is guarded by Emitter.mu.
type topic struct {
	name string
	id   atomic.Pointer[knownID] // never changes once it is known: another id is another topic

	missingSince time.Time // when metadata first lacked the topic; zero while it is there
	other        topicID   // another id that was seen for the name last time
}

// knownID is a topic id, with the text by which it stands in positions.
type knownID struct {
	id   topicID
	text string
}

// learn takes over the topic's id, unless it is known. Clusters before 2.8 have none.
func (t *topic) learn(id topicID) {
	if id != (topicID{}) {
		t.id.CompareAndSwap(nil, &knownID{id: id, text: formatID(id)})
	}
}

// identity is how the topic's id stands in positions, and how Kafka's own tools print it; empty if it has none.
func (t *topic) identity() string {
	if k := t.id.Load(); k != nil {
		return k.text
	}
	return ""
}

func formatID(id topicID) string {
	if id == (topicID{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// settleTime is how long brokers may disagree about a topic that was just made or deleted.
const settleTime = 500 * time.Millisecond

// metadata asks any broker about topics; nil asks for all. Topics are never created by it.
func (e *Emitter) metadata(ctx context.Context, topics []string) (map[string]*kmsg.MetadataResponseTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if topics == nil {
		req.Topics = nil
	}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, e.client)
	if err != nil {
		return nil, err
	}
	m := make(map[string]*kmsg.MetadataResponseTopic, len(resp.Topics))
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			m[*t.Topic] = t
		}
	}
	return m, nil
}

// wanted asks about the topics of this source. Topics that don't exist are left out, those that can't be told are
// in the result with their error.
func (e *Emitter) wanted(ctx context.Context) (map[string]*kmsg.MetadataResponseTopic, error) {
	m, err := e.metadata(ctx, e.cfg.Topics)
	if err != nil {
		return nil, err
	}
	for name, t := range m {
		err := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			delete(m, name)
		case e.pattern != nil && (t.IsInternal || !e.pattern.MatchString(name)):
			delete(m, name)
		}
	}
	return m, nil
}

// nearest finds an existing topic whose name is much like the one that is missing.
func (e *Emitter) nearest(ctx context.Context, missing string) string {
	m, err := e.metadata(ctx, nil)
	if err != nil {
		return ""
	}
	var there []string
	for name, t := range m {
		if !t.IsInternal {
			there = append(there, name)
		}
	}
	slices.Sort(there)
	near, _ := names.Nearest(missing, there)
	return near
}

// update takes over what metadata says: leaders, new partitions and topics, and those that are gone. It returns
// permanent failures, by partition.
func (e *Emitter) update(m map[string]*kmsg.MetadataResponseTopic) map[*partition]*batch.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	bad := map[*partition]*batch.Error{}
	for _, name := range sortedKeys(m) {
		mt := m[name]
		t := e.topics[name]
		if t == nil {
			t = &topic{name: name}
			e.topics[name] = t
		}
		t.missingSince = time.Time{}
		if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
			e.each(t, func(p *partition) { p.fail(transient("metadata", err), now) })
			continue
		}
		if known := t.id.Load(); known == nil {
			t.learn(mt.TopicID)
		} else if mt.TopicID != known.id && mt.TopicID != (topicID{}) {
			// Said once, it may be a broker that lags behind.
			if t.other == mt.TopicID {
				e.each(t, func(p *partition) {
					bad[p] = topicChanged(p.id, p.buf.next, known.text, formatID(mt.TopicID))
				})
			}
			t.other = mt.TopicID
			continue
		}
		t.other = topicID{}
		e.updatePartitions(t, mt, now)
	}
	for name, t := range e.topics {
		if m[name] != nil {
			continue
		}
		if t.missingSince.IsZero() {
			t.missingSince = now
		}
		gone := now.Sub(t.missingSince) >= e.cfg.Timeout
		e.each(t, func(p *partition) {
			if gone {
				bad[p] = topicGone(p.id, p.buf.next)
				return
			}
			p.fail(transient("metadata", fmt.Errorf("topic %s is not in the cluster's metadata", name)), now)
		})
	}
	return bad
}

// each calls f for the partitions of t, with their locks held. The caller holds e.mu.
func (e *Emitter) each(t *topic, f func(*partition)) {
	for _, p := range e.sorted {
		if p.topic == t {
			p.mu.Lock()
			f(p)
			p.mu.Unlock()
		}
	}
}

func (e *Emitter) updatePartitions(t *topic, mt *kmsg.MetadataResponseTopic, now time.Time) {
	seen := make(map[int32]bool, len(mt.Partitions))
	for _, mp := range mt.Partitions {
		seen[mp.Partition] = true
		id := batch.Partition{Source: e.id, Topic: t.name, Number: mp.Partition}
		p := e.partitions[id]
		if p == nil {
			start := Earliest
			if !e.opened && e.first {
				start = e.cfg.Start
			}
			p = newPartition(id, t, start, e.log)
			e.know(p)
			if e.opened {
				e.log.Info("partition appeared", "topic", t.name, "partition", mp.Partition)
			}
		}
		p.mu.Lock()
		e.lead(p, &mp, now)
		p.mu.Unlock()
	}
	e.each(t, func(p *partition) {
		if !seen[p.id.Number] {
			p.leader = -1
			p.fail(batch.NewError(batch.Transient, batch.CodeUnavailable, "metadata", errors.New("the partition is not in the cluster's metadata"), ""), now)
		}
	})
}

// lead takes over a partition's leader. The caller holds e.mu and p.mu.
func (e *Emitter) lead(p *partition, mp *kmsg.MetadataResponseTopicPartition, now time.Time) {
	if mp.LeaderEpoch != batch.NoEpoch && mp.LeaderEpoch < p.leaderEpoch {
		return // a broker that lags behind
	}
	if mp.Leader < 0 || errors.Is(kerr.ErrorForCode(mp.ErrorCode), kerr.LeaderNotAvailable) {
		p.leader = -1
		p.fail(batch.NewError(batch.Transient, batch.CodeUnavailable, "metadata", errors.New("the partition has no leader"),
			"start the brokers that hold its replicas"), now)
		return
	}
	if p.leader == -1 || p.leader != mp.Leader {
		p.retryAt = time.Time{} // another broker: no reason to wait
	}
	if mp.LeaderEpoch != p.leaderEpoch {
		p.verify = p.state == admitted
		p.leaderEpoch = mp.LeaderEpoch
	}
	p.leader = mp.Leader
	if e.opened && !e.closed {
		e.fetcherOf(p.leader).nudge()
	}
}

// watch asks for metadata now and then, and sooner while something is wrong.
func (e *Emitter) watch() {
	defer e.wg.Done()
	pause := minBackoff
	silent := false // the cluster didn't answer last time
	for {
		wait := e.cfg.DiscoverEvery
		if e.troubled() {
			wait = min(pause, wait)
			pause = min(2*pause, maxBackoff)
		} else {
			pause = minBackoff
		}
		timer := time.NewTimer(wait)
		select {
		case <-e.ctx.Done():
			timer.Stop()
			return
		case <-e.poke:
			timer.Stop()
			// Many partitions may ask at once: one answer does for all.
			select {
			case <-e.ctx.Done():
				return
			case <-time.After(minBackoff):
			}
			select {
			case <-e.poke:
			default:
			}
		case <-timer.C:
		}
		m, err := e.wanted(e.ctx)
		if err != nil {
			if e.ctx.Err() == nil && !silent {
				e.log.Warn("no metadata from the cluster", "brokers", e.cfg.Brokers, "error", err)
			}
			silent = true
			continue
		}
		bad := e.update(m)
		if silent {
			silent = false
			e.log.Info("the cluster answers again", "brokers", e.cfg.Brokers)
			e.hurry()
		}
		for _, p := range sortedParts(bad) {
			if e.retire(p, bad[p]) {
				continue
			}
			e.stop(p, bad[p])
		}
	}
}

// hurry lets partitions that wait for their next try have it now.
func (e *Emitter) hurry() {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, p := range e.sorted {
		p.mu.Lock()
		p.retryAt = time.Time{}
		leader := p.leader
		p.mu.Unlock()
		e.wake(leader)
	}
}

// retire takes a deleted topic's partition out of planning where a pattern chose it: a pattern reads what there is.
func (e *Emitter) retire(p *partition, err *batch.Error) bool {
	if e.pattern == nil || err.Code != batch.CodeTopicMissing {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	e.log.Warn("a topic that the pattern chose was deleted; it isn't read any more", "topic", p.id.Topic, "partition", p.id.Number, "offset", p.buf.planned)
	e.buffered.Add(-p.buf.total)
	p.failed = true
	delete(e.partitions, p.id)
	delete(e.topics, p.id.Topic)
	e.sorted = slices.DeleteFunc(e.sorted, func(q *partition) bool { return q == p })
	e.order = slices.DeleteFunc(e.order, func(id batch.Partition) bool { return id == p.id })
	return true
}

// troubled says whether metadata may tell more soon.
func (e *Emitter) troubled() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, t := range e.topics {
		if t.other != (topicID{}) || !t.missingSince.IsZero() {
			return true
		}
	}
	for _, p := range e.sorted {
		p.mu.Lock()
		bad := p.err != nil && !p.failed
		p.mu.Unlock()
		if bad {
			return true
		}
	}
	return false
}

// askMetadata makes watch ask soon.
func (e *Emitter) askMetadata() {
	select {
	case e.poke <- struct{}{}:
	default:
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func sortedParts[V any](m map[*partition]V) []*partition {
	ps := make([]*partition, 0, len(m))
	for p := range m {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *partition) int { return a.id.Compare(b.id) })
	return ps
}
