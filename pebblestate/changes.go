package pebblestate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/state"
)

// The write sets of a batch, kept as they were applied: merge operands stay operands. They are one stream of items, cut into
// chunks anywhere between two items; each chunk has a checksum over its key, too, so that none passes for another.

const (
	changesVersion = 1
	// changesChunk bounds the items under one key, in bytes; a larger one has a chunk of its own.
	changesChunk = 256 << 10
	// changesSum is the length of the checksum behind each chunk.
	changesSum = 4
)

// The items. Those of a write are itemWrite plus the operation.
const (
	itemState = 0 // a write set begins
	itemShard = 1 // the writes of a shard begin
	itemWrite = 2
)

func changesKey(txid batch.Txid, chunk int) []byte {
	return binary.BigEndian.AppendUint32(txidKey(kindChanges, txid), uint32(chunk))
}

// putChanges keeps the sets beside the ledger entry.
func (w *writer) putChanges(sets []*state.WriteSet) error {
	var buf, key []byte
	chunk := 0
	begin := func() {
		key = changesKey(w.txid, chunk)
		buf = append(buf[:0], changesVersion)
	}
	flush := func(last bool) error {
		buf = enc.AppendBool(buf, last)
		buf = binary.BigEndian.AppendUint32(buf, changesChecksum(key, buf))
		err := w.set(key, buf)
		chunk++
		begin()
		return err
	}
	room := func() error {
		if len(buf) < changesChunk {
			return nil
		}
		return flush(false)
	}
	begin()
	for _, s := range sets {
		buf = append(buf, itemState)
		buf = enc.AppendString(buf, s.State)
		buf = enc.AppendUint64(buf, s.Digest)
		buf = enc.AppendVarint(buf, s.Writes)
		buf = enc.AppendUvarint(buf, uint64(len(s.DropWindows)))
		for _, d := range s.DropWindows {
			buf = enc.AppendBytes(buf, d)
		}
		for shard, writes := range s.Shards {
			if len(writes) == 0 {
				continue
			}
			if err := room(); err != nil {
				return err
			}
			buf = append(buf, itemShard)
			buf = enc.AppendUvarint(buf, uint64(shard))
			for i := range writes {
				if err := room(); err != nil {
					return err
				}
				wr := &writes[i]
				buf = append(buf, itemWrite+byte(wr.Op))
				buf = enc.AppendBytes(buf, wr.Key)
				if wr.Op != state.Delete {
					buf = enc.AppendBytes(buf, wr.Value)
				}
			}
		}
	}
	return flush(true)
}

func changesChecksum(key, chunk []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, chunk)
}

// errChecksum is a chunk whose bytes aren't those that were written.
var errChecksum = errors.New("the checksum is wrong")

// Changes returns what a committed batch wrote, if that was kept; ok is false if it wasn't, or has been trimmed. The sets come
// in the order of the states' names.
//
// After an error with batch.CodeStoreDamaged sets holds what of the record could be made out all the same, for whoever wants
// to show what has become of it; it must not be taken for what the batch wrote.
func (db *DB) Changes(ctx context.Context, txid batch.Txid) (sets []*state.WriteSet, ok bool, err error) {
	v, err := db.acquire()
	if err != nil {
		return nil, false, err
	}
	defer db.release(v)
	it, err := v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: txidKey(kindChanges, txid), UpperBound: txidKey(kindChanges, txid+1)})
	if err != nil {
		return nil, false, db.failedRead(err)
	}
	d := changesReader{txid: txid, shards: db.format.Shards}
	for it.First(); it.Valid(); it.Next() {
		d.chunk(it.Key(), append([]byte(nil), it.Value()...)) // the sets refer to it
	}
	if err := db.closed(it, nil); err != nil {
		return nil, false, err
	}
	if d.chunks == 0 {
		return nil, false, nil
	}
	if err := d.done(); err != nil {
		err := batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "read",
			fmt.Errorf("the kept changes of txid %d in %s: %w", txid, db.pebbleDir(), err), remedyChanges)
		err.Pipeline, err.Txid = db.format.Pipeline, txid
		return d.sets, true, err
	}
	return d.sets, true, nil
}

