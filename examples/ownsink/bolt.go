package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
)

// The buckets of a file. An entry's key is its number, eight bytes, big-endian, from 1 on.
var (
	entriesBucket  = []byte("entries")
	progressBucket = []byte("progress")
)

// File is a bbolt file that sinks append entries to. One process has it open at a time: bbolt locks it.
type File struct {
	Path string

	mu sync.Mutex
	db *bbolt.DB // nil: not opened yet
}

// open returns the database, which is opened when it is first asked for.
func (f *File) open() (*bbolt.DB, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db != nil {
		return f.db, nil
	}
	db, err := bbolt.Open(f.Path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, failure("open "+f.Path, err)
	}
	f.db = db
	return db, nil
}

// failure says of an error whether trying again may help, and what to do. What isn't known to last is tried again.
func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*batch.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return batch.NewError(batch.Transient, batch.CodeUnavailable, op, errors.New("another process has the file open"), "end the process that has it open")
	case errors.Is(err, os.ErrPermission):
		return batch.NewError(batch.Transient, batch.CodeUnauthorized, op, err, "let this user read and write the file")
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, op, err, "name a file of bbolt, or one that doesn't exist yet")
	}
	return batch.NewError(batch.Transient, batch.CodeUnavailable, op, err, "")
}

// To is the target of a stream of lines: an engine.Target.
func (f *File) To() Lines { return Lines{f} }

// Lines appends each value as an entry.
type Lines struct{ file *File }

// Describe implements engine.Target. The path is left out: where the file lies doesn't change what is in it.
func (Lines) Describe() string { return "bbolt entries" }

// Encode implements engine.Target.
func (Lines) Encode(v string, r *sink.Record) error {
	r.Value = []byte(v)
	return nil
}

// Open implements engine.Target.
func (l Lines) Open(pipeline, name string, _ emitter.Env) (sink.Sink, error) {
	return &Sink{file: l.file, name: []byte(pipeline + "." + name)}, nil
}

// Sink appends the output of each batch in one transaction of bbolt, with the progress in it.
type Sink struct {
	file  *File
	name  []byte      // of the progress
	epoch batch.Epoch // that the file was last claimed for by this sink; 0: it wasn't

	prepared *sink.Output // nil: nothing is
}

var _ sink.Sink = (*Sink)(nil)

// progress is how a sink.Progress is written.
type progress struct {
	Txid  batch.Txid  `json:"txid"`
	Epoch batch.Epoch `json:"epoch"`
	Chain uint64      `json:"chain"`
}

// held reads the progress. A file that knows nothing of the sink holds the zero progress.
func (s *Sink) held(tx *bbolt.Tx) (p progress, err error) {
	b := tx.Bucket(progressBucket)
	if b == nil {
		return p, nil
	}
	row := b.Get(s.name)
	if row == nil {
		return p, nil
	}
	if err := json.Unmarshal(row, &p); err != nil {
		return p, batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "progress", fmt.Errorf("of %s: %w", s.name, err), "restore the file from a copy, or start over (--fresh)")
	}
	return p, nil
}

func (s *Sink) put(tx *bbolt.Tx, p progress) error {
	b, err := tx.CreateBucketIfNotExists(progressBucket)
	if err != nil {
		return err
	}
	row, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return b.Put(s.name, row)
}

// Progress implements sink.Sink.
func (s *Sink) Progress(context.Context) (p sink.Progress, err error) {
	db, err := s.file.open()
	if err != nil {
		return p, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		h, err := s.held(tx)
		p = sink.Progress(h)
		return err
	})
	return p, failure("progress", err)
}

// Claim implements sink.Sink. From here on whoever holds a lower epoch finds that it isn't his any more, in the transaction that would
// have written.
func (s *Sink) Claim(_ context.Context, epoch batch.Epoch) (p sink.Progress, err error) {
	s.prepared, s.epoch = nil, 0
	db, err := s.file.open()
	if err != nil {
		return p, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		h, err := s.held(tx)
		if err != nil {
			return err
		}
		if h.Epoch > epoch {
			return sink.Deposed("file", h.Epoch, epoch)
		}
		h.Epoch = epoch
		p = sink.Progress(h)
		return s.put(tx, h)
	})
	if err != nil {
		return sink.Progress{}, failure("claim", err)
	}
	s.epoch = epoch
	return p, nil
}

var errUnclaimed = errors.New("the file isn't claimed, or nothing is prepared")

// Prepare implements sink.Sink. A transaction of bbolt can't be left open for the length of a batch, so the output waits in memory; what
// the file would refuse for good is refused here.
func (s *Sink) Prepare(_ context.Context, out *sink.Output) error {
	if s.epoch == 0 {
		return failure("prepare", errUnclaimed)
	}
	for p, r := range out.All() {
		if len(r.Value) > bbolt.MaxValueSize {
			return batch.NewError(batch.Permanent, batch.CodeBadRecord, "prepare", fmt.Errorf("%d bytes are more than an entry holds", len(r.Value)), "make it smaller").At(p, r.Offset)
		}
	}
	s.prepared = out
	return nil
}

// Commit implements sink.Sink. bbolt syncs the file before Update returns.
func (s *Sink) Commit(context.Context) error {
	out := s.prepared
	if out == nil || s.epoch == 0 {
		return failure("commit", errUnclaimed)
	}
	db, err := s.file.open()
	if err != nil {
		return err
	}
	epoch := s.epoch
	s.prepared, s.epoch = nil, 0 // unless it succeeds
	err = db.Update(func(tx *bbolt.Tx) error {
		h, err := s.held(tx)
		if err != nil {
			return err
		}
		if h.Epoch != epoch {
			return sink.Deposed("file", h.Epoch, epoch)
		}
		b, err := tx.CreateBucketIfNotExists(entriesBucket)
		if err != nil {
			return err
		}
		for _, r := range out.All() {
			n, err := b.NextSequence()
			if err != nil {
				return err
			}
			if err := b.Put(binary.BigEndian.AppendUint64(nil, n), r.Value); err != nil {
				return err
			}
		}
		return s.put(tx, progress{Txid: out.Txid, Epoch: epoch, Chain: out.Chain})
	})
	if err != nil {
		return failure("commit", err)
	}
	s.epoch = epoch
	return nil
}

// Abort implements sink.Sink.
func (s *Sink) Abort(context.Context) error {
	if s.prepared == nil {
		return failure("abort", errUnclaimed)
	}
	s.prepared = nil
	return nil
}

// Forget implements sink.Sink.
func (s *Sink) Forget(context.Context) error {
	if s.epoch == 0 {
		return failure("forget", errUnclaimed)
	}
	db, err := s.file.open()
	if err != nil {
		return err
	}
	return failure("forget", db.Update(func(tx *bbolt.Tx) error {
		h, err := s.held(tx)
		if err != nil {
			return err
		}
		if h.Epoch != s.epoch {
			return sink.Deposed("file", h.Epoch, s.epoch)
		}
		return s.put(tx, progress{Epoch: s.epoch})
	}))
}

// Close implements sink.Sink. The file stays open for other sinks of the process, until that ends.
func (s *Sink) Close(context.Context) error {
	s.prepared, s.epoch = nil, 0
	return nil
}

// Entries lists what the file holds, in order.
func (f *File) Entries() (all []string, err error) {
	db, err := f.open()
	if err != nil {
		return nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(entriesBucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(_, v []byte) error {
			all = append(all, string(v))
			return nil
		})
	})
	return all, err
}
