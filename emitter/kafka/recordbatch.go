package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
)

// Layout of a record batch of magic 2, the only one that brokers since 4.0 hold. All numbers are big endian.
const (
	atLength      = 8  // int32, of what follows it
	atEpoch       = 12 // int32, partition leader epoch
	atMagic       = 16 // int8
	atCRC         = 17 // uint32, Castagnoli, of what follows it
	atAttributes  = 21 // int16
	atLastDelta   = 23 // int32
	atFirstTime   = 27 // int64
	atMaxTime     = 35 // int64
	atProducer    = 43 // int64, then int16 epoch and int32 sequence
	atCount       = 57 // int32
	batchOverhead = 61
)

const (
	attrCodec     = 0x07
	attrLogAppend = 0x08
	attrTxn       = 0x10
	attrControl   = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segment is a stretch of a partition's offsets, [start, end), as a fetch gave it: the records of one record batch, or
// a gap (markers, aborted records, what compaction took) if data is nil. Segments follow each other without a
// hole. What they point to is never changed.
type segment struct {
	start, end int64
	epoch      int32 // leader epoch of the batch, or of the last one in the gap
	count      int32 // records in data, those below start included
	base       int64 // what the records' offsets are relative to
	firstTime  int64 // what the records' timestamps are relative to
	appendTime int64 // the timestamp of all records, if logAppend
	logAppend  bool
	data       []byte // records, uncompressed
	cuts       []cut  // by offset; places inside data that planning has found
}

// cut is a place between two records of a segment.
type cut struct {
	offset int64 // of the record behind it
	index  int32 // records before it
	pos    int   // bytes before it
}

// before returns the last known place at or before offset.
func (s *segment) before(offset int64) cut {
	i := sort.Search(len(s.cuts), func(i int) bool { return s.cuts[i].offset > offset })
	if i == 0 {
		return cut{offset: s.base}
	}
	return s.cuts[i-1]
}

// note keeps a place that planning has found. Readers hold copies of the slice: it is only ever appended to.
func (s *segment) note(c cut) {
	if n := len(s.cuts); n == 0 || s.cuts[n-1].offset < c.offset {
		s.cuts = append(s.cuts, c)
	}
}

var errChecksum = errors.New("the checksum is wrong")

// parsed is what a fetch response says of one partition.
type parsed struct {
	segments []segment
	next     int64 // the offset to fetch next
	bytes    int64 // of records, uncompressed
}

// parse cuts the record batches of a fetch response, asked for from offset next on, into segments. A batch that
// was cut off at the response's end is left for the next fetch. With an error comes what lies before the batch that
// it concerns.
func parse(rp *kmsg.FetchResponseTopicPartition, next int64, iso Isolation, dec kgo.Decompressor) (parsed, error) {
	out := parsed{next: next}
	var aborted map[int64][]int64
	if iso == ReadCommitted {
		aborted = abortedTxns(rp)
	}
	for in := rp.RecordBatches; len(in) > atMagic; {
		first := int64(binary.BigEndian.Uint64(in))
		size := int64(int32(binary.BigEndian.Uint32(in[atLength:]))) + atEpoch
		if magic := in[atMagic]; magic != 2 {
			return out, fmt.Errorf("record batch at offset %d has format %d, which Kafka wrote before 0.11", first, magic)
		}
		if size < batchOverhead {
			return out, fmt.Errorf("record batch at offset %d claims %d bytes", first, size)
		}
		if int64(len(in)) < size {
			break
		}
		b := in[:size]
		in = in[size:]
		last := first + int64(int32(binary.BigEndian.Uint32(b[atLastDelta:])))
		if last < out.next {
			continue
		}
		if iso == ReadCommitted && rp.LastStableOffset >= 0 && last >= rp.LastStableOffset {
			break
		}
		if crc := crc32.Checksum(b[atAttributes:], castagnoli); crc != binary.BigEndian.Uint32(b[atCRC:]) {
			return out, fmt.Errorf("record batch at offset %d: %w", first, errChecksum)
		}
		attrs := int16(binary.BigEndian.Uint16(b[atAttributes:]))
		seg := segment{
			start:      out.next,
			end:        last + 1,
			epoch:      int32(binary.BigEndian.Uint32(b[atEpoch:])),
			count:      int32(binary.BigEndian.Uint32(b[atCount:])),
			base:       first,
			firstTime:  int64(binary.BigEndian.Uint64(b[atFirstTime:])),
			appendTime: int64(binary.BigEndian.Uint64(b[atMaxTime:])),
			logAppend:  attrs&attrLogAppend != 0,
		}
		skip := attrs&attrControl != 0
		if attrs&attrTxn != 0 && len(aborted) > 0 {
			producer := int64(binary.BigEndian.Uint64(b[atProducer:]))
			if begins := aborted[producer]; len(begins) > 0 && first >= begins[0] {
				if skip && isAbortMarker(b[batchOverhead:]) {
					aborted[producer] = begins[1:]
				}
				skip = true
			}
		}
		switch {
		case skip || seg.count == 0:
		case seg.count < 0:
			return out, fmt.Errorf("record batch at offset %d claims %d records", first, seg.count)
		default:
			data := b[batchOverhead:]
			if codec := kgo.CompressionCodecType(attrs & attrCodec); codec != kgo.CodecNone {
				var err error
				if data, err = dec.Decompress(data, codec); err != nil {
					return out, fmt.Errorf("record batch at offset %d: %w", first, err)
				}
			}
			if len(data) < int(seg.count) {
				return out, fmt.Errorf("record batch at offset %d claims %d records in %d bytes", first, seg.count, len(data))
			}
			seg.data = data
			out.bytes += int64(len(data))
		}
		out.next = seg.end
		out.segments = appendSegment(out.segments, seg)
	}
	return out, nil
}

// appendSegment adds s behind segs; a gap behind a gap becomes one with it.
func appendSegment(segs []segment, s segment) []segment {
	if n := len(segs); n > 0 && s.data == nil && segs[n-1].data == nil {
		segs[n-1].end, segs[n-1].epoch = s.end, s.epoch
		return segs
	}
	return append(segs, s)
}

// abortedTxns lists the first offsets of aborted transactions by producer, ascending. Brokers needn't send them in
// order.
func abortedTxns(rp *kmsg.FetchResponseTopicPartition) map[int64][]int64 {
	if len(rp.AbortedTransactions) == 0 {
		return nil
	}
	m := make(map[int64][]int64)
	for _, a := range rp.AbortedTransactions {
		m[a.ProducerID] = append(m[a.ProducerID], a.FirstOffset)
	}
	for _, begins := range m {
		slices.Sort(begins)
	}
	return m
}

// isAbortMarker looks at the first record of a control batch, whose key is (int16 version, int16 type); type 0
// ends a transaction that was aborted.
func isAbortMarker(data []byte) bool {
	r := reader{in: data}
	r.record()
	return !r.bad && len(r.key) >= 4 && r.key[2] == 0 && r.key[3] == 0
}

// reader walks over the records of a batch. bad says that they are garbled.
type reader struct {
	in  []byte
	pos int
	bad bool

	// The record that was read last.
	timeDelta   int64
	offsetDelta int64
	key, value  []byte
	headers     int // its number of headers, which lie at headersAt
	headersAt   int
	end         int
}

func (r *reader) varint() int64 {
	// Most numbers take one byte, and nearly all of the rest two.
	if p := r.pos; p+1 < len(r.in) {
		if b := r.in[p]; b < 0x80 {
			r.pos = p + 1
			return int64(b>>1) ^ -int64(b&1)
		} else if c := r.in[p+1]; c < 0x80 {
			r.pos = p + 2
			u := uint64(b&0x7f) | uint64(c)<<7
			return int64(u>>1) ^ -int64(u&1)
		}
	}
	v, n := binary.Varint(r.in[r.pos:])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.pos += n
	return v
}

// bytes reads a length and as many bytes; a negative length is null.
func (r *reader) bytes() []byte {
	n := r.varint()
	if n < 0 || r.bad {
		return nil
	}
	if n > int64(len(r.in)-r.pos) {
		r.bad = true
		return nil
	}
	b := r.in[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return b
}

// record reads the record at pos, but for its headers, and moves behind it.
func (r *reader) record() {
	size := r.varint()
	if r.bad || size < 1 || size > int64(len(r.in)-r.pos) {
		r.bad = true
		return
	}
	r.end = r.pos + int(size)
	r.pos++ // attributes, unused
	r.timeDelta = r.varint()
	r.offsetDelta = r.varint()
	r.key = r.bytes()
	r.value = r.bytes()
	r.headers = int(r.varint())
	r.headersAt = r.pos
	if r.pos > r.end || r.headers > r.end-r.pos {
		r.bad = true
	}
	r.pos = r.end
}

// header reads the next header; pos must be at one.
func (r *reader) header() (key, value []byte) {
	key = r.bytes()
	value = r.bytes()
	if r.pos > r.end {
		r.bad = true
	}
	return key, value
}

// size is the number of raw bytes of the record that was read last.
func (r *reader) size() int64 {
	n := int64(len(r.key) + len(r.value))
	if r.headers > 0 && !r.bad {
		r.pos = r.headersAt
		for range r.headers {
			k, v := r.header()
			n += int64(len(k) + len(v))
		}
		r.pos = r.end
	}
	return n
}

func (s *segment) time(delta int64) int64 {
	if s.logAppend {
		return s.appendTime
	}
	return s.firstTime + delta
}

// chunkRecords is how many records are passed on at once.
const chunkRecords = 2048

// decoder turns segments into chunks, in memory that it uses again.
type decoder struct {
	chunk   batch.Chunk
	records []batch.Record
	headers []batch.Header
	cut     cut // where the last decode stopped inside its segment; unchanged if it came to the segment's end
}

// decode passes the records of s with offsets in [start, end) to yield.
func (d *decoder) decode(p batch.Partition, s *segment, start, end int64, yield func(*batch.Chunk) error) error {
	if s.data == nil {
		return nil
	}
	if d.records == nil {
		d.records = make([]batch.Record, chunkRecords)
	}
	recs := d.records
	at := s.before(start)
	r := reader{in: s.data, pos: at.pos}
	n, nh := 0, 0
	for i, last := at.index, s.base-1; i < s.count; i++ {
		pos := r.pos
		r.record()
		offset := s.base + r.offsetDelta
		if r.bad || offset <= last || offset >= s.end {
			return badBatch(p, s.base, fmt.Errorf("record %d of %d in the batch at offset %d is garbled", i+1, s.count, s.base))
		}
		last = offset
		if offset < start || offset < s.start {
			continue
		}
		if offset >= end {
			d.cut = cut{offset: offset, index: i, pos: pos}
			break
		}
		if n == len(recs) {
			if err := d.pass(n, yield); err != nil {
				return err
			}
			n, nh = 0, 0
		}
		rec := &recs[n]
		rec.Offset, rec.Timestamp = offset, s.time(r.timeDelta)
		rec.Key, rec.Value = r.key, r.value
		rec.Headers = nil
		if r.headers > 0 {
			if nh = d.readHeaders(&r, nh, rec); r.bad {
				return badBatch(p, offset, errors.New("the headers are garbled"))
			}
		}
		n++
	}
	if n == 0 {
		return nil
	}
	return d.pass(n, yield)
}

func (d *decoder) pass(n int, yield func(*batch.Chunk) error) error {
	d.chunk.Records = d.records[:n]
	return yield(&d.chunk)
}

// readHeaders appends the record's headers behind the first used ones of the chunk, and returns how many are used
// then. Names repeat from record to record: where the same name stood in the same place last time, its string is
// used again.
func (d *decoder) readHeaders(r *reader, used int, rec *batch.Record) int {
	want := used + r.headers
	if want > len(d.headers) {
		// Earlier records of the chunk keep pointing into the old slice, which stays as it is.
		grown := make([]batch.Header, max(want, 2*len(d.headers), 256))
		copy(grown, d.headers)
		d.headers = grown
	}
	hs := d.headers[used:want:want]
	r.pos = r.headersAt
	for i := range hs {
		k, v := r.header()
		if r.bad {
			break
		}
		if hs[i].Key != string(k) {
			hs[i].Key = string(k)
		}
		hs[i].Value = v
	}
	r.pos = r.end
	rec.Headers = hs
	return want
}
