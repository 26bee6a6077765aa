package kafkagroup

import (
	"context"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

var (
	_ txstate.Showing   = (*Mirror)(nil)
	_ txstate.Exporting = (*Mirror)(nil)
)

// Shown implements txstate.Showing.
func (m *Mirror) Shown(ctx context.Context) ([]txstate.Shown, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	has, err := m.fetch(ctx)
	if err != nil {
		return nil, failure(m.cfg.Group, err)
	}
	var all []txstate.Shown
	for at, h := range has { // order: sorted below
		if !m.cfg.Reads(at.topic) {
			continue
		}
		s := txstate.Shown{Partition: batch.Partition{Source: m.cfg.Source, Topic: at.topic, Number: at.number}, Next: h.next, Metadata: h.metadata}
		switch st := h.stamp; {
		case st == nil:
			s.By = "somebody else"
		case st.Pipeline != m.cfg.Pipeline:
			s.By = "pipeline " + st.Pipeline
		default:
			s.Txid, s.Epoch = st.Txid, st.Epoch
			if st.Source != m.cfg.Source {
				s.By = "source " + st.Source
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b txstate.Shown) int { return a.Compare(b.Partition) })
	return all, nil
}

// Export implements txstate.Exporting. The first partition that is refused is an error; the others may have been written by
// then.
func (m *Mirror) Export(ctx context.Context, txid batch.Txid, epoch batch.Epoch, positions []txstate.SavedPosition) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	m.has = map[part]held{}
	refused := map[part]error{}
	for chunk := range slices.Chunk(m.mine(positions), maxWrite) {
		if err := m.write(ctx, epoch, chunk, refused); err != nil {
			e := failure(m.cfg.Group, err)
			e.Op, e.Txid = "export", txid
			return e
		}
	}
	if standing := m.setAside(refused); len(standing) > 0 {
		e := *standing[0]
		e.Op, e.Txid = "export", txid
		return &e
	}
	return nil
}
