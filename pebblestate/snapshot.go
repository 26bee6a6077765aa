package pebblestate

import (
	"bytes"
	"container/heap"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/state"
)

// Snapshot is what the database holds after one committed txid, whatever commits meanwhile. It may be used by many
// goroutines at once, and must be closed.
type Snapshot struct {
	db    *DB
	v     *version
	close sync.Once
}

// Row is one key of a state with its value, both encoded. They are the caller's own.
type Row struct{ Key, Value []byte }

// Snapshot returns the database as the last commit left it.
func (db *DB) Snapshot() (*Snapshot, error) {
	v, err := db.acquire()
	if err != nil {
		return nil, err
	}
	return &Snapshot{db: db, v: v}, nil
}

// Txid is the last txid that the snapshot holds.
func (s *Snapshot) Txid() batch.Txid { return s.v.txid }

// Close gives the snapshot up.
func (s *Snapshot) Close() error {
	s.close.Do(func() { s.db.release(s.v) })
	return nil
}

// Schemas returns the schemas of all states, by name.
func (s *Snapshot) Schemas() ([]state.Schema, error) {
	schemas := make([]state.Schema, 0, len(s.v.states))
	for _, name := range slices.Sorted(maps.Keys(s.v.states)) {
		schemas = append(schemas, s.v.states[name].schema)
	}
	return schemas, nil
}

// Get returns the value of a key of a state, or ok = false. A state that doesn't exist is empty.
func (s *Snapshot) Get(_ context.Context, name string, key []byte) (value []byte, ok bool, err error) {
	t := s.v.states[name]
	if t == nil {
		return nil, false, nil
	}
	return s.db.get(s.v, t, state.ShardOf(key, s.db.format.Shards), key)
}

// Scan iterates over the rows of a state with from <= key < to, in key order over all shards; a nil bound is none.
func (s *Snapshot) Scan(ctx context.Context, name string, from, to []byte) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		t := s.v.states[name]
		if t == nil {
			return
		}
		m := merge{ctx: ctx, prefix: t.prefix, from: from, to: to, shards: s.db.format.Shards}
		err := m.open(s.v.snap)
		for err == nil && len(m.cursors) > 0 {
			c := m.cursors[0]
			row := c.rows[0]
			if !yield(row, nil) {
				_ = m.it.Close() // the caller has what it wanted
				return
			}
			err = m.advance()
		}
		if m.it != nil {
			err = s.db.closed(m.it, s.db.failedRead(err))
		}
		if err != nil {
			yield(Row{}, err)
		}
	}
}

// ScanShard iterates over the rows of one shard of a state with from <= key < to, in key order; a nil bound is none.
func (s *Snapshot) ScanShard(ctx context.Context, name string, shard int, from, to []byte) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		t := s.v.states[name]
		if t == nil {
			return
		}
		prefix := appendShard(slices.Clone(t.prefix), shard)
		upper := enc.PrefixEnd(prefix)
		if to != nil {
			upper = append(slices.Clone(prefix), to...)
		}
		it, err := s.v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: append(slices.Clone(prefix), from...), UpperBound: upper})
		if err != nil {
			yield(Row{}, s.db.failedRead(err))
			return
		}
		for it.First(); it.Valid(); it.Next() {
			k := it.Key()[len(prefix):]
			buf := append(append(make([]byte, 0, len(k)+len(it.Value())), k...), it.Value()...)
			if !yield(Row{Key: buf[:len(k):len(k)], Value: buf[len(k):]}, nil) {
				_ = it.Close() // the caller has what it wanted
				return
			}
		}
		if err := s.db.closed(it, s.db.failedRead(it.Error())); err != nil {
			yield(Row{}, err)
		}
	}
}

// merge brings the shards of a state, each sorted by key, into one order. A single iterator of Pebble serves all:
// it fetches some rows of a shard ahead, the more the further that shard has been read.
type merge struct {
	ctx      context.Context
	it       *pebble.Iterator
	prefix   []byte
	from, to []byte
	shards   int
	cursors  cursors
	key      []byte
}

// cursor holds the next rows of a shard; it is never empty while it is in the heap.
type cursor struct {
	shard int
	ahead int   // rows to be fetched next
	rows  []Row // fetched and not yet yielded
	ended bool  // nothing lies behind rows
}

const (
	aheadMin = 4
	aheadMax = 512
)

type cursors []*cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(i, j int) bool { return bytes.Compare(c[i].rows[0].Key, c[j].rows[0].Key) < 0 }
func (c cursors) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(x any)        { *c = append(*c, x.(*cursor)) }
func (c *cursors) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}

