package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tridentd/tridentd/batch"
)

// unsettled is a partition whose start or position a leader has to be asked about, as it stood when it was asked.
type unsettled struct {
	p           *partition
	state       state
	start       Start
	committed   int64
	next        int64
	epoch       int32
	leaderEpoch int32

	err                    error
	logStart, logEnd       int64 // the log as it is: its lowest offset and the high watermark
	end                    int64 // the end under the source's isolation
	atTime                 int64 // the first offset of the start's timestamp, -1 if none
	epochEnd               epochEnd
	needsEnd, needsAtTime  bool
	needsEpoch, needsCheck bool
}

// settle resolves the starts of partitions that have none, and holds positions that are to be verified against the
// log, with the leader's answers. It returns the starts and the permanent failures; what failed for now is noted in
// the partitions.
func (e *Emitter) settle(ctx context.Context, leader int32, parts []*partition) ([]batch.Position, map[*partition]*batch.Error) {
	var us []*unsettled
	for _, p := range parts {
		p.mu.Lock()
		u := &unsettled{
			p: p, state: p.state, start: p.start, committed: p.committed,
			next: p.buf.next, epoch: p.epoch, leaderEpoch: p.leaderEpoch,
		}
		verify := p.verify
		p.mu.Unlock()
		switch {
		case u.state == unresolved:
			kind := u.start.kind
			if kind == startCommitted && u.committed < 0 {
				kind = u.start.fallback
			}
			u.start.kind = kind
			u.needsEnd = kind == startLatest || kind == startTimestamp
			u.needsAtTime = kind == startTimestamp
			u.needsCheck = kind == startCommitted
		case u.state == admitted && verify:
			u.needsCheck = true
			u.needsEpoch = u.epoch != batch.NoEpoch
		default:
			continue
		}
		us = append(us, u)
	}
	if len(us) == 0 {
		return nil, nil
	}
	e.ask(ctx, leader, us)

	var starts []batch.Position
	bad := map[*partition]*batch.Error{}
	for _, u := range us {
		if u.err != nil {
			e.askMetadata()
			u.p.mu.Lock()
			u.p.fail(transient("open", fmt.Errorf("broker %d: %w", leader, u.err)), e.now())
			u.p.mu.Unlock()
			continue
		}
		if err := u.check(); err != nil {
			// The answers are by the topic's name: it may be another topic by now.
			if changed := e.changed(ctx, u.p, u.next); changed != nil {
				err = changed
			}
			bad[u.p] = err
			continue
		}
		if pos, ok := u.apply(); ok {
			starts = append(starts, pos)
		}
	}
	return starts, bad
}

// ask fills in what us need to know.
func (e *Emitter) ask(ctx context.Context, leader int32, us []*unsettled) {
	offsets := func(iso Isolation, ts func(*unsettled) int64, needs func(*unsettled) bool, into func(*unsettled, int64)) {
		var qs []query
		var asked []*unsettled
		for _, u := range us {
			if u.err == nil && needs(u) {
				qs = append(qs, query{id: u.p.id, epoch: u.leaderEpoch, ts: ts(u)})
				asked = append(asked, u)
			}
		}
		if len(qs) == 0 {
			return
		}
		as, err := e.listOffsets(ctx, leader, iso, qs)
		for i, u := range asked {
			if err != nil {
				u.err = err
			} else if u.err = as[i].err; u.err == nil {
				into(u, as[i].offset)
			}
		}
	}
	fixed := func(ts int64) func(*unsettled) int64 { return func(*unsettled) int64 { return ts } }
	all := func(*unsettled) bool { return true }

	offsets(ReadUncommitted, fixed(tsEarliest), all, func(u *unsettled, o int64) { u.logStart = o })
	offsets(ReadUncommitted, fixed(tsLatest), func(u *unsettled) bool { return u.needsCheck }, func(u *unsettled, o int64) { u.logEnd = o })
	offsets(e.cfg.Isolation, fixed(tsLatest), func(u *unsettled) bool { return u.needsEnd }, func(u *unsettled, o int64) { u.end = o })
	offsets(e.cfg.Isolation, func(u *unsettled) int64 { return u.start.at.UnixMilli() },
		func(u *unsettled) bool { return u.needsAtTime }, func(u *unsettled, o int64) { u.atTime = o })

	var qs []query
	var asked []*unsettled
	for _, u := range us {
		if u.err == nil && u.needsEpoch {
			qs = append(qs, query{id: u.p.id, epoch: u.leaderEpoch, ts: int64(u.epoch)})
			asked = append(asked, u)
		}
	}
	if len(qs) == 0 {
		return
	}
	as, err := e.epochEnds(ctx, leader, qs)
	for i, u := range asked {
		switch {
		case err != nil:
			u.err = err
		default:
			u.epochEnd, u.err = as[i], as[i].err
		}
	}
}

