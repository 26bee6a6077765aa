package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
)

// scratch is the memory of one Read, used again by others.
type scratch struct {
	dec  decoder
	segs []segment
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Read passes the records of r to yield: from the buffer, or fetched again.
func (e *Emitter) Read(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	s := scratches.Get().(*scratch)
	defer func() {
		clear(s.segs)
		s.segs = s.segs[:0]
		scratches.Put(s)
	}()
	if p := e.partition(r.Partition); p != nil {
		p.mu.Lock()
		same := r.Identity == "" || r.Identity == p.topic.identity()
		held := same && p.state == admitted && p.buf.holds(r.Start, r.End)
		if held {
			s.segs = p.buf.view(s.segs, r.Start, r.End)
		}
		p.mu.Unlock()
		if held {
			for i := range s.segs {
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				if err := s.dec.decode(r.Partition, &s.segs[i], r.Start, r.End, yield); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return e.replay.read(ctx, r, &s.dec, yield)
}

// replayer fetches ranges that are no longer buffered, over connections of its own. What a response holds beyond
// the range that it was fetched for is kept for the next one, so that a replay of many small ranges in a row
// fetches each record once, also if several of them are read at a time: a reader waits for the one whose range ends where its
// own begins, until that has fetched all that it needs. They decode beside each other.
type replayer struct {
	e *Emitter

	mu     sync.Mutex
	client *kgo.Client // nil until the first use
	closed bool
	left   map[batch.Partition]*leftover
	// fetching has, for each reader that may still fetch, where its range ends; the channel is closed when it has done.
	fetching map[batch.Position]chan struct{}
	places   map[batch.Partition]*place // where the last fetch of a partition went to
}

// leftover holds the segments of one partition's last response.
type leftover struct {
	identity string
	buf      buffer
}

// turn waits until the reader of the range before r has fetched what it needs, if there is one. done tells the reader of the range
// behind r that it needn't wait any more.
func (y *replayer) turn(ctx context.Context, r batch.Range) (done func(), err error) {
	start, end := batch.Position{Partition: r.Partition, Next: r.Start}, batch.Position{Partition: r.Partition, Next: r.End}
	mine := make(chan struct{})
	y.mu.Lock()
	before := y.fetching[start]
	y.fetching[end] = mine
	y.mu.Unlock()
	done = sync.OnceFunc(func() {
		y.mu.Lock()
		if y.fetching[end] == mine { // another may read the same range
			delete(y.fetching, end)
		}
		y.mu.Unlock()
		close(mine)
	})
	if before != nil && r.Start < r.End {
		select {
		case <-before:
		case <-ctx.Done():
			done()
			return nil, context.Cause(ctx)
		}
	}
	return done, nil
}

// placeOf is where a range of a partition was fetched from last, if that was the same topic; nil elsewhere.
func (y *replayer) placeOf(r batch.Range) *place {
	y.mu.Lock()
	defer y.mu.Unlock()
	if at := y.places[r.Partition]; at != nil && r.Identity != "" && at.topic.identity() == r.Identity {
		return at
	}
	return nil
}

// found keeps where a partition can be fetched; nil forgets it.
func (y *replayer) found(p batch.Partition, at *place) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if at == nil {
		delete(y.places, p)
	} else {
		y.places[p] = at
	}
}

// note keeps a place inside a segment that reading has found, for the range behind.
func (y *replayer) note(p batch.Partition, base int64, c cut) {
	y.mu.Lock()
	defer y.mu.Unlock()
	l := y.left[p]
	if l == nil {
		return
	}
	if i := l.buf.find(c.offset); i < len(l.buf.segs) && l.buf.segs[i].base == base && l.buf.segs[i].data != nil {
		l.buf.segs[i].note(c)
	}
}

func newReplayer(e *Emitter) *replayer {
	return &replayer{e: e, left: map[batch.Partition]*leftover{}, fetching: map[batch.Position]chan struct{}{}, places: map[batch.Partition]*place{}}
}

func (y *replayer) connect() (*kgo.Client, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.closed {
		return nil, batch.NewError(batch.Transient, batch.CodeUnavailable, "read", fmt.Errorf("source %s was closed", y.e.id), "")
	}
	if y.client == nil {
		client, err := kgo.NewClient(y.e.opts...)
		if err != nil {
			return nil, configError("kafka", "correct the client's options", "%w", err)
		}
		y.client = client
	}
	return y.client, nil
}

func (y *replayer) close() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.closed = true
	if y.client != nil {
		y.client.Close()
	}
}

// forget drops what is kept of a partition, unless it reaches beyond offset.
func (y *replayer) forget(p batch.Partition, offset int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if l := y.left[p]; l != nil && l.buf.next <= offset {
		delete(y.left, p)
	}
}

// take returns what is kept of a partition, for the caller alone, if it holds offset.
func (y *replayer) take(r batch.Range, offset int64) *leftover {
	y.mu.Lock()
	defer y.mu.Unlock()
	l := y.left[r.Partition]
	delete(y.left, r.Partition)
	if l == nil || !l.buf.holds(offset, offset) || offset >= l.buf.next || r.Identity != "" && l.identity != r.Identity {
		return nil
	}
	return l
}

func (y *replayer) keep(p batch.Partition, l *leftover) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.closed {
		y.left[p] = l
	}
}

// place is where a partition is led, as metadata says.
type place struct {
	leader int32
	topic  *topic
}

func (y *replayer) read(ctx context.Context, r batch.Range, dec *decoder, yield func(*batch.Chunk) error) error {
	client, err := y.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(y.e.ctx, func() { cancel(errors.New("the source was closed")) })()

	done, err := y.turn(ctx, r)
	if err != nil {
		return err
	}
	defer done()
	next := r.Start
	var segs []segment // of r, up to next
	l := y.take(r, next)
	at := y.placeOf(r)
	deadline := y.e.now().Add(y.e.cfg.Timeout) // for progress
	pause := minBackoff
	for {
		if l != nil && next < r.End && next < l.buf.next {
			segs = l.buf.view(segs, next, r.End)
			next = min(l.buf.next, r.End)
			deadline, pause = y.e.now().Add(y.e.cfg.Timeout), minBackoff
		}
		if next >= r.End {
			if l != nil {
				y.keep(r.Partition, l)
			}
			done()
			return y.decode(r, segs, dec, yield)
		}
		if at == nil {
			if at, err = y.locate(ctx, r, next); err == nil {
				y.found(r.Partition, at)
			}
		}
		if at != nil {
			l, err = y.fetch(ctx, client, at, r, next)
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		var e *batch.Error
		switch {
		case err == nil && l != nil:
			continue
		case errors.As(err, &e) && e.Kind == batch.Permanent:
			return err
		case err != nil:
			at = nil
			y.found(r.Partition, nil)
		}
		// No answer, or nothing to be read at next although the range goes on: the broker may be behind.
		if y.e.now().After(deadline) {
			if err == nil {
				err = fmt.Errorf("the broker returns nothing at offset %d for %v", next, y.e.cfg.Timeout)
			}
			return transient("read", fmt.Errorf("topic %s partition %d [%d,%d): %w", r.Topic, r.Number, r.Start, r.End, err)).At(r.Partition, next)
		}
		if err == nil {
			if err := y.shortened(ctx, at, r); err != nil {
				return err
			}
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, maxBackoff)
	}
}

func (y *replayer) decode(r batch.Range, segs []segment, dec *decoder, yield func(*batch.Chunk) error) error {
	for i := range segs {
		s := &segs[i]
		dec.cut = cut{}
		if err := dec.decode(r.Partition, s, r.Start, r.End, yield); err != nil {
			return err
		}
		if dec.cut.index > 0 {
			y.note(r.Partition, s.base, dec.cut)
		}
	}
	return nil
}

// locate finds the leader of r's partition, and makes sure that the topic is the one that r was read from.
func (y *replayer) locate(ctx context.Context, r batch.Range, next int64) (*place, error) {
	m, err := y.e.metadata(ctx, []string{r.Topic})
	if err != nil {
		return nil, err
	}
	mt := m[r.Topic]
	if mt == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
		return nil, err
	}
	if id := formatID(mt.TopicID); r.Identity != "" && id != "" && id != r.Identity {
		return nil, unreplayable(r, next, "the topic was deleted and made again, its id was %s and is %s now", r.Identity, id)
	}
	for _, mp := range mt.Partitions {
		if mp.Partition != r.Number {
			continue
		}
		if mp.Leader < 0 {
			return nil, kerr.LeaderNotAvailable
		}
		t := &topic{name: r.Topic}
		t.learn(mt.TopicID)
		return &place{leader: mp.Leader, topic: t}, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// fetch gets the segments at next. Nil without an error means that the broker has nothing to give there now.
func (y *replayer) fetch(ctx context.Context, client *kgo.Client, at *place, r batch.Range, next int64) (*leftover, error) {
	e := y.e
	req := fetchRequest(e.cfg.Isolation, minWait, max(e.cfg.FetchMaxBytes, 1))
	rt := fetchTopic(at.topic)
	rt.Partitions = append(rt.Partitions, fetchPartition(r.Number, next, batch.NoEpoch, e.cfg.FetchMaxBytes))
	req.Topics = append(req.Topics, rt)
	resp, err := e.exchange(ctx, client, at.leader, req, minWait)
	if err != nil {
		return nil, fmt.Errorf("broker %d: %w", at.leader, err)
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			if rp.Partition != r.Number {
				continue
			}
			return y.parse(ctx, at, r, next, rp)
		}
	}
	return nil, errors.New("the broker's answer lacks the partition")
}

func (y *replayer) parse(ctx context.Context, at *place, r batch.Range, next int64, rp *kmsg.FetchResponseTopicPartition) (*leftover, error) {
	err := kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		if err := y.shortened(ctx, at, r); err != nil {
			return nil, err
		}
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("broker %d: %w", at.leader, err)
	}
	got, err := parse(rp, next, y.e.cfg.Isolation, y.e.dec)
	if len(got.segments) == 0 {
		if err != nil && !errors.Is(err, errChecksum) {
			err = badBatch(r.Partition, next, err)
		}
		return nil, err
	}
	l := &leftover{identity: at.topic.identity()}
	l.buf.reset(next)
	l.buf.add(got)
	return l, nil
}

// shortened returns an error if the log doesn't hold the whole of r any more.
func (y *replayer) shortened(ctx context.Context, at *place, r batch.Range) error {
	q := []query{{id: r.Partition, epoch: batch.NoEpoch, ts: tsEarliest}}
	start, err := y.e.oneOffset(ctx, at.leader, q)
	if err != nil {
		return err
	}
	q[0].ts = tsLatest
	end, err := y.e.oneOffset(ctx, at.leader, q)
	if err != nil {
		return err
	}
	switch {
	case start > r.Start:
		gone := min(start, r.End)
		return unreplayable(r, r.Start, "wanted [%d,%d), available [%d,%d): [%d,%d) gone", r.Start, r.End, start, end, r.Start, gone)
	case end < r.End:
		return unreplayable(r, r.Start, "wanted [%d,%d), available [%d,%d): the log was cut back", r.Start, r.End, start, end)
	}
	return nil
}

// oneOffset asks a single question.
func (e *Emitter) oneOffset(ctx context.Context, leader int32, q []query) (int64, error) {
	as, err := e.listOffsets(ctx, leader, ReadUncommitted, q)
	if err != nil {
		return 0, fmt.Errorf("broker %d: %w", leader, err)
	}
	return as[0].offset, as[0].err
}
