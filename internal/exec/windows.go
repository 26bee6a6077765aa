package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// windowsState is the state that remembers each windowed state's windows: when they closed, in batch time.
const windowsState = "_windows"

// WindowsSchema describes it.
func WindowsSchema() state.Schema {
	return state.Schema{
		Name: windowsState, Kind: "opaque",
		Key: []state.Column{{Name: "state", Type: "string"}, {Name: "window_start", Type: "timestamp"}},
	}
}

// windowSet holds, for each windowed state, its windows by encoded start, and the batch time at which each closed
// (milliseconds since 1970, 0 while open). It is a value: copied when it changes.
type windowSet map[string]map[string]int64

func (x *Executor) loadWindows(ctx context.Context) (windowSet, error) {
	ws := windowSet{}
	if !x.windowed {
		return ws, nil
	}
	snap, err := x.cfg.DB.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	for row, err := range snap.Scan(ctx, windowsState, nil, nil) {
		if err != nil {
			return nil, err
		}
		name, start, closed, err := decodeWindow(row.Key, row.Value)
		if err != nil {
			return nil, batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "load windows",
				fmt.Errorf("state %s, key %x: %w", windowsState, row.Key, err), "restore a savepoint, or rebuild by replay")
		}
		m := ws[name]
		if m == nil {
			m = map[string]int64{}
			ws[name] = m
		}
		m[start] = closed
	}
	return ws, nil
}

// decodeWindow reads a row of windowsState: whose window it is, its encoded start, and when it closed.
func decodeWindow(key, val []byte) (name, start string, closed int64, err error) {
	n, rest, err := value.DecodeKey(key)
	if err != nil {
		return "", "", 0, err
	}
	at, behind, err := value.DecodeKey(rest)
	if err != nil {
		return "", "", 0, err
	}
	ms, size := binary.Uvarint(val)
	if n.Kind() != value.String || at.Kind() != value.Time || len(behind) > 0 || size != len(val) || ms > math.MaxInt64 {
		return "", "", 0, errors.New("it is no window")
	}
	return n.Str(), string(rest), int64(ms), nil
}

// closeWindows notes the windows that the batch wrote to for the first time and those that the watermark of the
// batch before has passed, and drops those that have been closed for their retention. A window that the batch writes to
// stays: its watermark may have gone back, as another source now counts for it.
func (x *Executor) closeWindows(f *flight, base windowSet) {
	ws := maps.Clone(base)
	w := newRowWriter(context.Background(), nil, x.cfg.Shards)
	now := f.b.Time.UnixMilli()
	for _, st := range windowedStates(x.plan) {
		win := st.Schema.Window
		name := st.Schema.Name
		m := maps.Clone(ws[name])
		if m == nil {
			m = map[string]int64{}
		}
		put := func(start string, closed int64) {
			m[start] = closed
			w.Set(append(value.AppendKey(nil, value.StringOf(name)), start...), binary.AppendUvarint(nil, uint64(closed)))
		}
		set := f.setOf(name)
		written := startsOf(set)
		for start := range written { // order: each window by itself
			if closed, ok := m[start]; !ok || closed != 0 && st.Emit&plan.EmitCloses != 0 {
				put(start, 0)
			}
		}
		mark := f.clockOf(st)
		var drop [][]byte
		for _, start := range slices.Sorted(maps.Keys(m)) {
			closed := m[start]
			_, used := written[start]
			switch {
			case closed == 0 && endOf(win, name, start) <= mark:
				put(start, now)
			case closed != 0 && !used && closed+win.Retention/int64(time.Millisecond) <= now:
				drop = append(drop, []byte(start))
				delete(m, start)
				w.Delete(append(value.AppendKey(nil, value.StringOf(name)), start...))
			}
		}
		ws[name] = m
		if len(drop) > 0 {
			if set == nil {
				set = &state.WriteSet{State: name, Shards: make([][]state.Write, x.cfg.Shards)}
				f.sets = append(f.sets, set)
			}
			set.DropWindows = drop
			if !st.Mergeable {
				if f.overlays[name] == nil {
					f.overlays[name] = &overlay{shards: make([]map[string][]byte, x.cfg.Shards)}
				}
				f.overlays[name].dropped = drop
			}
			d := digest(set.Digest)
			for _, k := range drop {
				d = d.bytes(k)
			}
			set.Digest = d.sum()
			set.Writes += int64(len(drop))
		}
	}
	f.windows = ws
	if set, _ := w.set(windowsState); set != nil {
		f.sets = append(f.sets, set)
	}
}

// windowedStates lists the states with windows.
func windowedStates(p *plan.Plan) []*plan.State {
	var all []*plan.State
	for _, e := range p.Exchanges {
		for _, st := range []*plan.State{e.State, e.Output} {
			if st != nil && st.Schema.Window != nil {
				all = append(all, st)
			}
		}
	}
	return all
}

func (f *flight) setOf(name string) *state.WriteSet {
	for _, s := range f.sets {
		if s.State == name {
			return s
		}
	}
	return nil
}

// startsOf lists the encoded window starts that lead the keys of a write set.
func startsOf(set *state.WriteSet) map[string]struct{} {
	starts := map[string]struct{}{}
	if set == nil {
		return starts
	}
	var last []byte
	for _, writes := range set.Shards {
		for i := range writes {
			k := writes[i].Key
			if last != nil && len(k) >= len(last) && string(k[:len(last)]) == string(last) {
				continue
			}
			last = leadingTime(set.State, k)
			starts[string(last)] = struct{}{}
		}
	}
	return starts
}
