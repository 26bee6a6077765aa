package exec

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// feed is what one part hands to an exchange.
type feed struct {
	part   batch.Partition
	ranged int // index in the batch's ranges, -1 for a part of a later stage
	deltas *plan.Deltas
}

// feeds lists the parts that feed an exchange: ranges, then the shards of the stages before it.
func feeds(f *flight, exchange int) []feed {
	var all []feed
	for i, r := range f.results {
		all = append(all, feed{f.b.Ranges[i].Partition, i, r.out[exchange]})
	}
	for _, st := range f.stages {
		for i := range st.parts {
			if st.parts[i].out != nil {
				all = append(all, feed{st.partition(&st.parts[i]), -1, st.parts[i].out[exchange]})
			}
		}
	}
	return all
}

// exchange compares what comes to an exchange, part by part: a key's deltas merged, as their number is no result.
func (c *comparison) exchange(i int, e *plan.Exchange) *finding {
	second := map[batch.Partition]map[string][]byte{}
	left := map[batch.Partition]feed{}
	for _, fd := range feeds(c.g, i) {
		second[fd.part], left[fd.part] = merged(e, fd.deltas), fd
	}
	for _, fd := range feeds(c.f, i) {
		if d := c.feedsDiffer(e, fd, merged(e, fd.deltas), second[fd.part]); d != nil {
			return d
		}
		delete(left, fd.part)
	}
	for _, fd := range feeds(c.g, i) { // parts of a later stage that only the second run had
		if _, ok := left[fd.part]; !ok {
			continue
		}
		if d := c.feedsDiffer(e, fd, nil, second[fd.part]); d != nil {
			return d
		}
	}
	return nil
}

// merged holds, by key, what one part has for an exchange.
func merged(e *plan.Exchange, d *plan.Deltas) map[string][]byte {
	all := map[string][]byte{}
	for _, x := range d.InOrder() {
		key := string(d.Key(&x))
		old, ok := all[key]
		if !ok {
			all[key] = d.Value(&x)
			continue
		}
		sum := append(slices.Clone(old), d.Value(&x)...)
		if e.Merge != nil { // an operator takes them one by one
			// It did merge when the batch ran, or the batch would have failed.
			if m, err := e.Merge(nil, old, d.Value(&x)); err == nil {
				sum = m
			}
		}
		all[key] = sum
	}
	return all
}

func (c *comparison) feedsDiffer(e *plan.Exchange, fd feed, a, b map[string][]byte) *finding {
	keys := map[string]bool{}
	for k := range a { // order: sorted below
		keys[k] = true
	}
	for k := range b { // order: sorted below
		keys[k] = true
	}
	var sorted []string
	for k := range keys { // order: sorted
		sorted = append(sorted, k)
	}
	slices.Sort(sorted)
	for _, k := range sorted {
		first, inA := a[k]
		second, inB := b[k]
		if inA == inB && bytes.Equal(first, second) {
			continue
		}
		d := &finding{what: "batch aggregate " + e.Name, key: value.KeyText([]byte(k)), part: fd.part, offset: batch.NoOffset, ranged: fd.ranged}
		if e.State == nil {
			d.first, d.second = cellsText(nil, first, inA), cellsText(nil, second, inB)
			return d
		}
		d.what = "state " + e.State.Schema.Name
		d.key = keyText(&e.State.Schema, []byte(k))
		d.first, d.second = cellsText(&e.State.Schema, first, inA), cellsText(&e.State.Schema, second, inB)
		// What the row becomes says more than what one partition adds to it.
		u, v := c.written(e.State.Schema.Name, []byte(k))
		if u != nil && v != nil && u.Op == state.Set && v.Op == state.Set && !bytes.Equal(u.Value, v.Value) {
			d.first, d.second = writeText(&e.State.Schema, u), writeText(&e.State.Schema, v)
		}
		return d
	}
	return nil
}

