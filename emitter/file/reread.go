package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tridentd/tridentd/batch"
)

// chunkRecords is the most records of a chunk: its headers stay in the cache while the pipeline goes over them.
const chunkRecords = 2048

var chunks = sync.Pool{New: func() any { return &batch.Chunk{Records: make([]batch.Record, 0, chunkRecords)} }}

// Read passes the records of r on, from what has been read ahead or from the file once more.
func (e *Emitter) Read(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	e.mu.Lock()
	f := e.parts[r.Partition]
	var blocks []*block
	if f != nil {
		blocks = f.held(r.Start, r.End)
	}
	e.mu.Unlock()
	if f == nil {
		return unreplayable(fmt.Errorf("the source doesn't read this file"), "put the file back on the list").At(r.Partition, r.Start)
	}
	if blocks == nil {
		return e.readAgain(ctx, f, r, yield)
	}
	for _, b := range blocks {
		if err := b.yield(ctx, r, yield); err != nil {
			return err
		}
	}
	return nil
}

// yield passes on the block's part of r.
func (b *block) yield(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	from, end := max(r.Start, b.base), min(r.End, b.next())
	c := chunks.Get().(*batch.Chunk)
	used := min(end-from, chunkRecords)
	defer func() {
		clear(c.Records[:used]) // the pool must not keep blocks alive
		chunks.Put(c)
	}()
	c.Fields = b.fields
	for from < end {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		to := min(from+chunkRecords, end)
		c.Records = b.append(c.Records[:0], from, to)
		if err := yield(c); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// cursor reads a file in ranges that follow each other, as a replay does.
type cursor struct {
	cut *cutter
	b   *block // the last one cut; nil at the beginning
}

// cursors keeps a few of them between two ranges.
type cursors struct {
	most int
	mu   sync.Mutex
	kept []*keptCursor // the longest unused first
}

type keptCursor struct {
	p batch.Partition
	c *cursor
}

// take removes the cursor of p, if there is one.
func (cs *cursors) take(p batch.Partition) *cursor {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for i, k := range cs.kept {
		if k.p == p {
			cs.kept = append(cs.kept[:i], cs.kept[i+1:]...)
			return k.c
		}
	}
	return nil
}

// put keeps a cursor in place of the longest unused one.
func (cs *cursors) put(p batch.Partition, c *cursor) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var err error
	if len(cs.kept) >= cs.most {
		err = cs.kept[0].c.cut.detach()
		cs.kept = cs.kept[1:]
	}
	cs.kept = append(cs.kept, &keptCursor{p, c})
	return err
}

func (cs *cursors) close() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var errs []error
	for _, k := range cs.kept {
		errs = append(errs, k.c.cut.detach())
	}
	cs.kept = nil
	return errors.Join(errs...)
}

// readAgain reads r from the file, from its beginning or from where the range before ended.
func (e *Emitter) readAgain(ctx context.Context, f *partition, r batch.Range, yield func(*batch.Chunk) error) error {
	c := e.cursors.take(f.id)
	if c != nil && c.b != nil && c.b.base > r.Start {
		e.closeCutter(c.cut)
		c = nil
	}
	if c == nil {
		c = &cursor{cut: e.newCutter(f.path)}
	}
	if err := c.read(ctx, f, r, yield); err != nil {
		e.closeCutter(c.cut)
		return err
	}
	return e.cursors.put(f.id, c)
}

func (c *cursor) read(ctx context.Context, f *partition, r batch.Range, yield func(*batch.Chunk) error) error {
	if err := c.cut.attach(ctx); err != nil {
		return f.located("read", r.Start, err)
	}
	for c.b == nil || c.b.next() <= r.Start {
		if err := c.advance(ctx, f, r); err != nil {
			return err
		}
	}
	for {
		if err := c.b.yield(ctx, r, yield); err != nil {
			return err
		}
		if r.End <= c.b.next() {
			return compare(c.b, r)
		}
		if err := c.advance(ctx, f, r); err != nil {
			return err
		}
	}
}

func (c *cursor) advance(ctx context.Context, f *partition, r batch.Range) error {
	b, err := c.cut.cut(ctx, true)
	switch {
	case errors.Is(err, io.EOF):
		return unreplayable(fmt.Errorf("[%d,%d) is to be read again, the file holds %d records", r.Start, r.End, c.cut.next),
			"put the file back as it was").At(f.id, r.Start)
	case err != nil:
		return f.located("read", c.cut.next, err)
	}
	c.b = b
	return nil
}

// compare holds the block in which r ends against the fingerprint that r carries.
func compare(b *block, r batch.Range) error {
	if r.Identity == "" {
		return nil
	}
	want, err := parseFingerprint(r.Identity)
	if err != nil {
		return unreplayable(err, "restore the store from a savepoint").At(r.Partition, r.Start)
	}
	// A record that had no line end when it was read may have one by now: the fingerprint says how far it went.
	now := fingerprint{bytes: b.pos + int64(b.records[r.End-b.base-1].next)}
	if at := want.bytes - b.pos; at >= 0 && at <= int64(len(b.raw)) {
		now = b.fingerprint(uint32(at))
	}
	if now == want {
		return nil
	}
	return unreplayable(fmt.Errorf("[%d,%d) cannot be read again: %w", r.Start, r.End, &changed{at: want, now: now}),
		"put the file back as it was (it may have grown at its end)").At(r.Partition, r.Start)
}

func unreplayable(err error, remedy string) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read", err, remedy)
}
