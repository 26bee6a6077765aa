package exec

import (
	"context"
	"fmt"

	"github.com/tridentd/tridentd/batch"
)

// Sources that are loaded first are read to the end that they have when loading begins before any other source takes part in a
// batch. That a source has been loaded is remembered in the store; a run that ends before begins loading anew, from where it had
// come to, with the ends of that time. Replays follow recorded ranges and need to know nothing of it.

// loadedMark is the position by which the store remembers that a source has been loaded.
func loadedMark(source string) batch.Partition { return batch.Partition{Source: source, Number: 1} }

// beginLoading finds the sources that are still to be loaded, and their ends.
func (x *Executor) beginLoading(ctx context.Context, loaded map[string]bool) error {
	x.loading = nil
	if x.cfg.Tables != nil {
		return nil
	}
	for i, s := range x.plan.Sources {
		if !s.LoadFirst || loaded[s.ID] {
			continue
		}
		ends, err := x.emitters[i].Ends(ctx)
		if err != nil {
			return fmt.Errorf("source %s, which is loaded first: %w", s.ID, err)
		}
		if x.loading == nil {
			x.loading = map[string]map[batch.Partition]int64{}
		}
		x.loading[s.ID] = ends
		x.log.Info("source is read to its present end before others begin", "source", s.ID)
	}
	return nil
}

// finishLoading remembers the sources that have been loaded by what has committed.
func (x *Executor) finishLoading(ctx context.Context) error {
	for _, s := range x.plan.Sources {
		ends, loading := x.loading[s.ID]
		if !loading || !x.through(ends, func(c *cursor) int64 { return c.saved.Next }) {
			continue
		}
		mark := batch.Position{Partition: loadedMark(s.ID), LeaderEpoch: batch.NoEpoch}
		if err := x.cfg.DB.Store().Admit(ctx, []batch.Position{mark}); err != nil {
			return err
		}
		delete(x.loading, s.ID)
		x.log.Info("source has been loaded", "source", s.ID)
	}
	return nil
}

// holds tells whether a source has to wait until others are loaded: until the batches that are planned reach their ends.
func (x *Executor) holds(source string) bool {
	if _, loads := x.loading[source]; loads || len(x.loading) == 0 {
		return false
	}
	for _, ends := range x.loading { // order: whether there is one
		if !x.through(ends, func(c *cursor) int64 { return c.next }) {
			return true
		}
	}
	return false
}

// through tells whether all partitions have reached their ends, by what at tells of them.
func (x *Executor) through(ends map[batch.Partition]int64, at func(*cursor) int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, end := range ends { // order: whether there is one
		if c := x.cursors[p]; c == nil || at(c) < end {
			return false
		}
	}
	return true
}
