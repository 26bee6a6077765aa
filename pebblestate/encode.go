package pebblestate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// The first byte of a value tells its version, so that a later one can add fields and read both.
const (
	// What earlier builds wrote, which didn't count filtered rows:
	plainVersion     = 1
	importVersion    = 2 // of an entry that ends in Imported
	migrationVersion = 3 // of an entry that ends in Migrated
	// countedVersion is of an entry that ends in Imported, Migrated and Counts.Filtered, as they wrote it then.
	countedVersion = 4
	// sinkVersion is of an entry that ends in Imported, Migrated, Counts.Filtered, Sinks and a checksum, when there were no dead letters.
	sinkVersion = 5
	// entryVersion is of an entry that ends in Imported, Migrated, Counts.Filtered, Sinks, Counts.Dead and a checksum.
	entryVersion = 6

	positionVersion = 1
	staticVersion   = 1
)

func readVersion(r *enc.Reader, what string, known byte) error {
	if v := r.Byte(); r.Err() == nil && v != known {
		return fmt.Errorf("%w: %s of version %d, version %d is known", enc.ErrMalformed, what, v, known)
	}
	return r.Err()
}

func appendPartition(b []byte, p batch.Partition) []byte {
	b = enc.AppendString(b, p.Source)
	b = enc.AppendString(b, p.Topic)
	return enc.AppendVarint(b, int64(p.Number))
}

func readPartition(r *enc.Reader) batch.Partition {
	return batch.Partition{Source: r.String(), Topic: r.String(), Number: r.Int32()}
}

func appendEntry(b []byte, e *txstate.Entry) []byte {
	begin := len(b)
	b = append(b, entryVersion)
	b = enc.AppendUvarint(b, uint64(e.Txid))
	b = enc.AppendUvarint(b, uint64(e.Attempt.Epoch))
	b = enc.AppendUvarint(b, uint64(e.Attempt.N))
	b = enc.AppendUvarint(b, uint64(e.Attempts))
	b = enc.AppendTime(b, e.Time)
	b = enc.AppendUint64(b, e.Seed)
	b = enc.AppendUint64(b, e.Chain)
	b = enc.AppendUint64(b, e.Plan)
	b = enc.AppendString(b, e.Build)
	b = enc.AppendBool(b, e.Reset)
	b = enc.AppendTime(b, e.Committed)
	for _, d := range [...]time.Duration{e.Took.Plan, e.Took.Read, e.Took.Process, e.Took.Commit} {
		b = enc.AppendVarint(b, int64(d))
	}
	for _, n := range [...]int64{e.Counts.Read, e.Counts.Rejected, e.Counts.Late, e.Counts.Future} {
		b = enc.AppendVarint(b, n)
	}
	b = enc.AppendUvarint(b, uint64(len(e.Ranges)))
	for i := range e.Ranges {
		g := &e.Ranges[i]
		b = appendPartition(b, g.Partition)
		b = enc.AppendVarint(b, g.Start)
		b = enc.AppendVarint(b, g.End)
		b = enc.AppendString(b, g.Identity)
		b = enc.AppendVarint(b, int64(g.LeaderEpoch))
		b = enc.AppendVarint(b, g.Records)
		b = enc.AppendVarint(b, g.Bytes)
		b = enc.AppendUint64(b, g.Digest)
		b = enc.AppendVarint(b, g.EventTime)
	}
	b = enc.AppendUvarint(b, uint64(len(e.Idle)))
	for _, p := range e.Idle {
		b = appendPartition(b, p)
	}
	b = enc.AppendUvarint(b, uint64(len(e.Joined)))
	for _, p := range e.Joined {
		b = appendPartition(b, p.Partition)
		b = enc.AppendVarint(b, p.Next)
		b = enc.AppendString(b, p.Identity)
		b = enc.AppendVarint(b, int64(p.LeaderEpoch))
	}
	b = enc.AppendUvarint(b, uint64(len(e.Watermarks)))
	for _, w := range e.Watermarks {
		b = enc.AppendString(b, w.Source)
		b = enc.AppendVarint(b, w.Time)
	}
	b = enc.AppendUvarint(b, uint64(len(e.States)))
	for _, s := range e.States {
		b = enc.AppendString(b, s.State)
		b = enc.AppendVarint(b, s.Writes)
		b = enc.AppendUint64(b, s.Digest)
	}
	b = enc.AppendUvarint(b, uint64(len(e.Statics)))
	for _, s := range e.Statics {
		b = enc.AppendString(b, s.Name)
		b = enc.AppendVarint(b, s.Rows)
		b = enc.AppendUint64(b, s.Digest)
	}
	b = enc.AppendString(b, e.Imported)
	b = enc.AppendUvarint(b, uint64(len(e.Migrated)))
	for _, m := range e.Migrated {
		b = enc.AppendString(b, m)
	}
	b = enc.AppendVarint(b, e.Counts.Filtered)
	b = enc.AppendUvarint(b, uint64(len(e.Sinks)))
	for _, s := range e.Sinks {
		b = enc.AppendString(b, s.Sink)
		b = enc.AppendVarint(b, s.Records)
		b = enc.AppendUint64(b, s.Chain)
	}
	b = enc.AppendVarint(b, e.Counts.Dead)
	return enc.AppendUint64(b, xxhash.Sum64(b[begin:]))
}

