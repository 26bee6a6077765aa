package file

import (
	"os"
	"sort"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// partition is one file. Its fields belong to Emitter.mu, but for cut, which belongs to the worker while busy is set.
type partition struct {
	id   batch.Partition
	path string

	admitted bool
	acked    int64 // records below have committed
	planned  int64 // where the last range ended
	counted  int64 // records that the last count found; -1 if there was none

	// blocks hold the records from the oldest that hasn't committed up to next, without a gap.
	blocks []*block
	next   int64 // the first record that hasn't been read yet
	from   int64 // records below are read over after going back
	ahead  int64 // bytes of blocks behind planned

	cut   *cutter
	busy  bool
	open  bool  // counts as an open file
	ended bool  // at its last look the worker found the file's end
	size  int64 // of the file then, as far as it was read
	pos   int64 // of it, what was consumed
	info  os.FileInfo

	failed  error // a permanent fault behind next
	trouble error // a transient one, looked at again with the next poll
	missed  bool  // that the file is gone has been logged
}

// low is the first record that can be planned without going back.
func (f *partition) low() int64 {
	if len(f.blocks) > 0 {
		return max(f.blocks[0].base, f.from)
	}
	return max(f.next, f.from)
}

// at returns the index of the block that holds record n, len(f.blocks) if none does.
func (f *partition) at(n int64) int {
	return sort.Search(len(f.blocks), func(i int) bool { return f.blocks[i].next() > n })
}

// measure sets ahead, and returns by how much it changed.
func (f *partition) measure() int64 {
	before := f.ahead
	f.ahead = 0
	if i := f.at(f.planned); i < len(f.blocks) {
		b, last := f.blocks[i], f.blocks[len(f.blocks)-1]
		f.ahead = last.pos + int64(len(last.raw)) - b.pos
		if n := f.planned - b.base; n > 0 {
			f.ahead -= int64(b.records[n-1].next)
		}
	}
	return f.ahead - before
}

// plan returns the range from a record on, within limit.
func (f *partition) plan(from int64, limit emitter.Limit) (batch.Range, bool) {
	n, bytes := from, int64(0)
	fits := func(records, size int64) bool {
		return (limit.Records <= 0 || n-from+records <= limit.Records) && (limit.Bytes <= 0 || bytes+size <= limit.Bytes)
	}
	var last *block
	for _, b := range f.blocks[f.at(from):] {
		if n == b.base && fits(int64(len(b.records)), b.values) {
			n, bytes, last = b.next(), bytes+b.values, b
			continue
		}
		for ; n < b.next(); n++ {
			s := b.records[n-b.base]
			size := int64(s.end - s.start)
			// A single record may be larger than the limit of bytes.
			if n > from && !fits(1, size) {
				break
			}
			bytes, last = bytes+size, b
		}
		if n < b.next() {
			break
		}
	}
	if n == from {
		return batch.Range{}, false
	}
	return batch.Range{Partition: f.id, Start: from, End: n, Identity: last.identity(n), LeaderEpoch: batch.NoEpoch}, true
}

// held returns the blocks that hold [start, end), nil if they are not all there.
func (f *partition) held(start, end int64) []*block {
	i, j := f.at(start), f.at(end-1)
	if j == len(f.blocks) || f.blocks[i].base > start {
		return nil
	}
	return f.blocks[i : j+1 : j+1]
}

// ack forgets the records below n.
func (f *partition) ack(n int64) {
	if n <= f.acked {
		return
	}
	f.acked = n
	i := f.at(n)
	clear(f.blocks[:i])
	f.blocks = f.blocks[i:]
}

func (f *partition) status() emitter.Status {
	s := emitter.Status{Partition: f.id, End: -1, LogEnd: -1, Start: 0, Err: f.failed}
	switch {
	case f.failed != nil:
		s.End = max(f.next+1, f.counted) // the record at the fault is there, though it can't be read
	case f.ended:
		s.End = f.next
		s.AtEnd = f.planned >= f.next
	case f.counted >= 0:
		s.End = max(f.counted, f.next)
	}
	s.LogEnd = s.End
	if f.trouble != nil {
		s.Err = f.trouble
	}
	return s
}
