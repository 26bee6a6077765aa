package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Reconcile implements txstate.Recorder. Under Continue, with a store that isn't empty, servers that can't be asked are no reason to
// wait: the first write makes up for it.
func (r *Record) Reconcile(ctx context.Context, s txstate.Standing) error {
	r.mu.Lock()
	r.standing = s
	rewind := r.rewind
	r.mu.Unlock()
	r.work.Lock()
	defer r.work.Unlock()
	optional := r.cfg.WhileAway == Continue && !s.Empty
	asking := ctx
	if optional {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, startLimit)
		defer cancel()
	}
	r.known = false
	err := r.look(asking, &s, rewind)
	if err == nil {
		r.reached()
		return nil
	}
	if e := failure(err); !refuses(e) && optional && ctx.Err() == nil {
		r.mu.Lock()
		r.status.Failures[e.Code]++
		r.mu.Unlock()
		r.warnAs(e, "ZooKeeper can't be asked what it holds; the pipeline starts, and the record is compared later", r.cfg.Now())
		return nil
	}
	return r.unreached(err)
}

// Carried implements txstate.Mirror: it lists the positions that this pipeline has written. If it has committed batches that
// moved none, an entry without a partition tells their txid. A record that can't be read, or is another pipeline's, is an error.
func (r *Record) Carried(ctx context.Context) ([]txstate.Carried, error) {
	r.work.Lock()
	defer r.work.Unlock()
	there, err := r.read(ctx)
	if err != nil {
		return nil, r.unreached(err)
	}
	r.reached()
	empty := txstate.Standing{Empty: true}
	for _, name := range names(there) {
		node := there[name]
		var pipeline string
		switch {
		case isDir(name):
			continue
		case name == recordName:
			rec, err := parseRecord(node.data)
			if err != nil {
				return nil, garbled(r.full(name), r.cfg.Pipeline, readable(node.data, err))
			}
			if pipeline = rec.Pipeline; pipeline != r.cfg.Pipeline {
				return nil, judge(ctx, r.full(name), r.cfg.Pipeline, &empty, rec, nil)
			}
			empty.Txid = rec.Committed.Txid
			empty.Epoch = rec.Epoch
		default:
			if _, err := parsePage(node.data); err != nil && there[recordName].data == nil {
				return nil, garbled(r.full(name), r.cfg.Pipeline, readable(node.data, err))
			}
		}
	}
	all := r.carried(there)
	var last batch.Txid
	for _, c := range all {
		last = max(last, c.Txid)
	}
	if empty.Txid > last {
		all = append([]txstate.Carried{{Txid: empty.Txid, Epoch: empty.Epoch}}, all...)
	}
	return all, nil
}

// reached notes that the servers have answered. REQUIRES: r.work is held.
func (r *Record) reached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Err, r.status.Since = nil, time.Time{}
}

// unreached notes a failure of the start, and is it: permanent if it has lasted for RetryFor. REQUIRES: r.work is held.
func (r *Record) unreached(err error) error {
	e := failure(err)
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Failures[e.Code]++
	if r.status.Err == nil {
		r.status.Since = now.UTC()
	}
	r.status.Err = e
	if refuses(e) {
		return err
	}
	if lasted := now.Sub(r.status.Since); r.cfg.RetryFor > 0 && lasted >= r.cfg.RetryFor {
		return r.expired(e, lasted)
	}
	if e.Kind == batch.Permanent {
		return e
	}
	return err
}

// Shown implements txstate.Showing: it lists the positions of all sources.
func (r *Record) Shown(ctx context.Context) ([]txstate.Shown, error) {
	r.work.Lock()
	defer r.work.Unlock()
	there, err := r.read(ctx)
	if err != nil {
		return nil, failure(err)
	}
	var all []txstate.Shown
	for _, p := range positions(there) {
		s := txstate.Shown{Partition: p.Partition, Next: p.Next, Txid: p.Txid, Epoch: p.Epoch}
		if p.pipeline != r.cfg.Pipeline {
			s.By, s.Txid, s.Epoch = "pipeline "+p.pipeline, 0, 0
		}
		all = append(all, s)
	}
	return all, nil
}

// Export implements txstate.Exporting. The record says nothing of the batch's time and digests then: use ExportPoint where they
// are known.
func (r *Record) Export(ctx context.Context, txid batch.Txid, epoch batch.Epoch, positions []txstate.SavedPosition) error {
	return r.ExportPoint(ctx, "", txstate.Point{Txid: txid, Epoch: epoch, Positions: positions})
}

// ExportPoint writes where the given store stands over whatever is held, also backwards and over what others wrote, and returns
// once that has been acknowledged.
func (r *Record) ExportPoint(ctx context.Context, store string, p txstate.Point) error {
	r.work.Lock()
	defer r.work.Unlock()
	want := contentOf(r.cfg.Pipeline, store, &p, nil, r.cfg.Now())
	for try := 1; ; try++ {
		there, err := r.read(ctx)
		if err == nil {
			err = r.apply(ctx, there, r.mine, r.changes(there, &want, true))
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, errChanged) || try == conflicts {
			e := *failure(err)
			e.Op, e.Txid = "export", p.Txid
			return &e
		}
	}
}
