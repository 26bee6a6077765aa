package spec

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
)

// A relay hands rows of a batch on as they are, in other tasks or in another order: sort, limit, repartition. Its rows go to their
// tasks as those of a join's only side do, and keep their event times.

func sortField() *field {
	return &field{
		name: "sort", kind: kindList, item: &field{kind: kindString}, operator: true, example: "sort: [amount desc, id]",
		doc: "Brings the rows of each batch into the order of these fields, the first that differ deciding: from the least on, or with `desc` from the greatest. Null is the least, NaN the greatest of numbers; rows that are equal stay in the order in which they came.",
	}
}

func limitField() *field {
	return &field{
		name: "limit", kind: kindInt, min: 1, operator: true, example: "limit: {rows: 3, per: [customer]}",
		doc: "Hands on the first so many rows of each batch and drops the others.",
		enumOr: &field{kind: kindObject, fields: []*field{
			{name: "rows", kind: kindInt, min: 1, required: true, doc: "How many rows of each batch are handed on."},
			{name: "per", kind: kindList, item: &field{kind: kindRef}, def: "none: of all rows", example: "per: [customer]", doc: "So many rows are handed on for each combination of these fields. Null is a value of its own."},
		}},
	}
}

func repartitionField() *field {
	return &field{
		name: "repartition", kind: kindEnum, enum: []string{"shuffle", "global"}, operator: true, example: "repartition: {by: [user], into: 8}",
		doc: "Hands the rows to other tasks, so that more of them, or fewer, share the work of the steps behind. `shuffle` spreads rows evenly over 16, `global` brings all to one. Nothing but the order of rows depends on it.",
		enumOr: &field{kind: kindObject, fields: []*field{
			{name: "by", kind: kindList, item: &field{kind: kindRef}, def: "none: `shuffle`", example: "by: [user]", doc: "Rows that are equal in these fields go to the same task."},
			{name: "into", kind: kindInt, min: 1, def: "16", doc: "The number of tasks, at most 256."},
		}},
	}
}

// defaultParts is how many tasks a repartition hands rows to.
const defaultParts = 16

// relayDecl is a checked sort, limit or repartition.
type relayDecl struct {
	op    string
	order []sortDecl // of a sort
	rows  int64      // of a limit
	parts int        // of a repartition
	by    *node      // the fields of a limit's `per` or a repartition's `by`; nil: none
}

// sortDecl is one of the fields that rows are sorted by.
type sortDecl struct {
	field      string
	n          *node
	descending bool
}

// newRelay reads such a step.
func newRelay(st *stepDecl) *relayDecl {
	r := &relayDecl{op: st.op}
	switch st.op {
	case "sort":
		for _, n := range st.n.list {
			s := sortDecl{n: n, field: n.text}
			if words := strings.Fields(n.text); len(words) == 2 && (words[1] == "desc" || words[1] == "asc") {
				s.field, s.descending = words[0], words[1] == "desc"
			}
			r.order = append(r.order, s)
		}
	case "limit":
		r.rows, r.by = st.n.num, st.n.get("per")
		if n := st.n.get("rows"); n != nil {
			r.rows = n.num
		}
	case "repartition":
		r.parts, r.by = defaultParts, st.n.get("by")
		switch n := st.n.get("into"); {
		case n != nil:
			r.parts = int(min(n.num, plan.DefaultShards))
		case st.n.text == "global":
			r.parts = 1
		}
	}
	return r
}

// relay checks what of a relay can be told without types.
func (b *modeler) relay(st *stepDecl) {
	if n := st.n.get("into"); n != nil && n.num > plan.DefaultShards {
		b.add(n.at, "", "into is at most %d", plan.DefaultShards)
	}
}

// relaySide checks one way of a stream's rows to a relay.
func (c *checker) relaySide(o *output, st *stepDecl, e *env) *joinSide {
	s := &joinSide{out: o, env: e, label: st.label}
	r := o.join.relay
	field := func(n *node, name string) (int, bool) {
		if f, ok := e.lookup(name); ok {
			return f.Index, true
		}
		hint := nearest(name, firstNames(e.scope))
		if e.scope.IsRecord(name) {
			hint = "set a field to it first"
		} else if st.op == "sort" && strings.ContainsAny(name, " -()") {
			hint = "write FIELD or FIELD desc; set a field to what else decides"
		}
		c.add(n.at, hint, "there is no field %s here", name)
		return 0, false
	}
	for _, by := range r.order {
		if i, ok := field(by.n, by.field); ok {
			s.sorts = append(s.sorts, i)
		}
	}
	if r.by != nil {
		for _, n := range r.by.list {
			if i, ok := field(n, n.text); ok {
				s.keys = append(s.keys, i)
			}
		}
	}
	o.addSide(s)
	return s
}

// keepTimes declares the event time of rows that go on as they are, if all have one.
func (c *checker) keepTimes(o *output) {
	st := o.stream.steps[o.step]
	timed, late := 0, 0
	for _, src := range o.sources {
		if src.time >= 0 {
			timed++
		}
		if src.canBeLate() {
			late++
		}
	}
	if timed < len(o.sources) {
		return
	}
	if late > 0 && late < timed {
		c.add(st.at, "give them a "+st.op+" each, in two streams", "rows of windows, which are never late, and of records meet in one %s", st.op)
		return
	}
	for _, src := range o.sources {
		src.root.cols[src.time].used = true
	}
	o.derived.time = o.derived.root.add(&column{typ: expr.Time.NotNull(), origin: fromResult})
}

