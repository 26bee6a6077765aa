// Package gen makes records up: for demonstrations, tests and benchmarks.
//
// The record at an offset is a pure function of the seed, the partition and the offset. Any range can be read again,
// on any machine, and gives the same bytes; the rate says only when an offset comes into being, never what it holds.
package gen

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// Maker makes the record at an offset. It draws from rng alone and keeps nothing between calls; it is called from
// several goroutines. Key and value are appended to the slices of rec, which come empty; a Key that stays nil is no
// key. The timestamp is in milliseconds since 1970.
type Maker func(rng *batch.Rand, partition int32, offset int64, rec *batch.Record)

// Config is what a generator makes.
type Config struct {
	Name string // of the kind of records: the topic of the partitions; default "records"
	Make Maker
	// MaxBytes is the most bytes that Make gives a record, which lets ranges be planned without making them. 0: not
	// known.
	MaxBytes int64

	Seed       uint64
	Partitions int     // default 1
	Rate       float64 // records a second, of all partitions together; 0: no limit
	Count      int64   // records, of all partitions together; 0: endless

	// Now is the clock of the rate. Default time.Now.
	Now func() time.Time
}

// New returns a source that generates records.
func New(cfg Config) Source {
	if cfg.Name == "" {
		cfg.Name = "records"
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = 1
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return Source{cfg}
}

// Source generates records.
type Source struct{ cfg Config }

// Describe names what decides the records. Count and Rate don't: they are how many there are by when, as the length of a
// file that grows.
func (s Source) Describe() string {
	c := s.cfg
	return fmt.Sprintf("generated %s, seed %d, partitions %d", c.Name, c.Seed, c.Partitions)
}

// Open returns an emitter of the generated records. They have no framing.
func (s Source) Open(id string, _ emitter.Framing, _ emitter.Env) (emitter.Emitter, error) {
	c := s.cfg
	var err error
	switch {
	case c.Make == nil:
		err = fmt.Errorf("Make is not set")
	case c.Partitions < 1 || c.Partitions > math.MaxInt32:
		err = fmt.Errorf("Partitions: %d is not a number of partitions", c.Partitions)
	case c.Rate < 0 || math.IsNaN(c.Rate) || math.IsInf(c.Rate, 0):
		err = fmt.Errorf("Rate: %v is not a number of records a second", c.Rate)
	case c.Count < 0:
		err = fmt.Errorf("Count: %d is not a number of records", c.Count)
	case c.MaxBytes < 0:
		err = fmt.Errorf("MaxBytes: %d is not a number of bytes", c.MaxBytes)
	}
	if err != nil {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "open", fmt.Errorf("generator %s: %w", id, err), "correct the setting")
	}
	e := &Emitter{
		id: id, cfg: c, ready: make(chan struct{}, 1), done: make(chan struct{}), identity: fmt.Sprintf("%s:%d", c.Name, c.Seed),
		parts: make([]partition, c.Partitions),
	}
	return e, nil
}

// Emitter generates the records of one source.
type Emitter struct {
	id       string
	cfg      Config
	identity string
	ready    chan struct{}
	done     chan struct{}
	closing  sync.Once
	wg       sync.WaitGroup
	makers   sync.Pool // of *maker

	mu     sync.Mutex
	opened time.Time
	parts  []partition // by number
}

// partition belongs to Emitter.mu.
type partition struct {
	admitted bool
	first    int64 // where it stood when the emitter was opened: the rate counts from there
	planned  int64
}

var _ emitter.Emitter = (*Emitter)(nil)

// planRecords bounds a range where nothing else does.
const planRecords = 100_000

// chunkRecords is how many records are made at once.
const chunkRecords = 1024

// ID is the source's name.
func (e *Emitter) ID() string { return e.id }

func (e *Emitter) partition(i int) batch.Partition {
	return batch.Partition{Source: e.id, Topic: e.cfg.Name, Number: int32(i)}
}

func (e *Emitter) lookup(p batch.Partition) *partition {
	if p.Source != e.id || p.Topic != e.cfg.Name || p.Number < 0 || int(p.Number) >= len(e.parts) {
		return nil
	}
	return &e.parts[p.Number]
}

