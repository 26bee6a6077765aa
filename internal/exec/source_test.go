package exec_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// topic is what a source holds. It outlives processes.
type topic struct {
	mu     sync.Mutex
	parts  map[int32][]batch.Record
	hidden map[int32]bool // partitions that aren't listed
	fields []string       // the columns of a CSV source
	open   *source        // of the process that reads it

	// opened, if not nil, is called when a process opens the topic.
	opened func()
	// read, if not nil, is called before a range is read.
	read func(ctx context.Context, r batch.Range) error
}

func newTopic() *topic { return &topic{parts: map[int32][]batch.Record{}, hidden: map[int32]bool{}} }

// add appends values to a partition, which appears with its first ones.
func (t *topic) add(number int32, values ...string) {
	t.mu.Lock()
	part := t.parts[number]
	for _, v := range values {
		part = append(part, batch.Record{Offset: int64(len(part)), Value: []byte(v)})
	}
	t.parts[number] = part
	open := t.open
	t.mu.Unlock()
	if open != nil {
		open.discover()
	}
}

// set replaces the value at an offset, as a compaction or an editor would.
func (t *topic) set(number int32, offset int64, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts[number][offset].Value = []byte(value)
}

func (t *topic) records() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		n += int64(len(p))
	}
	return n
}

func (t *topic) Describe() string { return "a topic in memory" }

func (t *topic) Open(id string, _ emitter.Framing, _ emitter.Env) (emitter.Emitter, error) {
	if t.opened != nil {
		t.opened()
	}
	return &source{id: id, topic: t, ready: make(chan struct{}, 1), known: map[batch.Partition]bool{}, admitted: map[batch.Partition]bool{}}, nil
}

// source is an emitter over a topic.
type source struct {
	id    string
	topic *topic
	ready chan struct{}

	mu         sync.Mutex
	known      map[batch.Partition]bool
	admitted   map[batch.Partition]bool
	planned    map[batch.Partition]int64
	discovered []batch.Position
	acked      map[batch.Partition]int64
	err        error
}

func (s *source) ID() string { return s.id }

func (s *source) partition(n int32) batch.Partition {
	return batch.Partition{Source: s.id, Topic: s.id, Number: n}
}

func (s *source) listed() []batch.Partition {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	var all []batch.Partition
	for n := range s.topic.parts {
		if !s.topic.hidden[n] {
			all = append(all, s.partition(n))
		}
	}
	slices.SortFunc(all, batch.Partition.Compare)
	return all
}

func (s *source) Open(_ context.Context, saved []batch.Position, _ bool) ([]batch.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned, s.acked = map[batch.Partition]int64{}, map[batch.Partition]int64{}
	listed := s.listed()
	for _, p := range saved {
		s.known[p.Partition] = true
		if slices.Contains(listed, p.Partition) {
			s.admitted[p.Partition] = true
		}
	}
	var starts []batch.Position
	for _, p := range listed {
		if !s.known[p] {
			s.known[p] = true
			starts = append(starts, batch.Position{Partition: p, LeaderEpoch: batch.NoEpoch})
		}
	}
	s.topic.mu.Lock()
	s.topic.open = s
	s.topic.mu.Unlock()
	return starts, nil
}

func (s *source) discover() {
	s.mu.Lock()
	for _, p := range s.listed() {
		if !s.known[p] {
			s.known[p] = true
			s.discovered = append(s.discovered, batch.Position{Partition: p, LeaderEpoch: batch.NoEpoch})
		}
	}
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *source) Discovered() []batch.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.discovered
	s.discovered = nil
	return d
}

func (s *source) Admit(ps []batch.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range ps {
		s.admitted[p.Partition] = true
	}
}

func (s *source) Ready() <-chan struct{} { return s.ready }

func (s *source) Partitions() []batch.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []batch.Partition
	for p := range s.admitted {
		all = append(all, p)
	}
	slices.SortFunc(all, batch.Partition.Compare)
	return all
}

func (s *source) end(p batch.Partition) int64 {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	return int64(len(s.topic.parts[p.Number]))
}

func (s *source) Plan(p batch.Partition, from int64, limit emitter.Limit) (batch.Range, bool) {
	end := s.end(p)
	if limit.Records > 0 {
		end = min(end, from+limit.Records)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if from < s.acked[p] {
		panic(fmt.Sprintf("%s is planned from %d, %d had committed", p, from, s.acked[p]))
	}
	s.planned[p] = end
	return batch.Range{Partition: p, Start: from, End: end, LeaderEpoch: batch.NoEpoch}, end > from
}

func (s *source) Read(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	s.topic.mu.Lock()
	hook := s.topic.read
	part := s.topic.parts[r.Number]
	s.topic.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, r); err != nil {
			return err
		}
	}
	if r.End > int64(len(part)) {
		return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read", errors.New("the records are gone"), "").At(r.Partition, r.Start)
	}
	// What is yielded lies in a buffer that the next chunk overwrites: nobody may keep it.
	var buf []byte
	for at := r.Start; at < r.End; at += 3 {
		buf = buf[:0]
		c := batch.Chunk{Fields: s.topic.fields}
		for o := at; o < min(at+3, r.End); o++ {
			start := len(buf)
			buf = append(buf, part[o].Value...)
			c.Records = append(c.Records, batch.Record{Offset: o, Value: buf[start:len(buf):len(buf)]})
		}
		if err := yield(&c); err != nil {
			return err
		}
		for i := range buf {
			buf[i] = '#'
		}
	}
	return nil
}

func (s *source) Ack(_ batch.Txid, ranges []batch.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range ranges {
		s.acked[r.Partition] = r.End
	}
}

func (s *source) Status() []emitter.Status {
	var all []emitter.Status
	for _, p := range s.Partitions() {
		end := s.end(p)
		s.mu.Lock()
		all = append(all, emitter.Status{Partition: p, End: end, LogEnd: end, AtEnd: s.planned[p] == end})
		s.mu.Unlock()
	}
	return all
}

func (s *source) Ends(context.Context) (map[batch.Partition]int64, error) {
	ends := map[batch.Partition]int64{}
	for _, p := range s.listed() {
		ends[p] = s.end(p)
	}
	return ends, nil
}

func (s *source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *source) Close(context.Context) error { return nil }
