package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

// recordClose bounds the end of the session by which a record was read.
const recordClose = time.Second

// checkRecord holds the record that a keeper has against the store, as the start of a run would. Nothing is written. A daemon that
// runs does that by itself, and tells of it in its status.
func checkRecord(ctx context.Context, k *plan.Keeper, standing *txstate.Standing) []doctor.Finding {
	if standing == nil || k.Record == nil {
		return nil
	}
	m, err := k.Record(plan.Env{Logger: hclog.NewNullLogger()})
	if err != nil {
		return []doctor.Finding{doctor.Of("zookeeper record", err)}
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordClose)
		defer cancel()
		m.Close(closing) //nolint:errcheck // it has been told nothing
	}()
	r, ok := m.(txstate.Recorder)
	if !ok {
		return nil
	}
	f := doctor.Finding{Subject: "zookeeper record"}
	held, err := m.Carried(ctx)
	var last batch.Txid
	for _, c := range held {
		last = max(last, c.Txid)
	}
	unread := err
	switch {
	case err != nil && batch.KindOf(err) != batch.Permanent:
		return nil // what is said of the servers says why
	case err != nil && standing.Empty:
		return []doctor.Finding{doctor.Of(f.Subject, err)}
	case err == nil && len(held) == 0:
		f.Text = "nothing yet: it is written when the pipeline runs"
		return []doctor.Finding{f}
	case standing.Empty:
		f.Level, f.Code, f.Text = doctor.Error, batch.CodeStoreMissing, fmt.Sprintf("says that this pipeline has run up to txid %d, and the data directory is empty", last)
		f.Remedy = "name the right --data, or restore a savepoint; run --fresh starts over"
		return []doctor.Finding{f}
	}
	if err := r.Reconcile(ctx, *standing); err != nil {
		if batch.KindOf(err) != batch.Permanent {
			return nil
		}
		return []doctor.Finding{doctor.Of(f.Subject, err)}
	}
	switch {
	case unread != nil:
		f.Level, f.Code, f.Text = doctor.Warn, batch.CodeOf(unread), "can't be read, and is written anew by the next run: "+doctor.Of("", unread).Text
		f.Remedy = "find out who has written it"
	case last < standing.Txid:
		f.Text = fmt.Sprintf("says txid %d, the store stands at %d: the next run brings it forward", last, standing.Txid)
	default:
		f.Text = fmt.Sprintf("says txid %d, as the store", last)
	}
	return []doctor.Finding{f}
}