// Open starts the clock of the rate. Positions that another seed or kind of records left are refused.
func (e *Emitter) Open(_ context.Context, saved []batch.Position, _ bool) ([]batch.Position, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := map[int32]bool{}
	for _, p := range saved {
		part := e.lookup(p.Partition)
		if part == nil {
			continue
		}
		if p.Next > 0 && p.Identity != "" && p.Identity != e.identity {
			return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "open",
				fmt.Errorf("the records so far were generated as %s, now they would be %s", p.Identity, e.identity),
				"set kind and seed back, or start over in an empty data directory").At(p.Partition, p.Next)
		}
		known[p.Number] = true
		*part = partition{admitted: true, first: p.Next, planned: p.Next}
	}
	var starts []batch.Position
	for i := range e.parts {
		if !known[int32(i)] {
			starts = append(starts, batch.Position{Partition: e.partition(i), Identity: e.identity, LeaderEpoch: batch.NoEpoch})
		}
	}
	e.opened = e.cfg.Now()
	if e.cfg.Rate > 0 {
		e.wg.Go(e.beat)
	}
	e.signal()
	return starts, nil
}

// beat signals when offsets come into being: with each record, or a hundred times a second.
func (e *Emitter) beat() {
	every := max(time.Duration(float64(time.Second)/e.cfg.Rate), 10*time.Millisecond)
	tick := time.NewTicker(min(every, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.signal()
		case <-e.done:
			return
		}
	}
}

func (e *Emitter) signal() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

// Discovered returns nothing: the partitions are fixed.
func (e *Emitter) Discovered() []batch.Position { return nil }

// Admit lets partitions be planned.
func (e *Emitter) Admit(ps []batch.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range ps {
		if part := e.lookup(p.Partition); part != nil && !part.admitted {
			*part = partition{admitted: true, first: p.Next, planned: p.Next}
		}
	}
	e.signal()
}

// Ready receives a value when offsets may have come into being.
func (e *Emitter) Ready() <-chan struct{} { return e.ready }

// Partitions lists the admitted partitions.
func (e *Emitter) Partitions() []batch.Partition {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ps []batch.Partition
	for i := range e.parts {
		if e.parts[i].admitted {
			ps = append(ps, e.partition(i))
		}
	}
	return ps
}

// most is how many records partition i holds in all.
func (e *Emitter) most(i int) int64 {
	if e.cfg.Count == 0 {
		return math.MaxInt64
	}
	n, p := e.cfg.Count, int64(len(e.parts))
	if int64(i) < n%p {
		return n/p + 1
	}
	return n / p
}

// end is the offset behind the last one that has come into being.
func (e *Emitter) end(i int) int64 {
	if e.cfg.Rate == 0 {
		return e.most(i)
	}
	elapsed := e.cfg.Now().Sub(e.opened).Seconds()
	made := math.Floor(elapsed * e.cfg.Rate / float64(len(e.parts)))
	if !(made > 0) {
		made = 0
	}
	return max(min(e.parts[i].first+int64(min(made, 1<<62)), e.most(i)), min(e.parts[i].first, e.most(i)))
}

// Plan returns a range of the offsets that have come into being.
func (e *Emitter) Plan(p batch.Partition, from int64, limit emitter.Limit) (batch.Range, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	part := e.lookup(p)
	if part == nil || !part.admitted {
		return batch.Range{}, false
	}
	part.planned = from
	n := min(e.end(int(p.Number))-from, planRecords)
	if limit.Records > 0 {
		n = min(n, limit.Records)
	}
	if n <= 0 {
		return batch.Range{}, false
	}
	if limit.Bytes > 0 {
		n = e.within(p, from, n, limit.Bytes)
	}
	part.planned = from + n
	return batch.Range{Partition: p, Start: from, End: from + n, Identity: e.identity, LeaderEpoch: batch.NoEpoch}, true
}

// within returns how many of the n records from an offset on fit into a number of bytes; at least one.
func (e *Emitter) within(p batch.Partition, from, n, bytes int64) int64 {
	if e.cfg.MaxBytes > 0 {
		return max(1, min(n, bytes/e.cfg.MaxBytes))
	}
	m := e.maker(p)
	defer e.makers.Put(m)
	var sum int64
	for i := range n {
		m.reset()
		if sum += m.make(from + i); sum > bytes {
			return max(1, i)
		}
	}
	return n
}

// maker makes records into memory that it uses again.
type maker struct {
	e       *Emitter
	p       batch.Partition
	records []batch.Record
	bytes   []byte
	rec     batch.Record
}

func (e *Emitter) maker(p batch.Partition) *maker {
	m, ok := e.makers.Get().(*maker)
	if !ok {
		m = &maker{records: make([]batch.Record, 0, chunkRecords)}
	}
	m.e, m.p = e, p
	return m
}

func (m *maker) reset() { m.records, m.bytes = m.records[:0], m.bytes[:0] }

