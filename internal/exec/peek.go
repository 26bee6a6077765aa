package exec

import "github.com/tridentd/tridentd/internal/plan"

// tellPeeked writes to the log what the batch's peeks show and hasn't been written yet: of each peek the first rows, in the order of tasks,
// so that the number of cores doesn't show. A batch that fails tells what its tasks had come to; another attempt tells it again. A replay
// shows nothing: what it would show has been shown.
func (x *Executor) tellPeeked(f *flight) {
	rows := f.peeked
	f.peeked = nil
	if x.cfg.Tables != nil {
		return
	}
	for i := range rows {
		r := &rows[i]
		if f.told[r.Peek] == r.Peek.Rows {
			continue
		}
		if f.told == nil {
			f.told = map[*plan.Peek]int{}
		}
		f.told[r.Peek]++
		args := []any{"stream", r.Peek.Stream, "peek", r.Peek.N, "txid", uint64(f.b.Txid), "partition", r.Partition.String(), "offset", r.Offset}
		x.log.Info("peek", append(args, r.Fields...)...)
	}
}