// relayText writes a relay in one line.
func relayText(st *stepDecl) string {
	r := newRelay(st)
	text := st.op
	var by []string
	if r.by != nil {
		by = r.by.texts()
	}
	switch st.op {
	case "sort":
		for _, s := range r.order {
			f := s.field
			if s.descending {
				f += " desc"
			}
			by = append(by, f)
		}
		text += " by " + strings.Join(by, ", ")
	case "limit":
		text += fmt.Sprintf(" %d", r.rows)
		if by != nil {
			text += " per " + strings.Join(by, ", ")
		}
	case "repartition":
		switch {
		case r.parts == 1:
			text += " global"
		case by != nil:
			text += fmt.Sprintf(" by %s into %d", strings.Join(by, ", "), r.parts)
		default:
			text += fmt.Sprintf(" shuffle into %d", r.parts)
		}
	}
	return text
}

// tasks says, in a plan, how many tasks take the rows.
func (r *relayDecl) tasks() string {
	switch n := r.parts; {
	case n == 1, n == 0 && r.by == nil:
		return "one task"
	case n > 0:
		return fmt.Sprintf("%d tasks", n)
	}
	return fmt.Sprintf("%d shards", plan.DefaultShards)
}

// place appends the key of the task that a row of a repartition goes to: the number of a shard.
func (r *joinRun) place(dst []byte, row int) []byte {
	s := r.s
	n := uint64(s.out.join.relay.parts)
	if n == 1 {
		return value.AppendKeyInt(dst, 0)
	}
	s.hash = s.hash[:0]
	if r.side.keys != nil {
		for _, c := range r.keys {
			s.hash = appendKey(s.hash, c, row)
		}
	} else {
		// By the record's place, and which of its rows it is: the same however batches are cut.
		p, at := s.t.tc.Partition, s.t.recs[r.f.records[row]].Offset
		if at != s.lastOffset || r.way != s.lastWay {
			s.lastOffset, s.lastWay, s.nth = at, r.way, 0
		}
		s.hash = fmt.Appendf(s.hash, "%q %q %d", p.Source, p.Topic, p.Number)
		for _, i := range []int64{at, int64(r.way), s.nth} {
			s.hash = binary.AppendVarint(s.hash, i)
		}
		s.nth++
	}
	return value.AppendKeyInt(dst, int64(xxhash.Sum64(s.hash)%n))
}

// add hands over a row. Each task of a repartition is a shard.
func (s *joinSender) add(key, row []byte) error {
	if r := s.out.join.relay; r == nil || r.parts == 0 {
		return s.deltas.Add(key, row)
	}
	v, _, err := value.DecodeKey(key)
	if err != nil {
		panic(fmt.Sprintf("spec: the key of a repartition: %v", err)) // place made it
	}
	return s.deltas.AddAt(int(v.Int())%s.deltas.Shards(), key, row)
}

// relayReader hands on the rows of a relay in one shard.
type relayReader struct {
	relay *relayDecl
	timed bool
	rows  []relayed
	by    []value.Value // what a sort's rows are sorted by, one row after the other
}

// relayed is a row that waits for those before it.
type relayed struct {
	n    int // in the order in which they came
	wire []byte
}

func newRelayReader(o *output) *relayReader {
	return &relayReader{relay: o.join.relay, timed: o.derived.time >= 0}
}

// nextWire cuts off a row and what is before it.
func nextWire(b []byte) (wire, rest []byte, err error) {
	n, w := binary.Uvarint(b[1:])
	if w <= 0 || n > uint64(len(b)-1-w) {
		return nil, nil, errGroupCutOff
	}
	return b[1+w : 1+w+int(n)], b[1+w+int(n):], nil
}

// relayed calls row for each row that has come for a key, and returns how many were left out.
func (r *joinReader) relayed(b []byte, row func(vals []value.Value, at int64) error) (dropped int64, err error) {
	l := r.relay
	l.rows, l.by = l.rows[:0], l.by[:0]
	for rest := b; len(rest) > 0; {
		var wire []byte
		if wire, rest, err = nextWire(rest); err != nil {
			return 0, err
		}
		if l.relay.rows > 0 && int64(len(l.rows)) == l.relay.rows {
			dropped++
			continue
		}
		for range l.relay.order {
			var v value.Value
			if v, wire, err = value.DecodeBinary(wire); err != nil {
				return 0, err
			}
			l.by = append(l.by, v)
		}
		l.rows = append(l.rows, relayed{len(l.rows), wire})
	}
	l.sort()
	for _, w := range l.rows {
		at, err := r.passed(w.wire, l.timed)
		if err != nil {
			return 0, err
		}
		if err := row(r.vals, at); err != nil {
			return 0, err
		}
	}
	return dropped, nil
}

func (l *relayReader) sort() {
	width := len(l.relay.order)
	if width == 0 {
		return
	}
	slices.SortFunc(l.rows, func(a, b relayed) int {
		for i, by := range l.relay.order {
			c := value.Compare(l.by[a.n*width+i], l.by[b.n*width+i])
			if by.descending {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return cmp.Compare(a.n, b.n)
	})
}
