package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
)

const (
	// maxWait is how long a broker may hold a fetch that finds nothing. With data it answers at once.
	maxWait = 500 * time.Millisecond
	// minWait is the same while partitions with full buffers are left out, which may have room any moment: a
	// fetch that is under way can't be extended by them.
	minWait = 10 * time.Millisecond
	// maxResponse bounds one response over all its partitions.
	maxResponse = 32 << 20
	// scantBytes is what a partition may fetch when the buffers are full and it has nothing.
	scantBytes = 64 << 10
)

// fetcher does the work at one broker: it settles positions and keeps the buffers of the partitions that the broker
// leads filled. A broker that hangs holds up nothing else.
type fetcher struct {
	e      *Emitter
	broker int32
	wakeup chan struct{}
	turn   int           // where the next look at the partitions begins, so that each comes first in turn
	wait   time.Duration // the next request's wait, while some partitions are left out
}

// fetcherOf returns the fetcher of a broker, and starts it if there is none. The caller holds e.mu.
func (e *Emitter) fetcherOf(broker int32) *fetcher {
	f := e.fetchers[broker]
	if f == nil {
		f = &fetcher{e: e, broker: broker, wakeup: make(chan struct{}, 1), wait: minWait}
		e.fetchers[broker] = f
		e.wg.Add(1)
		go f.run()
	}
	return f
}

func (f *fetcher) nudge() {
	select {
	case f.wakeup <- struct{}{}:
	default:
	}
}

// want is one partition in a fetch request.
type want struct {
	p          *partition
	generation uint64
	next       int64
	epoch      int32
}

// survey is what there is to do at a broker.
type survey struct {
	settle  []*partition
	wants   []want
	all     bool          // wants has every partition that is read from this broker, and each has been answered before
	retryIn time.Duration // when a partition that failed may be tried again; 0: none has
}

func (f *fetcher) run() {
	e := f.e
	defer e.wg.Done()
	for e.ctx.Err() == nil {
		s := f.survey()
		switch {
		case len(s.settle) > 0:
			starts, bad := e.settle(e.ctx, f.broker, s.settle)
			if e.ctx.Err() != nil {
				return
			}
			for _, p := range sortedParts(bad) {
				e.stop(p, bad[p])
			}
			if len(starts) > 0 {
				e.mu.Lock()
				e.discovered = append(e.discovered, starts...)
				e.mu.Unlock()
				e.signal()
			}
		case len(s.wants) > 0:
			f.fetch(s)
		default:
			f.rest(s.retryIn)
		}
	}
}

// rest waits until something may have changed.
func (f *fetcher) rest(retryIn time.Duration) {
	var retry <-chan time.Time
	if retryIn > 0 {
		timer := time.NewTimer(retryIn)
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-f.e.ctx.Done():
	case <-f.wakeup:
	case <-retry:
	}
}

func (f *fetcher) survey() survey {
	e := f.e
	e.mu.RLock()
	defer e.mu.RUnlock()
	now := e.now()
	full := e.buffered.Load() >= e.cfg.MaxBuffer
	share := max(e.cfg.MaxBuffer/2/int64(max(len(e.order), 1)), int64(e.cfg.FetchMaxBytes))
	s := survey{all: true}
	var rest []want // has something already: behind those that have nothing
	f.turn++
	for i := range e.sorted {
		p := e.sorted[(i+f.turn)%len(e.sorted)]
		p.mu.Lock()
		late := p.retryAt.Sub(now)
		switch {
		case p.leader != f.broker || p.failed || p.state == offered:
		case late > 0:
			if s.retryIn == 0 || late < s.retryIn {
				s.retryIn = late
			}
			s.all = false
		case p.state == unresolved || p.verify:
			s.settle = append(s.settle, p)
		default:
			w := want{p: p, generation: p.generation, next: p.buf.next, epoch: p.leaderEpoch}
			s.all = s.all && p.answered // how things stand is to be known soon
			switch {
			case p.buf.ahead == 0:
				s.wants = append(s.wants, w)
			case full || p.buf.ahead >= share:
				s.all = false
			default:
				rest = append(rest, w)
			}
		}
		p.mu.Unlock()
	}
	s.wants = append(s.wants, rest...)
	return s
}

