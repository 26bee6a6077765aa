package sinktest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// Memory is a target in memory: what a server would hold. It outlives the sinks that Open returns, as a server outlives the processes
// that write to it.
type Memory struct {
	// Fault, if not nil, is asked before and after each call of a sink takes effect: an error is what the call returns, in the second
	// case although it took effect. It is called under the target's lock.
	Fault func(op string, done bool) error

	mu       sync.Mutex
	records  []sink.Record
	progress sink.Progress
	owner    *memorySink
}

var _ Target = (*Memory)(nil)

// Open implements Target.
func (m *Memory) Open() (sink.Sink, error) { return &memorySink{m: m}, nil }

// Records implements Target.
func (m *Memory) Records(context.Context) ([]sink.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records), nil
}

// Held is the progress that the target holds.
func (m *Memory) Held() sink.Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress
}

type memorySink struct {
	m       *Memory
	pending []sink.Record
	next    *sink.Progress
}

// call runs one step on the target, between its faults.
func (s *memorySink) call(op string, owned bool, f func() error) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	fault := func(done bool) error {
		if s.m.Fault == nil {
			return nil
		}
		return s.m.Fault(op, done)
	}
	if err := fault(false); err != nil {
		return err
	}
	if owned && s.m.owner != s {
		return errors.New(op + ": the target was claimed by somebody else")
	}
	if err := f(); err != nil {
		return err
	}
	return fault(true)
}

func (s *memorySink) Progress(context.Context) (p sink.Progress, err error) {
	err = s.call("progress", false, func() error { p = s.m.progress; return nil })
	return p, err
}

func (s *memorySink) Claim(_ context.Context, epoch batch.Epoch) (p sink.Progress, err error) {
	err = s.call("claim", false, func() error {
		if s.m.progress.Epoch > epoch {
			return sink.Deposed("memory", s.m.progress.Epoch, epoch)
		}
		s.m.owner, s.pending, s.next = s, nil, nil
		s.m.progress.Epoch = epoch
		p = s.m.progress
		return nil
	})
	return p, err
}

func (s *memorySink) Prepare(_ context.Context, out *sink.Output) error {
	return s.call("prepare", true, func() error {
		s.pending, s.next = nil, &sink.Progress{Txid: out.Txid, Epoch: out.Epoch, Chain: out.Chain}
		for _, r := range out.All() {
			s.pending = append(s.pending, clone(r))
		}
		return nil
	})
}

func (s *memorySink) Commit(context.Context) error {
	return s.call("commit", true, func() error {
		if s.next == nil {
			return errors.New("commit: nothing is prepared")
		}
		s.m.records, s.m.progress = append(s.m.records, s.pending...), *s.next
		s.pending, s.next = nil, nil
		return nil
	})
}

func (s *memorySink) Abort(context.Context) error {
	return s.call("abort", true, func() error { s.pending, s.next = nil, nil; return nil })
}

func (s *memorySink) Forget(context.Context) error {
	return s.call("forget", true, func() error { s.m.progress = sink.Progress{Epoch: s.m.progress.Epoch}; return nil })
}

func (s *memorySink) Close(context.Context) error { return nil }

func clone(r *sink.Record) sink.Record {
	c := *r
	c.Key, c.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	c.Headers = slices.Clone(r.Headers)
	return c
}