func (m *merge) open(snap *pebble.Snapshot) (err error) {
	m.it, err = snap.NewIterWithContext(m.ctx, &pebble.IterOptions{
		LowerBound: appendShard(slices.Clone(m.prefix), 0), UpperBound: enc.PrefixEnd(m.prefix),
	})
	if err != nil {
		return err
	}
	for shard := 0; shard < m.shards; shard++ {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		c := &cursor{shard: shard, ahead: aheadMin}
		m.it.SeekGE(m.at(shard, m.from))
		if !m.it.Valid() {
			break // no shard from here on has such a key
		}
		if at := m.shardOfIter(); at > shard && m.from == nil {
			shard, c.shard = at, at // the shards between are empty
		}
		m.fetch(c)
		if len(c.rows) > 0 {
			m.cursors = append(m.cursors, c)
		}
	}
	heap.Init(&m.cursors)
	return m.it.Error()
}

func (m *merge) at(shard int, key []byte) []byte {
	m.key = append(appendShard(append(m.key[:0], m.prefix...), shard), key...)
	return m.key
}

func (m *merge) shardOfIter() int {
	k := m.it.Key()[len(m.prefix):]
	return int(k[0])<<8 | int(k[1])
}

// fetch takes rows from where the iterator stands.
func (m *merge) fetch(c *cursor) {
	c.rows = make([]Row, 0, c.ahead)
	lead := len(m.prefix) + 2
	for ; m.it.Valid(); m.it.Next() {
		k := m.it.Key()
		if m.shardOfIter() != c.shard || m.to != nil && bytes.Compare(k[lead:], m.to) >= 0 {
			break
		}
		if len(c.rows) == c.ahead {
			c.ahead = min(c.ahead*2, aheadMax)
			return
		}
		buf := append(append(make([]byte, 0, len(k)-lead+len(m.it.Value())), k[lead:]...), m.it.Value()...)
		n := len(k) - lead
		c.rows = append(c.rows, Row{Key: buf[:n:n], Value: buf[n:]})
	}
	c.ended = true
}

// advance drops the first row of the first cursor.
func (m *merge) advance() error {
	c := m.cursors[0]
	last := c.rows[0].Key
	if c.rows = c.rows[1:]; len(c.rows) == 0 && !c.ended {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		m.it.SeekGE(append(m.at(c.shard, last), 0)) // the smallest key above last
		m.fetch(c)
	}
	if len(c.rows) > 0 {
		heap.Fix(&m.cursors, 0)
	} else {
		heap.Pop(&m.cursors)
	}
	return m.it.Error()
}

// StateDigest is the digest of all that a state holds.
type StateDigest struct {
	State  string
	Rows   int64
	Digest uint64
}

// StateDigests returns the digest of each state that has a row, by name. Equal digests mean equal keys and values,
// whatever the number of shards and however the values were written.
func (s *Snapshot) StateDigests(ctx context.Context) ([]StateDigest, error) {
	var all []StateDigest
	for _, name := range slices.Sorted(maps.Keys(s.v.states)) {
		h := xxhash.New()
		d := StateDigest{State: name}
		var lead []byte
		for row, err := range s.Scan(ctx, name, nil, nil) {
			if err != nil {
				return nil, err
			}
			lead = enc.AppendUvarint(enc.AppendUvarint(lead[:0], uint64(len(row.Key))), uint64(len(row.Value)))
			h.Write(lead)
			h.Write(row.Key)
			h.Write(row.Value)
			d.Rows++
		}
		if d.Rows > 0 {
			d.Digest = h.Sum64()
			all = append(all, d)
		}
	}
	return all, nil
}

// Digest folds StateDigests into one.
func (s *Snapshot) Digest(ctx context.Context) (uint64, error) {
	all, err := s.StateDigests(ctx)
	if err != nil {
		return 0, err
	}
	var b []byte
	for _, d := range all {
		b = enc.AppendString(b, d.State)
		b = enc.AppendUvarint(b, uint64(d.Rows))
		b = enc.AppendUint64(b, d.Digest)
	}
	return xxhash.Sum64(b), nil
}

// StateDigests returns the digests of the states as the last commit left them.
func (db *DB) StateDigests(ctx context.Context) ([]StateDigest, error) {
	s, err := db.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	return s.StateDigests(ctx)
}

// Digest returns the digest of all states as the last commit left them.
func (db *DB) Digest(ctx context.Context) (uint64, error) {
	s, err := db.Snapshot()
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	return s.Digest(ctx)
}
