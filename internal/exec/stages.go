package exec

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tridentd/tridentd/internal/enc"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// checkStages panics where a plan asks for what can't be: whoever compiled it is at fault. It tells whether a state has windows.
func checkStages(p *plan.Plan) (windowed bool) {
	stages := map[string]bool{}
	stage := func(name string) {
		if stages[name] {
			panic("exec: two stages are named " + name + ", by which the rows that they turn away are told apart")
		}
		stages[name] = true
	}
	for _, e := range p.Exchanges {
		st := e.State
		windowed = windowed || st != nil && st.Schema.Window != nil || e.Output != nil && e.Output.Schema.Window != nil
		if e.Next != nil || e.Operator != nil {
			stage(e.Name)
		}
		if e.Operator != nil {
			if st == nil || st.Mergeable || st.Emit != 0 || st.Schema.Window != nil {
				panic("exec: the operator of " + e.Name + " needs a state of its own, without windows, that emits nothing by itself")
			}
			continue
		}
		switch {
		case e.Output != nil:
			panic("exec: " + e.Name + " has no operator that could write to its output")
		case st == nil:
		case st.Mergeable && st.Emit != 0:
			panic("exec: rows of " + e.Name + " are sent on, so its state can't be written as merge operands")
		case (st.Emit != 0) != (e.Next != nil):
			panic("exec: " + e.Name + " sends rows on and nothing takes them, or the other way round")
		case st.Emit&plan.EmitCloses != 0 && st.Schema.Window == nil:
			panic("exec: " + e.Name + " has no windows that could close")
		}
	}
	for _, q := range p.Persists {
		if q.Next == nil {
			continue
		}
		stage(q.Name)
	}
	for _, q := range p.Persists {
		if q.Before != nil && !slices.Contains(p.Exchanges, q.Before) {
			panic("exec: persist " + q.Name + " is placed before an exchange of another plan")
		}
	}
	return windowed
}

// stateReader reads a state for a later stage.
type stateReader struct {
	view   *view
	shards int
}

func (r *stateReader) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return r.view.get(ctx, state.ShardOf(key, r.shards), key)
}

// readerOf returns what TaskContext.State is in one worker: states as the exchanges of f that are through have left them.
func (x *Executor) readerOf(f *flight, before []*flight) func(name string) state.Reader {
	readers := map[string]state.Reader{}
	return func(name string) state.Reader {
		if r := readers[name]; r != nil {
			return r
		}
		if !x.readable(name) {
			panic("exec: a stage reads state " + name + ", which doesn't exist or is written as merge operands")
		}
		v, err := x.viewOf(name, append([]*flight{f}, before...))
		r := state.Reader(&stateReader{v, x.cfg.Shards})
		if err != nil {
			r = failedReader{err}
		}
		readers[name] = r
		return r
	}
}

// readable tells whether batches in flight keep what they make of a state.
func (x *Executor) readable(name string) bool {
	for _, e := range x.plan.Exchanges {
		for _, st := range []*plan.State{e.State, e.Output} {
			if st != nil && st.Schema.Name == name {
				return !st.Mergeable
			}
		}
	}
	return slices.ContainsFunc(x.plan.Persists, func(p *plan.Persist) bool { return p.Schema.Name == name })
}

// failedReader is a state of a database that has been closed.
type failedReader struct{ err error }

func (r failedReader) Get(context.Context, []byte) ([]byte, bool, error) { return nil, false, r.err }

// endOf is where the window with an encoded start ends.
func endOf(w *state.Window, name, start string) int64 {
	v, _, err := value.DecodeKey([]byte(start))
	if err != nil {
		panic(fmt.Sprintf("exec: state %s: window key %x: %v", name, start, err))
	}
	return w.End(v.Nanos())
}

// closing lists the encoded starts of the windows that the batch closes, the earliest first: of those open before it and those
// that its deltas are for. closed is what the batch before left.
func (f *flight) closing(st *plan.State, closed map[string]int64, in []*plan.Deltas) [][]byte {
	name, win := st.Schema.Name, st.Schema.Window
	mark := f.clockOf(st)
	starts := startsIn(name, in)
	for start, at := range closed { // order: sorted below
		if at == 0 {
			starts[start] = struct{}{}
		}
	}
	var all [][]byte
	for _, start := range slices.Sorted(maps.Keys(starts)) {
		if endOf(win, name, start) <= mark {
			all = append(all, []byte(start))
		}
	}
	return all
}

// startsIn lists the encoded window starts that lead the keys of deltas.
func startsIn(name string, in []*plan.Deltas) map[string]struct{} {
	starts := map[string]struct{}{}
	for _, d := range in {
		var last []byte
		for key := range d.Keys() {
			if last == nil || !bytes.HasPrefix(key, last) {
				last = leadingTime(name, key)
				starts[string(last)] = struct{}{}
			}
		}
	}
	return starts
}

// leadingTime is the encoded time that leads a key.
func leadingTime(name string, key []byte) []byte {
	_, rest, err := value.DecodeKey(key)
	if err != nil {
		panic(fmt.Sprintf("exec: state %s: key %x: %v", name, key, err))
	}
	return key[:len(key)-len(rest)]
}

// closingRows collects the rows of closing windows in one shard as they were before the batch.
func (w *shardWorker) closingRows(ctx context.Context, shard int) (map[string][]byte, error) {
	rows := map[string][]byte{}
	for _, start := range w.closing {
		for row, err := range w.scan.ScanShard(ctx, w.e.State.Schema.Name, shard, start, enc.PrefixEnd(start)) {
			if err != nil {
				return nil, err
			}
			rows[string(row.Key)] = row.Value
		}
	}
	closes := func(key []byte) bool {
		return slices.ContainsFunc(w.closing, func(start []byte) bool { return bytes.HasPrefix(key, start) })
	}
	for _, o := range slices.Backward(w.view.overlays) { // the oldest first
		for _, start := range o.dropped {
			maps.DeleteFunc(rows, func(k string, _ []byte) bool { return bytes.HasPrefix([]byte(k), start) })
		}
		for k, v := range o.shards[shard] { // order: a key is there once
			switch {
			case v == nil:
				delete(rows, k)
			case closes([]byte(k)):
				rows[k] = v
			}
		}
	}
	return rows, nil
}

// sendClosing hands the rows of closing windows to the stage behind, with what the batch itself made of them.
func (w *shardWorker) sendClosing(rows, own map[string][]byte) error {
	for k, v := range own { // order: a key is there once
		switch {
		case v == nil:
			delete(rows, k)
		case slices.ContainsFunc(w.closing, func(start []byte) bool { return bytes.HasPrefix([]byte(k), start) }):
			rows[k] = v
		}
	}
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		if err := w.stage.Row([]byte(k), rows[k]); err != nil {
			return err
		}
	}
	return nil
}
