package txstate

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/tridentd/tridentd/batch"
)

// Memory is a Store that lives as long as the process: for tests, and for runs that are thrown away. It obeys
// every rule of Store but durability.
type Memory struct {
	mu        sync.Mutex
	epoch     batch.Epoch
	positions []SavedPosition // in batch.Partition order
	recorded  []Entry         // txids committed+1, committed+2, …
	entries   []Entry         // txids 1, 2, …
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{} }

// Load implements Store.
func (m *Memory) Load(context.Context) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{Epoch: m.epoch, Positions: slices.Clone(m.positions)}
	if n := len(m.entries); n > 0 {
		last := &m.entries[n-1]
		s.Txid, s.Chain, s.Time = last.Txid, last.Chain, last.Time
	}
	for i := range m.recorded {
		s.Recorded = append(s.Recorded, m.recorded[i].Clone())
	}
	return s, nil
}

// Claim implements Store.
func (m *Memory) Claim(_ context.Context, epoch batch.Epoch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := CheckClaim(m.epoch, epoch); err != nil {
		return err
	}
	m.epoch = epoch
	return nil
}

// Admit implements Store.
func (m *Memory) Admit(_ context.Context, positions []batch.Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range positions {
		if i, ok := m.find(p.Partition); ok {
			return AlreadyAdmitted(m.positions[i])
		}
	}
	for _, p := range positions {
		m.put(AdmittedAt(p))
	}
	return nil
}

// Record implements Store.
func (m *Memory) Record(_ context.Context, e Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := CheckRecord(m.epoch, batch.Txid(len(m.entries)), m.recorded, &e); err != nil {
		return err
	}
	e = e.Clone()
	if i := int(e.Txid) - len(m.entries) - 1; i < len(m.recorded) {
		m.recorded[i] = e
	} else {
		m.recorded = append(m.recorded, e)
	}
	return nil
}

// Commit adds the next committed batch and moves its partitions' positions. It panics if the txid isn't the one
// after the last committed.
func (m *Memory) Commit(e Entry, positions []SavedPosition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if want := batch.Txid(len(m.entries) + 1); e.Txid != want {
		panic(fmt.Sprintf("txstate: commit of txid %d where %d is due", e.Txid, want))
	}
	m.entries = append(m.entries, e.Clone())
	for _, p := range positions {
		m.put(p)
	}
	if len(m.recorded) > 0 {
		m.recorded = m.recorded[1:]
	}
}

// Entries implements Store.
func (m *Memory) Entries(ctx context.Context, from, to batch.Txid) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for txid := max(from, 1); to == 0 || txid <= to; txid++ {
			if err := ctx.Err(); err != nil {
				yield(Entry{}, err)
				return
			}
			m.mu.Lock()
			if int(txid) > len(m.entries) {
				m.mu.Unlock()
				return
			}
			e := m.entries[txid-1].Clone()
			m.mu.Unlock()
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (m *Memory) find(p batch.Partition) (int, bool) {
	return slices.BinarySearchFunc(m.positions, p, func(s SavedPosition, p batch.Partition) int { return s.Partition.Compare(p) })
}

func (m *Memory) put(p SavedPosition) {
	if i, ok := m.find(p.Partition); ok {
		m.positions[i] = p
	} else {
		m.positions = slices.Insert(m.positions, i, p)
	}
}
