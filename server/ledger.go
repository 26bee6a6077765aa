package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// LedgerEntry is a ledger entry as it is shown. Digests, seed and chain are 16 hexadecimal digits: as numbers they
// would lose bits in readers that keep numbers as floats.
type LedgerEntry struct {
	Txid      batch.Txid    `json:"txid"`
	Attempt   string        `json:"attempt"` // epoch.n
	Epoch     batch.Epoch   `json:"epoch"`
	Attempts  uint32        `json:"attempts"` // beginnings within the epoch
	Time      time.Time     `json:"time"`     // the batch's clock
	Committed time.Time     `json:"committed"`
	Seed      string        `json:"seed"`
	Records   int64         `json:"records"`
	Bytes     int64         `json:"bytes"`    // of keys, values and headers read
	Filtered  *int64        `json:"filtered"` // null: made by a build that didn't count them
	Rejected  int64         `json:"rejected"`
	Late      int64         `json:"late"`
	Future    int64         `json:"future"`
	Dead      int64         `json:"dead"` // of those three: what became dead letters
	Ranges    []LedgerRange `json:"ranges"`
	// Joined are partitions that were admitted with this batch, Idle those that held no watermark back.
	Joined     []LedgerPosition  `json:"joined,omitempty"`
	Idle       []LedgerPartition `json:"idle,omitempty"`
	Watermarks []LedgerWatermark `json:"watermarks,omitempty"` // that the batch left
	Statics    []LedgerStatic    `json:"statics,omitempty"`    // contents of static tables that it was the first to use
	States     []LedgerState     `json:"states"`
	Sinks      []LedgerSink      `json:"sinks,omitempty"` // that the batch had records for
	Chain      string            `json:"chain"`
	Reset      bool              `json:"reset,omitempty"`    // made by offsets reset or import
	Imported   string            `json:"imported,omitempty"` // where from, by offsets import
	Migrated   []string          `json:"migrated,omitempty"` // what migrate did
	Build      string            `json:"build"`
	Arch       string            `json:"arch"` // of Build: architecture and its level
	Plan       string            `json:"plan"`
	Took       PhaseSeconds      `json:"took_seconds"`
}

// LedgerRange is one partition's part.
type LedgerRange struct {
	Source    string `json:"source"`
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id"` // whose offsets these are: Kafka's id of the topic, a file's of its content; empty where there is none
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"` // exclusive
	Records   int64  `json:"records"`
	Bytes     int64  `json:"bytes"`
	Digest    string `json:"digest"`
	// EventTime is the largest seen in the partition so far; null if none was.
	EventTime *time.Time `json:"event_time"`
}

// LedgerPartition names a partition.
type LedgerPartition struct {
	Source    string `json:"source"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// String is the partition as batch.Partition writes it.
func (p LedgerPartition) String() string {
	return batch.Partition{Source: p.Source, Topic: p.Topic, Number: p.Partition}.String()
}

// LedgerPosition is where a partition began.
type LedgerPosition struct {
	LedgerPartition
	TopicID string `json:"topic_id"`
	Next    int64  `json:"next"`
}

// LedgerWatermark is how far event time has come in a source; null if nowhere.
type LedgerWatermark struct {
	Source string     `json:"source"`
	Time   *time.Time `json:"time"`
}

// LedgerStatic is a content of a static table.
type LedgerStatic struct {
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	Digest string `json:"digest"`
}

// LedgerState is what the batch did to one state.
type LedgerState struct {
	State  string `json:"state"`
	Writes int64  `json:"writes"`
	Digest string `json:"digest"`
}

// LedgerSink is what the batch had for one sink. Digest is of that and of all that the sink was given before.
type LedgerSink struct {
	Sink    string `json:"sink"`
	Records int64  `json:"records"`
	Digest  string `json:"digest"`
}

// LedgerEntryOf converts an entry.
func LedgerEntryOf(e *txstate.Entry) LedgerEntry {
	out := LedgerEntry{
		Txid: e.Txid, Attempt: e.Attempt.String(), Epoch: e.Attempt.Epoch, Attempts: e.Attempts,
		Time: e.Time.UTC(), Committed: e.Committed.UTC(), Seed: hex(e.Seed),
		Records: e.Counts.Read, Rejected: e.Counts.Rejected, Late: e.Counts.Late, Future: e.Counts.Future, Dead: e.Counts.Dead,
		Ranges: make([]LedgerRange, len(e.Ranges)), States: make([]LedgerState, len(e.States)),
		Chain: hex(e.Chain), Reset: e.Reset, Imported: e.Imported, Migrated: e.Migrated, Build: e.Build, Arch: archOf(e.Build), Plan: hex(e.Plan),
		Took: PhaseSecondsOf(e.Took),
	}
	if n := e.Counts.Filtered; n != txstate.Uncounted {
		out.Filtered = &n
	}
	for i, r := range e.Ranges {
		out.Ranges[i] = LedgerRange{
			Source: r.Source, Topic: r.Topic, TopicID: r.Identity, Partition: r.Number, Start: r.Start, End: r.End,
			Records: r.Records, Bytes: r.Bytes, Digest: hex(r.Digest), EventTime: eventTime(r.EventTime),
		}
		out.Bytes += r.Bytes
	}
	for _, p := range e.Joined {
		out.Joined = append(out.Joined, LedgerPosition{ledgerPartition(p.Partition), p.Identity, p.Next})
	}
	for _, p := range e.Idle {
		out.Idle = append(out.Idle, ledgerPartition(p))
	}
	for _, w := range e.Watermarks {
		out.Watermarks = append(out.Watermarks, LedgerWatermark{w.Source, eventTime(w.Time)})
	}
	for _, s := range e.Statics {
		out.Statics = append(out.Statics, LedgerStatic{s.Name, s.Rows, hex(s.Digest)})
	}
	for _, s := range e.Sinks {
		out.Sinks = append(out.Sinks, LedgerSink{s.Sink, s.Records, hex(s.Chain)})
	}
	for i, s := range e.States {
		out.States[i] = LedgerState{State: s.State, Writes: s.Writes, Digest: hex(s.Digest)}
	}
	return out
}

func ledgerPartition(p batch.Partition) LedgerPartition {
	return LedgerPartition{p.Source, p.Topic, p.Number}
}

// eventTime is a time in nanoseconds since 1970, or nil for none.
func eventTime(ns int64) *time.Time {
	if ns == txstate.NoTime {
		return nil
	}
	t := time.Unix(0, ns).UTC()
	return &t
}

// archOf is the architecture that a build's description ends in, behind revision and Go version.
func archOf(build string) string {
	_, rest, _ := strings.Cut(build, " ")
	version, arch, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(version, "go") {
		return ""
	}
	return arch
}

func hex(v uint64) string { return fmt.Sprintf("%016x", v) }
