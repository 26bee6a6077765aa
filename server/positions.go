package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Positioner is a Backend that knows where the pipeline stands, whatever keeps it from going on.
type Positioner interface {
	Backend
	// Positions reads them from the store, all as of one txid.
	Positions(ctx context.Context) (txstate.Snapshot, error)
}

// Positions are where a pipeline stands: what has been committed.
type Positions struct {
	Pipeline  string      `json:"pipeline"`
	Txid      batch.Txid  `json:"txid"`
	Epoch     batch.Epoch `json:"epoch"`
	Positions []Position  `json:"positions"` // in batch.Partition order
}

// Position is where one partition stands. One without a topic only tells that its source has been opened before.
type Position struct {
	Source      string     `json:"source"`
	Topic       string     `json:"topic"`
	Partition   int32      `json:"partition"`
	Next        int64      `json:"next"` // the next offset to be processed
	Txid        batch.Txid `json:"txid"` // the batch that moved it last, or with which it joined
	Identity    string     `json:"identity,omitempty"`
	LeaderEpoch int32      `json:"leader_epoch"`
}

// PositionsOf converts what a store holds.
func PositionsOf(pipeline string, snap *txstate.Snapshot) Positions {
	out := Positions{Pipeline: pipeline, Txid: snap.Txid, Epoch: snap.Epoch, Positions: make([]Position, len(snap.Positions))}
	for i, p := range snap.Positions {
		out.Positions[i] = Position{
			Source: p.Source, Topic: p.Topic, Partition: p.Number, Next: p.Next, Txid: p.Txid, Identity: p.Identity, LeaderEpoch: p.LeaderEpoch,
		}
	}
	return out
}

// Saved converts a position back, as far as it is shown.
func (p *Position) Saved() txstate.SavedPosition {
	return txstate.SavedPosition{
		Position: batch.Position{
			Partition: batch.Partition{Source: p.Source, Topic: p.Topic, Number: p.Partition},
			Next:      p.Next, Identity: p.Identity, LeaderEpoch: p.LeaderEpoch,
		},
		EventTime: txstate.NoTime, Txid: p.Txid,
	}
}

func (s *Server) positions(w http.ResponseWriter, r *http.Request) {
	b, ok := s.backend.(Positioner)
	if !ok {
		s.fail(w, NotFound(errors.New("this process has no positions")))
		return
	}
	snap, err := b.Positions(r.Context())
	if err != nil {
		s.fail(w, err)
		return
	}
	s.writeJSON(w, http.StatusOK, PositionsOf(s.backend.Status(r.Context()).Pipeline, &snap))
}

// Positions asks the daemon where the pipeline stands.
func (c *Client) Positions(ctx context.Context) (Positions, error) {
	var p Positions
	err := c.getJSON(ctx, "/api/v1/positions", &p)
	return p, err
}
