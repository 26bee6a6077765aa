package server

import (
	"context"
	"errors"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// ErrNotFound is what the error for a state that doesn't exist is, by errors.Is: see NotFound.
var ErrNotFound = errors.New("not found")

// NotFound marks err as ErrNotFound. Its text stays.
func NotFound(err error) error { return &notFoundError{err} }

type notFoundError struct{ error }

func (e *notFoundError) Unwrap() error { return e.error }

// Is implements errors.Is.
func (*notFoundError) Is(target error) bool { return target == ErrNotFound }

// Backend is the running pipeline. Its methods are called from many goroutines at once.
type Backend interface {
	// Status answers from memory: it asks no server and waits for no batch.
	Status(ctx context.Context) Status

	// States lists the schemas of the states, by name.
	States(ctx context.Context) ([]state.Schema, error)

	// Query hands the rows of a state to w, at one committed txid and in key order. keys are texts of the key's
	// leading fields: rows whose key begins with them are selected, all if there are none. An unknown state is an
	// error that is ErrNotFound, a key that can't be read one with batch.CodeConfiguration. An error of w is
	// returned as it is.
	Query(ctx context.Context, name string, keys []string, w RowWriter) error

	// Ledger hands over committed entries with from <= txid <= to, in order; to = 0 means to the last. An error of
	// emit is returned as it is.
	Ledger(ctx context.Context, from, to batch.Txid, emit func(*txstate.Entry) error) error

	// Stop asks for an orderly end: batches in flight are finished, none is begun. It doesn't wait.
	Stop()
}

// RowWriter takes the answer to a query.
type RowWriter interface {
	// Begin is called once, before the first row and also when there is none. columns are those of the rows: the
	// key's fields, then the values.
	Begin(txid batch.Txid, columns []state.Column) error
	// Row takes one row, in the order of the columns. The slice may be used until it returns.
	Row(values []value.Value) error
}

// Unknown stands for an offset or a lag that nobody knows yet.
const Unknown int64 = -1

// Status is a pipeline as it stands. Times are UTC.
type Status struct {
	Pipeline string    `json:"pipeline"`
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Data     string    `json:"data"` // the data directory
	Listen   string    `json:"listen,omitempty"`
	Started  time.Time `json:"started"`
	Uptime   float64   `json:"uptime_seconds"`
	// Role is leader or standby; empty for a pipeline without a lock.
	Role string `json:"role,omitempty"`

	// Ready says that batches can be processed; otherwise Reasons tell what stands in the way.
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"`
	// Stopping says that no batch is begun any more.
	Stopping bool `json:"stopping"`

	Epoch       batch.Epoch `json:"epoch"`
	Committed   batch.Txid  `json:"committed_txid"`
	CommittedAt time.Time   `json:"committed_at,omitzero"`
	InFlight    []InFlight  `json:"in_flight"` // in txid order

	Partitions []PartitionStatus `json:"partitions"` // in batch.Partition order

	// Mirrors show the committed positions elsewhere. Only one that stalls keeps batches waiting, which Reasons tell then.
	Mirrors []MirrorStatus `json:"mirrors,omitempty"`
	// Sinks are the targets outside, by name.
	Sinks []SinkStatus `json:"sinks,omitempty"`
	// Savepoints tells of those made by schedule, if there is one. They never keep batches waiting.
	Savepoints *SavepointStatus `json:"savepoints,omitempty"`

	// Ledger is what the ledger holds, as of a few seconds ago; absent before the first look.
	Ledger *LedgerStatus `json:"ledger,omitempty"`

	// LastError is the last failure of this process, Failing whether it still stands: nothing has committed since.
	LastError *ErrorStatus `json:"last_error,omitempty"`
	Failing   bool         `json:"failing"`

	// BatchSeconds is how long the last committed batch took.
	BatchSeconds PhaseSeconds `json:"batch_seconds"`
}

// SinkStatus is what one sink was given up to the last committed batch.
type SinkStatus struct {
	Name    string     `json:"name"`
	Target  string     `json:"target"`
	Txid    batch.Txid `json:"txid"`    // the last that had something for it; 0: none had
	Records int64      `json:"records"` // of all batches so far
}

// InFlight is a batch between its beginning and its commit.
type InFlight struct {
	Txid    batch.Txid `json:"txid"`
	Attempt string     `json:"attempt"` // epoch.n
	Phase   string     `json:"phase"`
}

// PartitionStatus is where one source partition stands. Offsets that aren't known yet are Unknown.
type PartitionStatus struct {
	Source    string `json:"source"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // the next offset to be processed
	End       int64  `json:"end"`       // the offset after the last record that can be read
	LogEnd    int64  `json:"log_end"`   // above End while an open transaction holds the partition back
	Lag       int64  `json:"lag"`       // offsets from Committed to End: see LagOf
	// Oldest is the timestamp of the oldest record that was fetched and isn't processed yet.
	Oldest time.Time `json:"oldest,omitzero"`
	// Error is what keeps the partition from being read.
	Error string `json:"error,omitempty"`
}

// MirrorStatus is how a mirror of the committed positions fares.
type MirrorStatus struct {
	Name    string     `json:"name"`
	Txid    batch.Txid `json:"txid"`    // everything up to it has been written
	Pending bool       `json:"pending"` // something later waits to be written
	Written time.Time  `json:"written,omitzero"`
	// Error is what keeps the mirror from being right.
	Error    *ErrorStatus         `json:"error,omitempty"`
	Failures map[batch.Code]int64 `json:"failures,omitempty"` // since the process started, by code
}

// SavepointStatus is how the savepoints that a pipeline makes by itself fare.
type SavepointStatus struct {
	Place string     `json:"place"`
	Name  string     `json:"name,omitempty"` // of the last
	Txid  batch.Txid `json:"txid"`
	Bytes int64      `json:"bytes"`
	// Seconds is how long the last took; absent if an earlier process made it.
	Seconds float64 `json:"seconds,omitzero"`
	// Covered is when the last held all that had committed.
	Covered  time.Time    `json:"covered,omitzero"`
	Made     int64        `json:"made"`     // since the process started
	Failures int64        `json:"failures"` // since the process started
	Error    *ErrorStatus `json:"error,omitempty"`
}

// LedgerStatus is what the ledger holds.
type LedgerStatus struct {
	First batch.Txid `json:"first_txid"`
	// Base is the txid behind which the earliest replay can begin; 0 while nothing is trimmed.
	Base  batch.Txid `json:"base_txid"`
	Bytes int64      `json:"bytes"` // of entries and kept changes, on disk
	// HeldFor is the savepoint for which more is kept than the bounds allow.
	HeldFor string `json:"held_for,omitempty"`
}

// ErrorStatus is a failure in words and labels.
type ErrorStatus struct {
	Kind    string     `json:"kind"`
	Code    batch.Code `json:"code"`
	Message string     `json:"message"`
	Remedy  string     `json:"remedy,omitempty"`
	Txid    batch.Txid `json:"txid,omitempty"`
	Since   time.Time  `json:"since,omitzero"` // of the first failure since the last commit
}

// ErrorStatusOf describes err, and since when it has stood.
func ErrorStatusOf(err error, since time.Time) *ErrorStatus {
	st := &ErrorStatus{Kind: batch.KindOf(err).String(), Code: batch.CodeOf(err), Message: err.Error(), Since: since.UTC()}
	e, ok := errors.AsType[*batch.Error](err)
	if !ok {
		return st
	}
	st.Txid, st.Remedy = e.Txid, e.Remedy
	if err == error(e) { //nolint:errorlint // only where nothing is wrapped around it can the remedy be taken out of the text
		bare := *e
		bare.Remedy = ""
		st.Message = bare.Error()
	}
	return st
}

// Err turns the description back into an error with the same kind, code, text and remedy.
func (s *ErrorStatus) Err() error {
	kind := batch.Transient
	if s.Kind == batch.Permanent.String() {
		kind = batch.Permanent
	}
	// The message names the place already, so it isn't put into the fields again.
	return batch.NewError(kind, s.Code, "", errors.New(s.Message), s.Remedy)
}

// PhaseSeconds is the time that the phases of a batch took.
type PhaseSeconds struct {
	Plan    float64 `json:"plan"`
	Read    float64 `json:"read"`
	Process float64 `json:"process"`
	Commit  float64 `json:"commit"`
}

// PhaseSecondsOf converts an entry's durations.
func PhaseSecondsOf(d txstate.Durations) PhaseSeconds {
	return PhaseSeconds{
		Plan: d.Plan.Seconds(), Read: d.Read.Seconds(),
		Process: d.Process.Seconds(), Commit: d.Commit.Seconds(),
	}
}
