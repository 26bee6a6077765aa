package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// MirroredSource is a source whose committed positions are shown elsewhere, too: in a Kafka group.
type MirroredSource interface {
	emitter.Source
	// Mirror makes the mirror of one run; nil if there is to be none. It contacts nobody.
	Mirror(pipeline, id string, env emitter.Env) (txstate.Mirror, error)
	// Mirrored names what the mirror writes, in words for people. Two sources of a pipeline can't write the same.
	Mirrored(pipeline string) []string
}

// ExportedSource is a source whose committed positions can be written elsewhere on purpose.
type ExportedSource interface {
	emitter.Source
	// Exporter makes what writes them to the named place (a Kafka group), or to the source's own if there is no name. It is a
	// txstate.Exporting, and contacts nobody yet.
	Exporter(pipeline, id, place string, env emitter.Env) (txstate.Mirror, error)
}

// checkMirrored reports the first thing that two sources would write.
func checkMirrored(sources []*sourceDef) error {
	owner := map[string]string{}
	for _, s := range sources {
		for _, what := range s.plan.Mirrored {
			if other, ok := owner[what]; ok {
				return batch.NewError(batch.Permanent, batch.CodeConfiguration, "",
					fmt.Errorf("sources %s and %s would both write %s", other, s.plan.ID, what), "give one of them a group of its own, or none")
			}
			owner[what] = s.plan.ID
		}
	}
	return nil
}

// MirrorStatus is how one mirror of the committed positions fares.
type MirrorStatus struct {
	Name string
	txstate.MirrorStatus
}

// MirrorFailures is how often something went wrong with a mirror, by cause.
type MirrorFailures struct {
	Name     string
	Failures map[batch.Code]int64
}

// addFailures returns before with those of mirrors added, and changes neither.
func addFailures(before []MirrorFailures, mirrors []MirrorStatus) []MirrorFailures {
	all := slices.Clone(before)
	for i := range mirrors {
		m := &mirrors[i]
		at := slices.IndexFunc(all, func(f MirrorFailures) bool { return f.Name == m.Name })
		if at < 0 {
			at, all = len(all), append(all, MirrorFailures{Name: m.Name})
		}
		sum := map[batch.Code]int64{}
		for code, n := range all[at].Failures { // order: sums // order: a sum
			sum[code] += n
		}
		for code, n := range m.Failures { // order: sums // order: a sum
			sum[code] += n
		}
		all[at].Failures = sum
	}
	return all
}

// leaveMirrors forgets the mirrors of a term that is over, but for what is counted since the process started.
func (h *Handle) leaveMirrors() {
	h.mu.Lock()
	mirrors, left := h.mirrors, h.left
	h.mu.Unlock()
	left = addFailures(left, mirrorStatus(mirrors))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mirrors, h.left = nil, left
}

func mirrorStatus(mirrors []txstate.Mirror) []MirrorStatus {
	var all []MirrorStatus
	for _, m := range mirrors {
		all = append(all, MirrorStatus{Name: m.Name(), MirrorStatus: m.Status()})
	}
	return all
}

// openMirrors makes the mirrors, under the lease if there is one. No server is asked yet.
func (h *Handle) openMirrors(ctx context.Context, lease txstate.Lease) error {
	var all []txstate.Mirror
	for _, s := range h.plan.Sources {
		if s.Mirror == nil {
			continue
		}
		m, err := s.Mirror(plan.Env{Logger: h.log.With("source", s.ID)})
		if err != nil {
			h.closeMirrors(ctx, all)
			return err
		}
		if m != nil {
			all = append(all, m)
		}
	}
	if k := h.plan.Keeper; k != nil && k.Record != nil {
		m, err := k.Record(plan.Env{Logger: h.log})
		if err != nil {
			h.closeMirrors(ctx, all)
			return err
		}
		all = append(all, m)
	}
	if lease != nil {
		for _, m := range all {
			if l, ok := m.(txstate.Leased); ok {
				l.Under(lease)
			}
		}
	}
	h.mu.Lock()
	h.mirrors = all
	h.mu.Unlock()
	return nil
}