// written returns what the two runs write to a key; nil if nothing.
func (c *comparison) written(name string, key []byte) (first, second *state.Write) {
	at := func(set *state.WriteSet) *state.Write {
		if set == nil {
			return nil
		}
		ws := set.Shards[state.ShardOf(key, len(set.Shards))]
		i, ok := slices.BinarySearchFunc(ws, key, func(w state.Write, k []byte) int { return bytes.Compare(w.Key, k) })
		if !ok {
			return nil
		}
		return &ws[i]
	}
	return at(c.f.setOf(name)), at(c.g.setOf(name))
}

// state compares what the two runs write to a state.
func (c *comparison) state(s *state.Schema) *finding {
	a, b := c.f.setOf(s.Name), c.g.setOf(s.Name)
	var keys [][]byte
	for _, set := range []*state.WriteSet{a, b} {
		if set == nil {
			continue
		}
		for _, ws := range set.Shards {
			for i := range ws {
				keys = append(keys, ws[i].Key)
			}
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range slices.CompactFunc(keys, bytes.Equal) {
		u, v := c.written(s.Name, k)
		if u == nil || v == nil || !equalWrites(*u, *v) {
			return &finding{
				what: "state " + s.Name, key: keyText(s, k), first: writeText(s, u), second: writeText(s, v), offset: batch.NoOffset, ranged: -1,
			}
		}
	}
	var dropA, dropB [][]byte
	if a != nil {
		dropA = a.DropWindows
	}
	if b != nil {
		dropB = b.DropWindows
	}
	if !slices.EqualFunc(dropA, dropB, bytes.Equal) {
		return &finding{
			what: "windows dropped of state " + s.Name, first: fmt.Sprintf("%x", dropA), second: fmt.Sprintf("%x", dropB), offset: batch.NoOffset, ranged: -1,
		}
	}
	return nil
}

// persisted finds the part whose rows for a persist differ; if none does, it is the update function that isn't pure.
func (c *comparison) persisted(i int, d *finding) {
	for j, r := range c.f.results {
		if !reflect.DeepEqual(r.persist[i], c.g.results[j].persist[i]) {
			d.part, d.ranged = c.f.b.Ranges[j].Partition, j
			return
		}
	}
	d.step = "persist " + c.x.plan.Persists[i].Name
	for k, st := range c.f.stages {
		for j := range st.parts {
			if k >= len(c.g.stages) || j >= len(c.g.stages[k].parts) || !reflect.DeepEqual(st.parts[j].persist[i], c.g.stages[k].parts[j].persist[i]) {
				d.part, d.step = st.partition(&st.parts[j]), ""
				return
			}
		}
	}
}

func keyText(s *state.Schema, key []byte) string {
	var cols []string
	for _, col := range s.Key {
		v, rest, err := value.DecodeKey(key)
		if err != nil {
			return fmt.Sprintf("%x", key)
		}
		cols, key = append(cols, col.Name+"="+string(value.AppendText(nil, v))), rest
	}
	return strings.Join(cols, " ")
}

func writeText(s *state.Schema, w *state.Write) string {
	switch {
	case w == nil:
		return ""
	case w.Op == state.Delete:
		return "removed"
	}
	return rowText(s, w.Key, w.Value)
}

func rowText(s *state.Schema, key, val []byte) string {
	row, err := query.Decode(nil, *s, key, val)
	cols := query.Columns(*s)
	if err != nil || len(row) != len(cols) {
		return fmt.Sprintf("%x", val)
	}
	var text []string
	for i := len(s.Key); i < len(row); i++ {
		text = append(text, cols[i].Name+"="+string(value.AppendText(nil, row[i])))
	}
	return strings.Join(text, " ")
}

// cellsText shows what one part adds to a key.
func cellsText(s *state.Schema, cells []byte, ok bool) string {
	if !ok {
		return ""
	}
	row, err := agg.Results(nil, cells)
	if err != nil {
		return fmt.Sprintf("%x", cells)
	}
	var text []string
	for i, v := range row {
		t := string(value.AppendText(nil, v))
		if s != nil && len(s.Values) == len(row) {
			t = s.Values[i].Name + "=" + t
		}
		text = append(text, t)
	}
	return strings.Join(text, " ")
}