// checksumSize is the length of the checksum that an entry ends in. The chain covers what a batch was and did; the checksum all
// that else is said of it, too.
const checksumSize = 8

func decodeEntry(b []byte) (txstate.Entry, error) {
	var e txstate.Entry
	r := enc.NewReader(b)
	version := r.Byte()
	if r.Err() == nil && (version < plainVersion || version > entryVersion) {
		return e, fmt.Errorf("%w: ledger entry of version %d, versions %d to %d are known", enc.ErrMalformed, version, plainVersion, entryVersion)
	}
	if version >= sinkVersion {
		end := len(b) - checksumSize
		if end < 1 || binary.BigEndian.Uint64(b[end:]) != xxhash.Sum64(b[:end]) {
			return e, fmt.Errorf("%w: the checksum of the ledger entry is wrong", enc.ErrMalformed)
		}
		r = enc.NewReader(b[1:end])
	}
	e.Txid = batch.Txid(r.Uvarint())
	e.Attempt = batch.Attempt{Epoch: batch.Epoch(r.Uvarint()), N: r.Uint32()}
	e.Attempts = r.Uint32()
	e.Time = r.Time()
	e.Seed, e.Chain, e.Plan = r.Uint64(), r.Uint64(), r.Uint64()
	e.Build = r.String()
	e.Reset = r.Bool()
	e.Committed = r.Time()
	for _, d := range [...]*time.Duration{&e.Took.Plan, &e.Took.Read, &e.Took.Process, &e.Took.Commit} {
		*d = time.Duration(r.Varint())
	}
	for _, n := range [...]*int64{&e.Counts.Read, &e.Counts.Rejected, &e.Counts.Late, &e.Counts.Future} {
		*n = r.Varint()
	}
	e.Ranges = readSlice(r, 19, func() (g txstate.RangeEntry) {
		g.Partition = readPartition(r)
		g.Start, g.End = r.Varint(), r.Varint()
		g.Identity, g.LeaderEpoch = r.String(), r.Int32()
		g.Records, g.Bytes, g.Digest = r.Varint(), r.Varint(), r.Uint64()
		g.EventTime = r.Varint()
		return g
	})
	e.Idle = readSlice(r, 3, func() batch.Partition { return readPartition(r) })
	e.Joined = readSlice(r, 6, func() batch.Position {
		return batch.Position{Partition: readPartition(r), Next: r.Varint(), Identity: r.String(), LeaderEpoch: r.Int32()}
	})
	e.Watermarks = readSlice(r, 2, func() txstate.Watermark { return txstate.Watermark{Source: r.String(), Time: r.Varint()} })
	e.States = readSlice(r, 10, func() txstate.StateDigest {
		return txstate.StateDigest{State: r.String(), Writes: r.Varint(), Digest: r.Uint64()}
	})
	e.Statics = readSlice(r, 10, func() txstate.StaticVersion {
		return txstate.StaticVersion{Name: r.String(), Rows: r.Varint(), Digest: r.Uint64()}
	})
	e.Counts.Filtered = txstate.Uncounted
	switch version {
	case importVersion:
		if e.Imported = r.String(); r.Err() == nil && e.Imported == "" {
			return e, fmt.Errorf("%w: a ledger entry of version %d that was imported from nowhere", enc.ErrMalformed, version)
		}
	case migrationVersion:
		if e.Migrated = readSlice(r, 1, r.String); r.Err() == nil && len(e.Migrated) == 0 {
			return e, fmt.Errorf("%w: a ledger entry of version %d that migrated nothing", enc.ErrMalformed, version)
		}
	case countedVersion:
		e.Imported = r.String()
		e.Migrated = readSlice(r, 1, r.String)
		if e.Counts.Filtered = r.Varint(); r.Err() == nil && e.Counts.Filtered == txstate.Uncounted {
			return e, fmt.Errorf("%w: a ledger entry of version %d without its count", enc.ErrMalformed, version)
		}
	case sinkVersion, entryVersion:
		e.Imported = r.String()
		e.Migrated = readSlice(r, 1, r.String)
		e.Counts.Filtered = r.Varint()
		e.Sinks = readSlice(r, 10, func() txstate.SinkDigest {
			return txstate.SinkDigest{Sink: r.String(), Records: r.Varint(), Chain: r.Uint64()}
		})
		if version == entryVersion {
			e.Counts.Dead = r.Varint()
		}
	}
	return e, r.Done()
}