// make appends the record at an offset and returns its size.
func (m *maker) make(offset int64) int64 {
	b := batch.Batch{Seed: m.e.cfg.Seed}
	rng := b.Rand(m.e.cfg.Name, batch.Partition{Number: m.p.Number}, offset)
	m.rec = batch.Record{Offset: offset, Value: m.rec.Value[:0]}
	m.e.cfg.Make(rng, m.p.Number, offset, &m.rec)
	rec := m.rec
	rec.Offset = offset
	rec.Key, rec.Value = m.keep(rec.Key), m.keep(rec.Value)
	m.records = append(m.records, rec)
	size := int64(len(rec.Key) + len(rec.Value))
	for _, h := range rec.Headers {
		size += int64(len(h.Key) + len(h.Value))
	}
	if most := m.e.cfg.MaxBytes; most > 0 && size > most {
		panic(fmt.Sprintf("gen: %s made a record of %d bytes, MaxBytes is %d", m.e.cfg.Name, size, most))
	}
	return size
}

// keep copies b behind the bytes of the records before. Growing leaves those where they are.
func (m *maker) keep(b []byte) []byte {
	if b == nil {
		return nil
	}
	if m.bytes == nil || cap(m.bytes)-len(m.bytes) < len(b) {
		m.bytes = make([]byte, 0, max(2*cap(m.bytes), 64<<10, len(b)))
	}
	n := len(m.bytes)
	m.bytes = append(m.bytes, b...) // never nil: an empty key is not the same as no key
	return m.bytes[n:len(m.bytes):len(m.bytes)]
}

// Read makes the records of r.
func (e *Emitter) Read(ctx context.Context, r batch.Range, yield func(*batch.Chunk) error) error {
	if e.lookup(r.Partition) == nil {
		return unreplayable(r, fmt.Errorf("the generator has %d partitions of %s", len(e.parts), e.cfg.Name))
	}
	if r.Identity != "" && r.Identity != e.identity {
		return unreplayable(r, fmt.Errorf("the range was generated as %s, now it would be %s", r.Identity, e.identity))
	}
	if most := e.most(int(r.Number)); r.End > most {
		return unreplayable(r, fmt.Errorf("[%d,%d) lies beyond the %d records of the partition", r.Start, r.End, most))
	}
	m := e.maker(r.Partition)
	defer e.makers.Put(m)
	for from := r.Start; from < r.End; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		m.reset()
		for to := min(from+chunkRecords, r.End); from < to; from++ {
			m.make(from)
		}
		if err := yield(&batch.Chunk{Records: m.records}); err != nil {
			return err
		}
	}
	return nil
}

func unreplayable(r batch.Range, err error) error {
	return batch.NewError(batch.Permanent, batch.CodeUnreplayable, "read", err, "set the generator back to what it was").At(r.Partition, r.Start)
}

// Ack needs nothing: every record can be made again.
func (e *Emitter) Ack(batch.Txid, []batch.Range) {}

// Status lists the admitted partitions.
func (e *Emitter) Status() []emitter.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	var st []emitter.Status
	for i := range e.parts {
		if !e.parts[i].admitted {
			continue
		}
		s := emitter.Status{Partition: e.partition(i), End: e.end(i)}
		s.AtEnd = e.parts[i].planned >= s.End
		if s.End == math.MaxInt64 {
			s.End = -1
		}
		s.LogEnd = s.End
		st = append(st, s)
	}
	return st
}

// Ends is the whole count where there is one, and what has come into being otherwise. What is endless and has no
// rate has no end to catch up with.
func (e *Emitter) Ends(context.Context) (map[batch.Partition]int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ends := map[batch.Partition]int64{}
	for i := range e.parts {
		if !e.parts[i].admitted {
			continue
		}
		n := e.most(i)
		if e.cfg.Count == 0 {
			if e.cfg.Rate == 0 {
				return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "ends",
					fmt.Errorf("an endless generator never ends"), "set a count for a run that is to end").At(e.partition(i), batch.NoOffset)
			}
			n = e.end(i)
		}
		ends[e.partition(i)] = n
	}
	return ends, nil
}

// Err is nil: there is nothing that could fail.
func (e *Emitter) Err() error { return nil }

// Close stops the clock.
func (e *Emitter) Close(context.Context) error {
	e.closing.Do(func() { close(e.done) })
	e.wg.Wait()
	return nil
}

// Kinds lists the names that Named knows, sorted.
func Kinds() []string {
	var ks []string
	for k := range kinds {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// Named returns the Name, Make and MaxBytes of a kind of records:
//
//   - words: lines of up to 12 words, of which few are frequent;
//   - users: JSON {"user","page","ms","n"}, of 100,000 users by Zipf's law;
//   - orders: JSON {"id","customer","amount","placed_at"}, keyed by id;
//   - events: JSON {"sensor","value","at"} of 1,000 sensors, up to 30 seconds out of order, keyed by sensor.
func Named(name string) (Config, bool) {
	k, ok := kinds[name]
	k.Name = name
	return k, ok
}
