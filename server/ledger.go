package server

import (
	"fmt"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// LedgerEntry is a ledger entry as it is shown. Digests, seed and chain are 16 hexadecimal digits: as numbers they
// would lose bits in readers that keep numbers as floats.
type LedgerEntry struct {
	Txid      batch.Txid    `json:"txid"`
	Attempt   string        `json:"attempt"`  // epoch.n
	Attempts  uint32        `json:"attempts"` // beginnings within the epoch
	Time      time.Time     `json:"time"`     // the batch's clock
	Committed time.Time     `json:"committed"`
	Seed      string        `json:"seed"`
	Records   int64         `json:"records"`
	Rejected  int64         `json:"rejected"`
	Late      int64         `json:"late"`
	Future    int64         `json:"future"`
	Ranges    []LedgerRange `json:"ranges"`
	States    []LedgerState `json:"states"`
	Chain     string        `json:"chain"`
	Reset     bool          `json:"reset,omitempty"`    // made by offsets reset or import
	Imported  string        `json:"imported,omitempty"` // where from, by offsets import
	Migrated  []string      `json:"migrated,omitempty"` // what migrate did
	Build     string        `json:"build"`
	Plan      string        `json:"plan"`
	Took      PhaseSeconds  `json:"took_seconds"`
}

// LedgerRange is one partition's part.
type LedgerRange struct {
	Source    string `json:"source"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"` // exclusive
	Records   int64  `json:"records"`
	Bytes     int64  `json:"bytes"`
	Digest    string `json:"digest"`
}

// LedgerState is what the batch did to one state.
type LedgerState struct {
	State  string `json:"state"`
	Writes int64  `json:"writes"`
	Digest string `json:"digest"`
}

// LedgerEntryOf converts an entry.
func LedgerEntryOf(e *txstate.Entry) LedgerEntry {
	out := LedgerEntry{
		Txid: e.Txid, Attempt: e.Attempt.String(), Attempts: e.Attempts,
		Time: e.Time.UTC(), Committed: e.Committed.UTC(), Seed: hex(e.Seed),
		Records: e.Counts.Read, Rejected: e.Counts.Rejected, Late: e.Counts.Late, Future: e.Counts.Future,
		Ranges: make([]LedgerRange, len(e.Ranges)), States: make([]LedgerState, len(e.States)),
		Chain: hex(e.Chain), Reset: e.Reset, Imported: e.Imported, Migrated: e.Migrated, Build: e.Build, Plan: hex(e.Plan),
		Took: PhaseSecondsOf(e.Took),
	}
	for i, r := range e.Ranges {
		out.Ranges[i] = LedgerRange{
			Source: r.Source, Topic: r.Topic, Partition: r.Number, Start: r.Start, End: r.End,
			Records: r.Records, Bytes: r.Bytes, Digest: hex(r.Digest),
		}
	}
	for i, s := range e.States {
		out.States[i] = LedgerState{State: s.State, Writes: s.Writes, Digest: hex(s.Digest)}
	}
	return out
}

func hex(v uint64) string { return fmt.Sprintf("%016x", v) }