// readSlice reads a count and as many elements, each of at least size bytes; nil if there are none.
func readSlice[T any](r *enc.Reader, size int, read func() T) []T {
	n := r.Count(size)
	if n == 0 {
		return nil
	}
	s := make([]T, 0, n)
	for range n {
		if v := read(); r.Err() == nil {
			s = append(s, v)
		}
	}
	return s
}

// appendPosition appends what the key of a position doesn't hold.
func appendPosition(b []byte, p *txstate.SavedPosition) []byte {
	b = append(b, positionVersion)
	b = enc.AppendVarint(b, p.Next)
	b = enc.AppendString(b, p.Identity)
	b = enc.AppendVarint(b, int64(p.LeaderEpoch))
	b = enc.AppendVarint(b, p.EventTime)
	b = enc.AppendTime(b, p.MovedAt)
	b = enc.AppendUvarint(b, uint64(p.Txid))
	return enc.AppendUvarint(b, uint64(p.Joined))
}

func decodePosition(key, b []byte) (p txstate.SavedPosition, err error) {
	if p.Partition, err = decodePositionKey(key); err != nil {
		return p, err
	}
	r := enc.NewReader(b)
	if err := readVersion(r, "position", positionVersion); err != nil {
		return p, err
	}
	p.Next = r.Varint()
	p.Identity = r.String()
	p.LeaderEpoch = r.Int32()
	p.EventTime = r.Varint()
	p.MovedAt = r.Time()
	p.Txid, p.Joined = batch.Txid(r.Uvarint()), batch.Txid(r.Uvarint())
	return p, r.Done()
}

// committed is the record of the last committed batch.
type committed struct {
	txid  batch.Txid
	chain uint64
	time  time.Time
}

func (c committed) append(b []byte) []byte {
	b = enc.AppendUvarint(b, uint64(c.txid))
	b = enc.AppendUint64(b, c.chain)
	return enc.AppendTime(b, c.time)
}

func decodeCommitted(b []byte) (c committed, err error) {
	r := enc.NewReader(b)
	c = committed{txid: batch.Txid(r.Uvarint()), chain: r.Uint64(), time: r.Time()}
	return c, r.Done()
}

// appendState appends a state's id and schema. The schema is JSON, so that it can grow without a new version.
func appendState(b []byte, id uint64, s *state.Schema) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a Schema holds only strings and numbers
	}
	return append(enc.AppendUvarint(b, id), text...)
}

func decodeState(b []byte) (id uint64, s state.Schema, err error) {
	r := enc.NewReader(b)
	if id = r.Uvarint(); r.Err() != nil {
		return 0, s, r.Err()
	}
	return id, s, json.Unmarshal(r.Rest(), &s)
}

// appendStatic appends the header of a static table; its records lie in chunks of their own.
func appendStatic(b []byte, t *StaticTable) []byte {
	b = append(b, staticVersion)
	b = enc.AppendUint64(b, t.Digest)
	b = enc.AppendUvarint(b, uint64(len(t.Parts)))
	for i := range t.Parts {
		p := &t.Parts[i]
		b = appendPartition(b, p.Partition)
		b = enc.AppendBool(b, p.Fields != nil)
		b = enc.AppendUvarint(b, uint64(len(p.Fields)))
		for _, f := range p.Fields {
			b = enc.AppendString(b, f)
		}
		b = enc.AppendUvarint(b, uint64(len(p.Records)))
	}
	return b
}

// decodeStatic returns the table without its records, and how many each part has.
func decodeStatic(b []byte) (t StaticTable, counts []int, err error) {
	r := enc.NewReader(b)
	if err := readVersion(r, "static table", staticVersion); err != nil {
		return t, nil, err
	}
	t.Digest = r.Uint64()
	t.Parts = readSlice(r, 6, func() StaticPart {
		p := StaticPart{Partition: readPartition(r)}
		named := r.Bool()
		if p.Fields = readSlice(r, 1, r.String); named && p.Fields == nil {
			p.Fields = []string{}
		}
		counts = append(counts, int(r.Uvarint()))
		return p
	})
	return t, counts, r.Done()
}

func appendRecord(b []byte, rec *batch.Record) []byte {
	b = enc.AppendVarint(b, rec.Offset)
	b = enc.AppendVarint(b, rec.Timestamp)
	b = enc.AppendNullable(b, rec.Key)
	b = enc.AppendNullable(b, rec.Value)
	b = enc.AppendUvarint(b, uint64(len(rec.Headers)))
	for _, h := range rec.Headers {
		b = enc.AppendString(b, h.Key)
		b = enc.AppendNullable(b, h.Value)
	}
	return b
}

func readRecord(r *enc.Reader) batch.Record {
	return batch.Record{
		Offset: r.Varint(), Timestamp: r.Varint(), Key: r.Nullable(), Value: r.Nullable(),
		Headers: readSlice(r, 2, func() batch.Header { return batch.Header{Key: r.String(), Value: r.Nullable()} }),
	}
}
