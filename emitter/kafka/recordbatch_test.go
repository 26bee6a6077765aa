package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// fakeBatch describes a record batch to be encoded.
type fakeBatch struct {
	first     int64
	deltas    []int64 // offsets of the records, relative to first
	lastDelta int32
	epoch     int32
	producer  int64
	txn       bool
	control   bool
	abort     bool // of a control batch
	logAppend bool
	gzip      bool
	headers   int
}

func (f fakeBatch) encode() []byte {
	var recs []byte
	for i, d := range f.deltas {
		key, value := []byte(nil), fmt.Appendf(nil, "v%d", f.first+d)
		if i%2 == 1 {
			key = fmt.Appendf(nil, "k%d", f.first+d)
		}
		if i%5 == 4 {
			value = nil
		}
		if f.control {
			key, value = []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0}
			if f.abort {
				key[3] = 0
			}
		}
		r := kmsg.Record{TimestampDelta64: int64(i * 7), OffsetDelta: int32(d), Key: key, Value: value}
		for h := range f.headers {
			r.Headers = append(r.Headers, kmsg.Header{Key: fmt.Sprintf("h%d", h), Value: fmt.Appendf(nil, "%d", i)})
		}
		body := r.AppendTo(nil)[1:] // without its length, which is 0
		recs = kbin.AppendVarint(recs, int32(len(body)))
		recs = append(recs, body...)
	}
	attrs := int16(0)
	if f.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(recs)
		_ = w.Close()
		recs, attrs = b.Bytes(), attrs|1
	}
	if f.logAppend {
		attrs |= attrLogAppend
	}
	if f.txn {
		attrs |= attrTxn
	}
	if f.control {
		attrs |= attrControl
	}
	rb := kmsg.RecordBatch{
		FirstOffset: f.first, PartitionLeaderEpoch: f.epoch, Magic: 2, Attributes: attrs, LastOffsetDelta: f.lastDelta,
		FirstTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_500_000, ProducerID: f.producer, NumRecords: int32(len(f.deltas)), Records: recs,
	}
	raw := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[atLength:], uint32(len(raw)-atEpoch))
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
	return raw
}

// genResponse draws a log with gaps, transactions and markers, as a fetch returns it.
func genResponse(t *rapid.T) (*kmsg.FetchResponseTopicPartition, int64) {
	rp := kmsg.NewFetchResponseTopicPartition()
	next := rapid.Int64Range(0, 100).Draw(t, "start")
	fetchFrom := next + rapid.Int64Range(0, 12).Draw(t, "into")
	open := map[int64]int64{} // producer: first offset of its transaction
	for range rapid.IntRange(0, 12).Draw(t, "batches") {
		next += rapid.Int64Range(0, 5).Draw(t, "gap")
		b := fakeBatch{
			first: next, epoch: int32(next / 20), producer: -1,
			logAppend: rapid.Bool().Draw(t, "logAppend"), gzip: rapid.Bool().Draw(t, "gzip"),
			headers: rapid.IntRange(0, 2).Draw(t, "headers"),
		}
		if rapid.Bool().Draw(t, "txn") {
			b.txn, b.producer = true, rapid.Int64Range(1, 3).Draw(t, "producer")
		}
		first, isOpen := open[b.producer]
		if b.txn && isOpen && rapid.Bool().Draw(t, "marker") {
			b.control, b.gzip, b.headers, b.deltas, b.lastDelta = true, false, 0, []int64{0}, 0
			b.abort = rapid.Bool().Draw(t, "abort")
			if b.abort {
				a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
				a.ProducerID, a.FirstOffset = b.producer, first
				rp.AbortedTransactions = append([]kmsg.FetchResponseTopicPartitionAbortedTransaction{a}, rp.AbortedTransactions...)
			}
			delete(open, b.producer)
		} else {
			if b.txn && !isOpen {
				open[b.producer] = b.first
			}
			d := int64(0)
			for range rapid.IntRange(0, 9).Draw(t, "records") {
				b.deltas = append(b.deltas, d)
				b.lastDelta = int32(d)
				d += rapid.Int64Range(1, 3).Draw(t, "step")
			}
			b.lastDelta += rapid.Int32Range(0, 2).Draw(t, "compactedTail")
		}
		rp.RecordBatches = append(rp.RecordBatches, b.encode()...)
		next += int64(b.lastDelta) + 1
	}
	rp.HighWatermark, rp.LastStableOffset = next, next
	if n := len(rp.RecordBatches); n > 0 {
		rp.RecordBatches = rp.RecordBatches[:n-rapid.IntRange(0, min(n, 80)).Draw(t, "cutOff")]
	}
	return &rp, fetchFrom
}