// closeMirrors writes what is outstanding. What can't be written is no failure of the run: the next one writes it.
func (h *Handle) closeMirrors(ctx context.Context, all []txstate.Mirror) {
	var wg sync.WaitGroup
	for _, m := range all {
		wg.Go(func() {
			if err := m.Close(ctx); err != nil {
				h.log.Warn("a mirror of the committed offsets is not up to date", "error", err)
			}
		})
	}
	wg.Wait()
}

// guard doesn't believe an empty store at once: where a mirror holds this pipeline's txid, the directory was lost, or
// another one is meant. Recorders are held against the store, empty or not.
func (h *Handle) guard(ctx context.Context, db *pebblestate.DB) error {
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return err
	}
	switch {
	case h.o.Fresh && snap.Txid == 0:
		// Also where an earlier start over has ended before its first batch committed: what the mirrors hold may still be of the
		// run before that.
		for _, m := range h.mirrors {
			m.Rewind()
		}
	case h.o.Fresh:
		h.log.Warn("the data directory is not empty: the pipeline goes on where it stands, nothing starts over", "data", h.dir, "txid", uint64(snap.Txid))
	case emptyStore(&snap):
		err = h.guardEmpty(ctx)
	}
	if err != nil {
		return err
	}
	return h.reconcile(ctx, db, &snap)
}

// guardEmpty is the guard of an empty store that isn't to start over.
func (h *Handle) guardEmpty(ctx context.Context) error {
	for _, m := range h.mirrors {
		carried, err := m.Carried(ctx)
		if err != nil {
			return h.unasked(m.Name(), err)
		}
		if err := h.missing(m.Name(), carried); err != nil {
			return err
		}
	}
	return nil
}

// unasked completes the failure of asking a mirror what it holds. Who may not read it now may have written it: rights are revoked.
func (h *Handle) unasked(mirror string, err error) error {
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Code != batch.CodeUnauthorized {
		return err
	}
	c := *e
	c.Op, c.Pipeline = "start", h.plan.Name
	c.Err = fmt.Errorf("the data directory %s is empty, and whether the pipeline has run before can't be told from %s: %w", h.dir, mirror, e.Err)
	c.Remedy = strings.TrimPrefix(e.Remedy+"; or, if it has never run or is to start over, begin with --fresh: that doesn't ask", "; ")
	return &c
}

// missing is the refusal to start over what a mirror holds, nil if that is nothing.
func (h *Handle) missing(mirror string, carried []txstate.Carried) error {
	var txid batch.Txid
	for _, c := range carried {
		txid = max(txid, c.Txid)
	}
	if txid == 0 {
		return nil
	}
	carried = slices.DeleteFunc(carried, func(c txstate.Carried) bool { return c.Txid == 0 || c.Partition == batch.Partition{} })
	var at []string
	for i, c := range carried {
		switch {
		case i < shownPositions:
			at = append(at, fmt.Sprintf("%s-%d at %d", c.Topic, c.Number, c.Next))
		case i == shownPositions:
			at = append(at, fmt.Sprintf("%d more partitions", len(carried)-i))
		}
	}
	e := batch.NewError(batch.Permanent, batch.CodeStoreMissing, "start",
		fmt.Errorf("the data directory %s is empty (txid 0, no positions), but %s says that the pipeline has come to txid %d (%s)",
			h.dir, mirror, txid, cmp.Or(strings.Join(at, ", "), "without a position")),
		"choose the directory that holds the data (--data), restore it from a copy, or start over on purpose with --fresh: then every record that is still there counts again")
	e.Pipeline = h.plan.Name
	return e
}

// shownPositions bounds a list in an error.
const shownPositions = 8
