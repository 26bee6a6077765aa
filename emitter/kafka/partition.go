package kafka

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
)

// state is how far a partition has come.
type state uint8

const (
	unresolved state = iota // its start isn't known yet
	offered                 // its start was given to the caller, who makes it durable
	admitted                // takes part in planning
)

// topicID is a Kafka topic id; zero if the cluster has none.
type topicID = [16]byte

// partition is what the emitter knows of one partition.
type partition struct {
	id    batch.Partition
	topic *topic
	log   hclog.Logger

	mu    sync.Mutex
	state state
	start Start // how to resolve the start; Earliest for those that appeared later
	// committed is the offset that the group of Start "committed" holds, -1 if none.
	committed int64

	leader      int32 // broker id, -1 while there is none
	leaderEpoch int32

	// verify says that the position must be held against the log before the next fetch: after opening, and
	// whenever the leader epoch has changed.
	verify bool
	// epoch is the leader epoch of the last batch below buf.next.
	epoch int32
	buf   buffer
	// generation changes when fetching begins elsewhere: what an earlier fetch brings is dropped.
	generation uint64

	askedAt  time.Time // when the fetch under way was sent; zero if there is none
	answered bool
	lso      int64 // last stable offset, high watermark and log start of the last answer; -1 if unknown
	hw       int64
	logStart int64

	err      *batch.Error // why it can't be read at the moment
	errSince time.Time
	retryAt  time.Time
	backoff  time.Duration
	failed   bool // a permanent error was reported; it isn't read any more
}

func newPartition(id batch.Partition, t *topic, start Start, log hclog.Logger) *partition {
	return &partition{
		id: id, topic: t, log: log.With("topic", id.Topic, "partition", id.Number), start: start, committed: -1,
		leader: -1, leaderEpoch: batch.NoEpoch, epoch: batch.NoEpoch,
		lso: -1, hw: -1, logStart: -1,
	}
}

// Back-off of a partition whose requests fail.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// fail notes a transient error. The caller holds p.mu.
func (p *partition) fail(err *batch.Error, now time.Time) {
	if p.err == nil {
		p.errSince = now
		p.log.Warn("the partition can't be read", "error", err.Err)
	}
	offset := batch.NoOffset
	if p.state == admitted {
		offset = p.buf.next
	}
	p.err = err.At(p.id, offset)
	p.backoff = min(max(2*p.backoff, minBackoff), maxBackoff)
	p.retryAt = now.Add(p.backoff)
}

// well notes that the partition's leader has answered. The caller holds p.mu.
func (p *partition) well() {
	if p.err != nil {
		p.log.Info("the partition can be read again", "failing_since", p.errSince)
	}
	p.err, p.errSince, p.retryAt, p.backoff = nil, time.Time{}, time.Time{}, 0
}

// rewind makes fetching begin at next. epoch is the leader epoch of the last record below, if it is known. The
// caller holds p.mu.
func (p *partition) rewind(next int64, epoch int32) {
	p.buf.reset(next)
	p.epoch = epoch
	p.generation++
	p.answered = false
}

// position is where fetching stands. The caller holds p.mu.
func (p *partition) position() batch.Position {
	return batch.Position{Partition: p.id, Next: p.buf.next, Identity: p.topic.identity(), LeaderEpoch: p.epoch}
}

// trouble is what keeps the partition from being read; nil if it is well. The caller holds p.mu.
func (p *partition) trouble(now time.Time) error {
	if p.err != nil {
		e := *p.err
		e.Err = fmt.Errorf("%w (since %s)", p.err.Err, p.errSince.UTC().Format(time.RFC3339))
		return &e
	}
	if p.silent(now) {
		err := fmt.Errorf("broker %d has not answered for %v", p.leader, now.Sub(p.askedAt).Round(time.Second))
		return batch.NewError(batch.Transient, batch.CodeTimeout, "read", err, "").At(p.id, p.buf.next)
	}
	return nil
}

// silence is how long an answer may be overdue before the partition counts as troubled.
const silence = 3 * time.Second

func (p *partition) silent(now time.Time) bool {
	return !p.askedAt.IsZero() && now.Sub(p.askedAt) > maxWait+silence
}