// TestParseLikeClient holds parse and decode against the client's own way with a fetch response.
func TestParseLikeClient(t *testing.T) {
	dec := kgo.DefaultDecompressor()
	rapid.Check(t, func(t *rapid.T) {
		rp, from := genResponse(t)
		iso := Isolation(rapid.IntRange(0, 1).Draw(t, "isolation"))
		opts := kgo.ProcessFetchPartitionOpts{Offset: from, IsolationLevel: kgo.ReadUncommitted(), Topic: "t"}
		if iso == ReadCommitted {
			opts.IsolationLevel = kgo.ReadCommitted()
		}
		want, wantNext := kgo.ProcessFetchPartition(opts, rp, dec, nil)
		if want.Err != nil {
			t.Fatal(want.Err)
		}
		got, err := parse(rp, from, iso, dec)
		if err != nil {
			t.Fatal(err)
		}
		if got.next != wantNext {
			t.Fatalf("next %d, want %d", got.next, wantNext)
		}
		var b buffer
		b.reset(from)
		b.add(got)
		at, i := from, 0
		for at < got.next {
			limit := emitter.Limit{Records: rapid.Int64Range(0, 6).Draw(t, "limit")}
			end, epoch := b.plan(limit)
			if end <= at {
				t.Fatalf("no range at %d of %d", at, got.next)
			}
			var d decoder
			n, last := int64(0), batch.NoEpoch
			for _, s := range b.view(nil, at, end) {
				last = s.epoch
				if err := d.decode(batch.Partition{}, &s, at, end, func(c *batch.Chunk) error {
					for j := range c.Records {
						if i == len(want.Records) {
							t.Fatalf("a record too many, at %d", c.Records[j].Offset)
						}
						sameRecord(t, &c.Records[j], want.Records[i])
						i++
						n++
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			if limit.Records > 0 && n > limit.Records {
				t.Fatalf("%d records, the limit is %d", n, limit.Records)
			}
			if epoch != last {
				t.Fatalf("[%d,%d) ends in epoch %d, want %d", at, end, epoch, last)
			}
			at = end
		}
		if i != len(want.Records) {
			t.Fatalf("%d records, want %d", i, len(want.Records))
		}
	})
}

func sameRecord(t *rapid.T, got *batch.Record, want *kgo.Record) {
	same := got.Offset == want.Offset && got.Timestamp == want.Timestamp.UnixMilli() &&
		bytes.Equal(got.Key, want.Key) && (got.Key == nil) == (want.Key == nil) &&
		bytes.Equal(got.Value, want.Value) && (got.Value == nil) == (want.Value == nil) && len(got.Headers) == len(want.Headers)
	for i := 0; same && i < len(got.Headers); i++ {
		same = got.Headers[i].Key == want.Headers[i].Key && bytes.Equal(got.Headers[i].Value, want.Headers[i].Value)
	}
	if !same {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestParseDamage(t *testing.T) {
	good := fakeBatch{first: 5, deltas: []int64{0, 1, 2}, lastDelta: 2}
	for name, tc := range map[string]struct {
		damage func([]byte)
		crc    bool // mend the checksum after the damage
		want   string
	}{
		"checksum": {damage: func(b []byte) { b[len(b)-1]++ }, want: "record batch at offset 8: the checksum is wrong"},
		"format":   {damage: func(b []byte) { b[atMagic] = 1 }, want: "record batch at offset 8 has format 1, which Kafka wrote before 0.11"},
		"length":   {damage: func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], 9) }, want: "record batch at offset 8 claims 21 bytes"},
		"negative": {damage: func(b []byte) { binary.BigEndian.PutUint32(b[atCount:], 1<<31) }, crc: true, want: "record batch at offset 8 claims -2147483648 records"},
		"count":    {damage: func(b []byte) { binary.BigEndian.PutUint32(b[atCount:], 1000) }, crc: true, want: "record batch at offset 8 claims 1000 records in 30 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := fakeBatch{first: 8, deltas: []int64{0, 1, 2}, lastDelta: 2}.encode()
			tc.damage(bad)
			if tc.crc {
				binary.BigEndian.PutUint32(bad[atCRC:], crc32.Checksum(bad[atAttributes:], castagnoli))
			}
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.RecordBatches, rp.LastStableOffset = append(good.encode(), bad...), 11
			got, err := parse(&rp, 5, ReadCommitted, kgo.DefaultDecompressor())
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
			if got.next != 8 || len(got.segments) != 1 {
				t.Errorf("what lies before the damage: next %d, %d segments", got.next, len(got.segments))
			}
		})
	}

	t.Run("record", func(t *testing.T) {
		raw := good.encode()
		raw[batchOverhead] = 0x7f // the first record's length
		binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches, rp.LastStableOffset = raw, 8
		got, err := parse(&rp, 5, ReadCommitted, kgo.DefaultDecompressor())
		if err != nil {
			t.Fatal(err)
		}
		var b buffer
		b.reset(5)
		b.add(got)
		end, _ := b.plan(emitter.Limit{Records: 1})
		if end != 8 {
			t.Errorf("a garbled batch was planned to %d, want whole", end)
		}
		var d decoder
		err = d.decode(part("t", 0), &got.segments[0], 5, end, func(*batch.Chunk) error { return nil })
		if batch.CodeOf(err) != batch.CodeBadRecord || batch.KindOf(err) != batch.Permanent {
			t.Errorf("decode: %v", err)
		}
	})
}

// FuzzParse feeds damaged responses: errors are fine, panics and endless loops aren't.
func FuzzParse(f *testing.F) {
	f.Add(fakeBatch{first: 5, deltas: []int64{0, 1, 2}, lastDelta: 2, headers: 1}.encode())
	f.Add(fakeBatch{first: 5, deltas: []int64{0}, txn: true, control: true, abort: true}.encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > batchOverhead { // past the checksum, which would refuse nearly everything
			binary.BigEndian.PutUint32(raw[atLength:], uint32(len(raw)-atEpoch))
			raw[atAttributes+1] &^= attrCodec // decompression is the client's
			binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
		}
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches, rp.LastStableOffset = raw, 1<<40
		got, _ := parse(&rp, 0, ReadCommitted, kgo.DefaultDecompressor())
		var b buffer
		b.reset(0)
		b.add(got)
		var d decoder
		for at := int64(0); at < got.next; {
			end, _ := b.plan(emitter.Limit{Records: 1, Bytes: 10})
			if end <= at {
				t.Fatalf("no range at %d of %d", at, got.next)
			}
			for _, s := range b.view(nil, at, end) {
				if d.decode(batch.Partition{}, &s, at, end, func(*batch.Chunk) error { return nil }) != nil {
					return
				}
			}
			at = end
		}
	})
}
