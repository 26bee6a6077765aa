package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// backend shows a running pipeline to the server.
type backend struct {
	h       *engine.Handle
	answers *answers
	stop    func() // asks for the end of the process
}

var _ server.Answering = (*backend)(nil)

func (b *backend) Status(context.Context) server.Status { return serverStatus(b.h.Status()) }

// serverStatus puts a status of the engine's into the server's words.
func serverStatus(s engine.Status) server.Status {
	st := server.Status{
		Pipeline: s.Pipeline, Version: version(), PID: os.Getpid(), Data: s.Dir,
		Started: s.Began.UTC(), Uptime: time.Since(s.Began).Seconds(),
		Ready: len(s.Reasons) == 0, Reasons: s.Reasons, Stopping: s.Draining,
		Epoch: s.Epoch, Committed: s.Txid, InFlight: []server.InFlight{}, Partitions: []server.PartitionStatus{},
		Failing: s.Failing, Role: s.Role.String(),
	}
	if s.Last != nil {
		st.CommittedAt = s.Last.Committed.UTC()
		st.BatchSeconds = server.PhaseSecondsOf(s.Last.Took)
	}
	for _, f := range s.InFlight {
		st.InFlight = append(st.InFlight, server.InFlight{Txid: f.Txid, Attempt: f.Attempt.String(), Phase: f.Phase})
	}
	for _, p := range s.Partitions {
		ps := server.PartitionStatus{
			Source: p.Source, Topic: p.Topic, Partition: p.Number,
			Committed: p.Committed, End: p.End, LogEnd: p.LogEnd, Lag: p.Lag(), Oldest: p.Oldest,
		}
		if p.Err != nil {
			ps.Error = p.Err.Error()
		}
		st.Partitions = append(st.Partitions, ps)
	}
	for _, m := range s.Mirrors {
		ms := server.MirrorStatus{Name: m.Name, Txid: m.Txid, Pending: m.Pending, Written: m.Written, Failures: m.Failures}
		if m.Err != nil {
			ms.Error = server.ErrorStatusOf(m.Err, m.Since)
		}
		st.Mirrors = append(st.Mirrors, ms)
	}
	for _, k := range s.Sinks {
		st.Sinks = append(st.Sinks, server.SinkStatus{Name: k.Name, Target: k.Describe, Txid: k.Txid, Records: k.Records})
	}
	if p := s.Savepoints; p != nil {
		st.Savepoints = &server.SavepointStatus{
			Place: p.Place, Name: p.Name, Txid: p.Txid, Bytes: p.Bytes, Seconds: p.Took.Seconds(), Covered: p.Covered.UTC(), Made: p.Made, Failures: p.Failures,
		}
		if p.Err != nil {
			st.Savepoints.Error = server.ErrorStatusOf(p.Err, p.Since)
		}
	}
	if l := s.Ledger; l != nil {
		st.Ledger = &server.LedgerStatus{First: l.First, Base: l.Base, Bytes: l.Bytes, HeldFor: l.HeldFor}
	}
	if s.Failure != nil {
		st.LastError = server.ErrorStatusOf(s.Failure, s.FailureSince)
	}
	return st
}

func (b *backend) States(context.Context) ([]state.Schema, error) {
	snap, err := b.h.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close() //nolint:errcheck // nothing was written
	return snap.Schemas()
}

func (b *backend) Query(ctx context.Context, name string, keys []string, w server.RowWriter) error {
	snap, err := b.h.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close() //nolint:errcheck // nothing was written
	if _, err := query.Schema(snap, name); err != nil {
		return server.NotFound(err)
	}
	return querySnapshot(ctx, snap, name, keys, w)
}

func (b *backend) Ledger(ctx context.Context, from, to batch.Txid, emit func(*txstate.Entry) error) error {
	for e, err := range b.h.Entries(ctx, from, to) {
		if err != nil {
			return err
		}
		if err := emit(&e); err != nil {
			return err
		}
	}
	return nil
}

func (b *backend) Queries() []server.QueryInfo { return b.answers.list() }

func (b *backend) Call(ctx context.Context, c server.QueryCall, w server.RowWriter) error {
	call, err := b.answers.prepare(c)
	if err != nil {
		return err
	}
	if err := b.h.WaitFor(ctx, c.AtLeast); err != nil {
		return fmt.Errorf("query %s: waiting for txid %d: %w", c.Name, c.AtLeast, err)
	}
	snap, err := b.h.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close() //nolint:errcheck // nothing was written
	return call.answer(ctx, snap, b.h.Entries, w)
}

func (b *backend) Stop() { b.stop() }

// observer counts for the progress bar.
type observer struct {
	records atomic.Int64
	batches atomic.Int64
	txid    atomic.Uint64
}

func (o *observer) Resumed(txid batch.Txid)         { o.txid.Store(uint64(txid)) }
func (o *observer) Begun(batch.Txid, batch.Attempt) {}
func (o *observer) Failed(error)                    {}

func (o *observer) Committed(e *txstate.Entry) {
	o.records.Add(e.Counts.Read)
	o.batches.Add(1)
	o.txid.Store(uint64(e.Txid))
}

// grouped writes a number with a comma after each three digits.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 && s[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
