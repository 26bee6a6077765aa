package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// worker counts some of the partitions.
type worker struct {
	src      *source
	out      *writer
	parts    []int32
	perBatch int64
}

type fetched struct {
	resp *kmsg.FetchResponse
	err  error
}

// pending is how many responses may wait for the worker.
const pending = 1

func (w *worker) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := make(chan fetched, pending)
	go w.fetchAll(ctx, in)

	full, free := make(chan *table, 1), make(chan *table, 2)
	free <- newTable()
	free <- newTable()
	written := make(chan error, 1)
	go func() { written <- w.out.writeAll(full, free) }()

	positions := map[int32]int64{}
	t := <-free
	hand := func() error {
		t.positions = positions
		positions = map[int32]int64{}
		select {
		case full <- t:
		case err := <-written:
			return err
		}
		select {
		case t = <-free:
		case err := <-written:
			return err
		}
		return nil
	}
	for f := range in {
		if f.err != nil {
			return f.err
		}
		for _, rt := range f.resp.Topics {
			for _, rp := range rt.Partitions {
				if err := w.count(t, &rp, positions); err != nil {
					return err
				}
			}
		}
		if t.records >= w.perBatch {
			if err := hand(); err != nil {
				return err
			}
		}
	}
	if t.records > 0 {
		if err := hand(); err != nil {
			return err
		}
	}
	close(full)
	return <-written
}

// fetchAll fetches to the end, one response ahead of whoever takes them.
func (w *worker) fetchAll(ctx context.Context, in chan<- fetched) {
	defer close(in)
	next := make([]int64, len(w.parts))
	for {
		resp, err := w.src.fetch(ctx, w.parts, next)
		if resp == nil && err == nil {
			return // everything has been read
		}
		if err == nil {
			err = w.advance(resp, next)
		}
		select {
		case in <- fetched{resp, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// advance moves the positions behind the last whole record batch of each partition.
func (w *worker) advance(resp *kmsg.FetchResponse, next []int64) error {
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", rp.Partition, err)
			}
			at := -1
			for i, p := range w.parts {
				if p == rp.Partition {
					at = i
				}
			}
			for raw := rp.RecordBatches; len(raw) >= overhead; {
				size := int(binary.BigEndian.Uint32(raw[atLength:])) + lengthFrom
				if size > len(raw) {
					break
				}
				next[at] = int64(binary.BigEndian.Uint64(raw)) + int64(binary.BigEndian.Uint32(raw[atLastDelta:])) + 1
				raw = raw[size:]
			}
		}
	}
	return nil
}

// count adds a partition's records to the table.
func (w *worker) count(t *table, rp *kmsg.FetchResponseTopicPartition, positions map[int32]int64) error {
	for raw := rp.RecordBatches; ; {
		records, rest, first, end, n, ok, err := cutBatch(raw)
		if err != nil {
			return fmt.Errorf("partition %d: %w", rp.Partition, err)
		}
		if !ok {
			return nil
		}
		for range n {
			size, k := binary.Varint(records)
			if k <= 0 || size < 0 || int(size) > len(records)-k {
				return fmt.Errorf("partition %d: a record of the batch at %d is cut off", rp.Partition, first)
			}
			value := recordValue(records[k : k+int(size)])
			records = records[k+int(size):]
			user, n, ok := scan(value)
			if !ok {
				return fmt.Errorf("partition %d: %q is no view", rp.Partition, value)
			}
			t.add(user, n)
		}
		t.records += int64(n)
		positions[rp.Partition] = end
		raw = rest
	}
}

// recordValue finds the value of a record that has no headers anyone wants.
func recordValue(r []byte) []byte {
	at := 1 // attributes
	for range 2 {
		_, k := binary.Varint(r[at:]) // time, offset
		at += k
	}
	n, k := binary.Varint(r[at:])
	at += k + max(int(n), 0) // key
	n, k = binary.Varint(r[at:])
	at += k
	if n < 0 {
		return nil
	}
	return r[at : at+int(n)]
}

// scan reads the two fields that are wanted, in whichever order they stand, and passes over the others. It takes a view's form for granted: strings
// without escapes, numbers without fractions, no nesting, no blanks.
func scan(v []byte) (user []byte, n int64, ok bool) {
	if len(v) < 2 || v[0] != '{' {
		return nil, 0, false
	}
	var haveUser, haveN bool
	for at := 1; at < len(v); {
		if v[at] != '"' {
			return nil, 0, false
		}
		at++
		end := bytes.IndexByte(v[at:], '"')
		if end < 0 || at+end+2 >= len(v) || v[at+end+1] != ':' {
			return nil, 0, false
		}
		name := v[at : at+end]
		at += end + 2
		if v[at] == '"' {
			at++
			end := bytes.IndexByte(v[at:], '"')
			if end < 0 {
				return nil, 0, false
			}
			if string(name) == "user" {
				user, haveUser = v[at:at+end], true
			}
			at += end + 1
		} else {
			var x int64
			digits := at
			for at < len(v) && v[at] >= '0' && v[at] <= '9' {
				x = 10*x + int64(v[at]-'0')
				at++
			}
			if at == digits {
				return nil, 0, false
			}
			if string(name) == "n" {
				n, haveN = x, true
			}
		}
		if at >= len(v) {
			return nil, 0, false
		}
		if v[at] == '}' {
			return user, n, haveUser && haveN && at == len(v)-1
		}
		at++ // the comma
	}
	return nil, 0, false
}
