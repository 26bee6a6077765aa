package kafka

import (
	"sort"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// buffer holds what was fetched of one partition and is not acknowledged yet.
//
// Invariants: segs follow each other without a hole and end at next; segs[at:] are those that end above planned;
// ahead is the data in segs[at:], total the data in all.
type buffer struct {
	segs    []segment
	next    int64 // the offset to be fetched next
	planned int64 // where the last range that was planned ends
	at      int
	ahead   int64
	total   int64
}

// reset empties the buffer: fetching begins at next.
func (b *buffer) reset(next int64) {
	*b = buffer{next: next, planned: next}
}

// add puts what a fetch from next gave behind the rest.
func (b *buffer) add(p parsed) {
	for _, s := range p.segments {
		n := len(b.segs)
		joins := n > 0 && s.data == nil && b.segs[n-1].data == nil
		b.segs = appendSegment(b.segs, s)
		if joins {
			b.at = min(b.at, n-1) // the gap that was planned whole has grown
		}
	}
	b.next = p.next
	b.ahead += p.bytes
	b.total += p.bytes
}

// holds says whether [start, end) lies in the buffer.
func (b *buffer) holds(start, end int64) bool {
	return len(b.segs) > 0 && b.segs[0].start <= start && end <= b.next
}

// find returns the index of the segment that holds offset, len(segs) at the end.
func (b *buffer) find(offset int64) int {
	return sort.Search(len(b.segs), func(i int) bool { return b.segs[i].end > offset })
}

// seek sets the planned position. It returns false if the buffer doesn't reach there.
func (b *buffer) seek(offset int64) bool {
	if offset == b.planned {
		return true
	}
	if offset != b.next && !b.holds(offset, offset) {
		return false
	}
	b.planned = offset
	b.at = b.find(offset)
	b.ahead = 0
	for i := b.at; i < len(b.segs); i++ {
		b.ahead += int64(len(b.segs[i].data))
	}
	return true
}

// plan takes the next range within limit, from the planned position on. end == planned means that there is none.
// Behind the last record that fits the range goes on over gaps. epoch is that of the last batch below end.
func (b *buffer) plan(limit emitter.Limit) (end int64, epoch int32) {
	end, epoch = b.planned, batch.NoEpoch
	var records, size int64
	fits := func(n, bytes int64) bool {
		return (limit.Records <= 0 || records+n <= limit.Records) && (limit.Bytes <= 0 || size+bytes <= limit.Bytes)
	}
	i := b.at
	for ; i < len(b.segs); i++ {
		s := &b.segs[i]
		if s.data == nil {
			end, epoch = s.end, s.epoch
			continue
		}
		c := s.before(end)
		if n, bytes := int64(s.count-c.index), int64(len(s.data)-c.pos); fits(n, bytes) {
			records, size = records+n, size+bytes
			end, epoch = s.end, s.epoch
			continue
		}
		// Record by record. A garbled batch is taken whole: reading it says what is wrong.
		r := reader{in: s.data, pos: c.pos}
		whole := true
		for j := c.index; j < s.count; j++ {
			at := r.pos
			r.record()
			offset := s.base + r.offsetDelta
			if r.bad || offset >= s.end {
				break
			}
			if offset < end {
				continue
			}
			bytes := r.size()
			if records > 0 && !fits(1, bytes) {
				s.note(cut{offset: offset, index: j, pos: at})
				whole = false
				break
			}
			records, size = records+1, size+bytes
			end, epoch = offset+1, s.epoch
		}
		if !whole {
			break
		}
		end, epoch = s.end, s.epoch
	}
	for _, s := range b.segs[b.at:i] {
		b.ahead -= int64(len(s.data))
	}
	b.at, b.planned = i, end
	return end, epoch
}

// view appends copies of the segments that [start, end) touches to dst.
func (b *buffer) view(dst []segment, start, end int64) []segment {
	for i := b.find(start); i < len(b.segs) && b.segs[i].start < end; i++ {
		dst = append(dst, b.segs[i])
	}
	return dst
}

// release drops the segments that end at or below offset.
func (b *buffer) release(offset int64) {
	n := 0
	for n < len(b.segs) && b.segs[n].end <= offset {
		b.total -= int64(len(b.segs[n].data))
		n++
	}
	if n == 0 {
		return
	}
	for _, s := range b.segs[min(b.at, n):n] {
		b.ahead -= int64(len(s.data))
	}
	clear(b.segs[:n]) // frees what they point to now; the slice's head goes when it is next copied
	b.segs = b.segs[n:]
	b.at = max(b.at-n, 0)
	b.planned = max(b.planned, min(offset, b.next))
}

// oldest is the timestamp of the first record beyond the planned position, 0 if there is none.
func (b *buffer) oldest() int64 {
	for i := b.at; i < len(b.segs); i++ {
		s := &b.segs[i]
		if s.data == nil {
			continue
		}
		c := s.before(b.planned)
		r := reader{in: s.data, pos: c.pos}
		for j := c.index; j < s.count; j++ {
			if r.record(); r.bad {
				break
			}
			if offset := s.base + r.offsetDelta; offset >= b.planned && offset >= s.start {
				return s.time(r.timeDelta)
			}
		}
	}
	return 0
}