const remedyChanges = "the batch's results lie elsewhere: `replay --verify` tells whether they are right; restore a savepoint if they aren't"

// changesReader puts the chunks of one batch together.
type changesReader struct {
	txid   batch.Txid
	shards int

	sets   []*state.WriteSet
	writes *[]state.Write // of the shard at hand; nil before the first
	chunks int
	ended  bool
	err    error // the first; items are read on after a wrong checksum only
	broken bool
}

func (d *changesReader) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// chunk takes the next one. The sets will refer to b.
func (d *changesReader) chunk(key, b []byte) {
	n := d.chunks
	d.chunks++
	switch {
	case d.broken:
		return
	case d.ended:
		d.fail(fmt.Errorf("%w: chunk %d stands behind the last", enc.ErrMalformed, n))
		return
	case string(key) != string(changesKey(d.txid, n)):
		d.fail(fmt.Errorf("%w: chunk %d is missing", enc.ErrMalformed, n))
		d.broken = true
		return
	case len(b) < 2+changesSum:
		d.fail(fmt.Errorf("%w: chunk %d has %d bytes", enc.ErrMalformed, n, len(b)))
		d.broken = true
		return
	}
	body := b[:len(b)-changesSum]
	if changesChecksum(key, body) != binary.BigEndian.Uint32(b[len(body):]) {
		d.fail(fmt.Errorf("chunk %d: %w", n, errChecksum))
	}
	last := body[len(body)-1]
	d.ended = last == 1
	r := enc.NewReader(body[:len(body)-1])
	err := readVersion(r, "kept changes", changesVersion)
	if last > 1 {
		err = fmt.Errorf("%w: its end is marked %d", enc.ErrMalformed, last)
	}
	for err == nil && len(r.Rest()) > 0 {
		err = d.item(r)
	}
	if err != nil {
		d.fail(fmt.Errorf("chunk %d: %w", n, err))
		d.broken = true
	}
}

func (d *changesReader) item(r *enc.Reader) error {
	kind := r.Byte()
	if kind > itemState && len(d.sets) == 0 || kind > itemShard && d.writes == nil {
		return fmt.Errorf("%w: an item of kind %d belongs to nothing", enc.ErrMalformed, kind)
	}
	switch kind {
	case itemState:
		s := &state.WriteSet{State: r.String(), Digest: r.Uint64(), Writes: r.Varint(), Shards: make([][]state.Write, d.shards)}
		s.DropWindows = readSlice(r, 1, r.Bytes)
		if n := len(d.sets); r.Err() == nil && n > 0 && d.sets[n-1].State >= s.State {
			return fmt.Errorf("%w: state %q comes behind state %q", enc.ErrMalformed, s.State, d.sets[n-1].State)
		}
		d.sets, d.writes = append(d.sets, s), nil
	case itemShard:
		n := r.Uvarint()
		if r.Err() == nil && n >= uint64(d.shards) {
			return fmt.Errorf("%w: shard %d of %d", enc.ErrMalformed, n, d.shards)
		}
		if r.Err() == nil {
			d.writes = &d.sets[len(d.sets)-1].Shards[n]
		}
	case itemWrite + byte(state.Set), itemWrite + byte(state.Merge), itemWrite + byte(state.Delete):
		w := state.Write{Op: state.Op(kind - itemWrite), Key: r.Bytes()}
		if w.Op != state.Delete {
			w.Value = r.Bytes()
		}
		if r.Err() == nil {
			*d.writes = append(*d.writes, w)
		}
	default:
		return fmt.Errorf("%w: an item of kind %d", enc.ErrMalformed, kind)
	}
	return r.Err()
}

func (d *changesReader) done() error {
	if !d.ended {
		d.fail(fmt.Errorf("%w: its end is missing", enc.ErrMalformed))
	}
	return d.err
}