// check holds the position, or the group's committed offset, against the log.
func (u *unsettled) check() *batch.Error {
	if !u.needsCheck {
		return nil
	}
	if u.state == unresolved {
		if u.committed < u.logStart || u.committed > u.logEnd {
			err := outOfRange(u.p.id, u.committed, u.logStart, u.logEnd)
			err.Err = fmt.Errorf("topic %s partition %d: the group's committed offset %d lies outside of what is available, [%d,%d)",
				u.p.id.Topic, u.p.id.Number, u.committed, u.logStart, u.logEnd)
			err.Remedy = "choose another start, or reset the group's offset"
			return err
		}
		return nil
	}
	if u.needsEpoch {
		ee := u.epochEnd
		unknown := ee.epoch == batch.NoEpoch || ee.offset < 0
		switch {
		case unknown && u.leaderEpoch != batch.NoEpoch && u.leaderEpoch < u.epoch:
			// The leader has never heard of the epoch: the log is of another history.
			return truncated(u.p.id, u.next, u.logEnd, u.epoch, u.leaderEpoch)
		case unknown:
		case ee.offset < u.next && u.logEnd < u.next:
			return truncated(u.p.id, u.next, u.logEnd, u.epoch, u.leaderEpoch)
		case ee.offset < u.next || ee.epoch < u.epoch:
			return diverged(u.p.id, u.next, min(ee.offset, u.next-1), u.epoch, u.leaderEpoch)
		}
	}
	switch {
	case u.next < u.logStart:
		return outOfRange(u.p.id, u.next, u.logStart, u.logEnd)
	case u.next > u.logEnd:
		return truncated(u.p.id, u.next, u.logEnd, u.epoch, u.leaderEpoch)
	}
	return nil
}

// apply takes the answers over into the partition. It returns the start of one that had none.
func (u *unsettled) apply() (batch.Position, bool) {
	p := u.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.well()
	if p.state == admitted {
		if u.state == admitted && p.leaderEpoch == u.leaderEpoch {
			p.verify = false
		}
		return batch.Position{}, false
	}
	if p.state != unresolved {
		return batch.Position{}, false
	}
	next := u.logStart
	switch u.start.kind {
	case startLatest:
		next = u.end
	case startTimestamp:
		if next = u.atTime; next < 0 {
			next = u.end
		}
	case startCommitted:
		next = u.committed
	case startEarliest:
	}
	p.state = offered
	p.rewind(next, batch.NoEpoch)
	return p.position(), true
}

// changed says whether the topic's name stands for another topic than p's by now.
func (e *Emitter) changed(ctx context.Context, p *partition, next int64) *batch.Error {
	known := p.topic.identity()
	if known == "" {
		return nil
	}
	m, err := e.metadata(ctx, []string{p.id.Topic})
	if err != nil || m[p.id.Topic] == nil {
		return nil
	}
	if id := formatID(m[p.id.Topic].TopicID); id != "" && id != known {
		return topicChanged(p.id, next, known, id)
	}
	return nil
}

// movesLeader says whether an error means that metadata has to be asked for again.
func movesLeader(err error) bool {
	for _, k := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID,
		kerr.InconsistentTopicID, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.ReplicaNotAvailable, kerr.KafkaStorageError,
	} {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}