// fetch asks for the next records of all partitions that want some, and takes the answer over.
func (f *fetcher) fetch(s survey) {
	e := f.e
	wait := maxWait
	if !s.all {
		wait = f.wait
	}
	room := e.cfg.MaxBuffer - e.buffered.Load()
	req := fetchRequest(e.cfg.Isolation, wait, int32(min(max(room, int64(e.cfg.FetchMaxBytes)), maxResponse)))
	perPartition := e.cfg.FetchMaxBytes
	if room <= 0 {
		perPartition = min(perPartition, scantBytes)
	}
	byID := make(map[partitionKey]want, len(s.wants))
	topics := make(map[*topic]int)
	sent := e.now()
	for _, w := range s.wants {
		t := w.p.topic
		ti, ok := topics[t]
		if !ok {
			ti = len(req.Topics)
			topics[t] = ti
			req.Topics = append(req.Topics, fetchTopic(t))
		}
		req.Topics[ti].Partitions = append(req.Topics[ti].Partitions, fetchPartition(w.p.id.Number, w.next, w.epoch, perPartition))
		byID[partitionKey{t.name, w.p.id.Number}] = w
		w.p.mu.Lock()
		w.p.askedAt = sent
		w.p.mu.Unlock()
	}
	resp, err := e.exchange(e.ctx, e.client, f.broker, req, wait)
	if e.ctx.Err() != nil {
		return
	}
	if err != nil {
		e.askMetadata()
		for _, w := range s.wants {
			w.p.mu.Lock()
			w.p.askedAt = time.Time{}
			w.p.fail(transient("read", fmt.Errorf("broker %d: %w", f.broker, err)), e.now())
			w.p.mu.Unlock()
		}
		e.signal()
		return
	}
	names := make(map[topicID]string, len(topics))
	for t := range topics {
		if k := t.id.Load(); k != nil {
			names[k.id] = t.name
		}
	}
	news := false
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		name := rt.Topic
		if name == "" {
			name = names[rt.TopicID]
		}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			key := partitionKey{name, rp.Partition}
			if w, ok := byID[key]; ok {
				delete(byID, key)
				news = f.take(w, rp) || news
			}
		}
	}
	for _, w := range byID { // the answer lacks them: asked for again
		w.p.mu.Lock()
		w.p.askedAt = time.Time{}
		w.p.mu.Unlock()
	}
	if news {
		f.wait = minWait
		e.signal()
	} else {
		f.wait = min(2*f.wait, maxWait)
	}
}

type partitionKey struct {
	topic  string
	number int32
}

// take takes over what a fetch brought for one partition. It returns whether the engine may see something new.
func (f *fetcher) take(w want, rp *kmsg.FetchResponseTopicPartition) bool {
	e, p := f.e, w.p
	p.mu.Lock()
	p.askedAt = time.Time{}
	if p.generation != w.generation || p.buf.next != w.next || p.failed {
		p.mu.Unlock()
		return false
	}
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		if movesLeader(err) {
			e.askMetadata()
		}
		if errors.Is(err, kerr.OffsetOutOfRange) {
			p.verify = true // the log's ends tell why
		}
		p.fail(transient("read", fmt.Errorf("broker %d: %w", f.broker, err)), e.now())
		p.mu.Unlock()
		return true
	}
	got, err := parse(rp, w.next, e.cfg.Isolation, e.dec)
	if n := len(got.segments); n > 0 {
		p.buf.add(got)
		p.epoch = got.segments[n-1].epoch
		e.buffered.Add(got.bytes)
	}
	wasAtEnd := p.answered && p.hw == rp.HighWatermark && p.lso == rp.LastStableOffset
	p.hw, p.lso, p.logStart = rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset
	p.answered = true
	var permanent *batch.Error
	switch {
	case err == nil:
		p.well()
	case errors.Is(err, errChecksum):
		p.fail(transient("read", err), e.now()) // it may have been the network
	default:
		permanent = badBatch(p.id, p.buf.next, err)
	}
	p.mu.Unlock()
	if permanent != nil {
		e.stop(p, permanent)
	}
	return len(got.segments) > 0 || !wasAtEnd || err != nil
}
