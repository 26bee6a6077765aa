package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/internal/windowop"
	"github.com/tridentd/tridentd/state"
)

// joinDecl is a checked join step. Side 0 are the stream's own rows, side 1 those that it is joined with.
type joinDecl struct {
	kind   string
	as     string
	lookup *lookupDecl // the other side is a state; nil: it is a stream
	relay  *relayDecl  // there is no other side; nil: there is one
	timed  bool        // in event time, at most within apart; else within a batch
	within int64
	pairs  bool
	alone  [2]bool // sides whose rows are sent on without a partner, too
	sides  []*joinSide
	fields []joinedField
	// on holds the nodes of the fields that must be equal: of side 0, of side 1.
	on [][2]*node
}

// joinedField is a field of the joined rows, which comes from one of the sides.
type joinedField struct {
	side int
	name string // there
	col  int    // in the root of the joined rows
}

// joinSide is a way to a side of a join.
type joinSide struct {
	out  *output
	side int
	env  *env
	keys []int
	cols []int // by field of the join: the frame's column; -1 on the other side, and where this way has no such field
	// keyTypes are the types of a lookup's keys.
	keyTypes []expr.Type
	window   *state.Window // of a lookup in sliding windows, whose keys have their ends, too
	sorts    []int         // columns that a sort goes by
	label    string
	// late are the streams that take rows that are late; none: these are turned away.
	late []*branch
}

// passes tells of steps whose rows are those of the stream, that is of records, as they were: such rows keep their properties and event
// times.
func (j *joinDecl) passes() bool { return j.lookup != nil || j.relay != nil }

// step is what the step is called.
func (j *joinDecl) step() string {
	switch {
	case j.lookup != nil:
		return "lookup"
	case j.relay != nil:
		return j.relay.op
	}
	return "join"
}

// newJoin reads a join step.
func newJoin(st *stepDecl) *joinDecl {
	j := &joinDecl{kind: "inner", pairs: true}
	if n := st.n.get("kind"); n != nil {
		j.kind = n.text
	}
	if n := st.n.get("as"); n != nil {
		j.as = n.text
	}
	if n := st.n.get("within"); n != nil {
		j.timed, j.within = true, int64(n.dur)
	}
	switch j.kind {
	case "left":
		j.alone = [2]bool{true, false}
	case "right":
		j.alone = [2]bool{false, true}
	case "full":
		j.alone = [2]bool{true, true}
	case "anti":
		j.alone, j.pairs = [2]bool{true, false}, false
	}
	if on := st.n.get("on"); on != nil {
		for _, k := range on.keys {
			own := *on.values[k]
			own.text, own.at = k, own.keyAt
			j.on = append(j.on, [2]*node{&own, on.values[k]})
		}
	}
	return j
}

// join checks a join step in a model.
func (b *modeler) join(st *stepDecl) {
	as := st.n.get("as")
	switch {
	case st.n.get("kind").str() == "anti":
		if as != nil {
			b.add(as.keyAt, "leave it out", "an anti join has no fields of what it is joined with")
		}
	case as == nil && !st.n.has("as"):
		b.add(st.at, "as in {with: payments, on: {id: order}, as: p}", "join needs as, the name under which the other row's fields are seen")
	}
	if as != nil && isMeta(as.text) {
		b.add(as.at, "", "%s is a property of the record and can't be set", as.text)
	}
	if on := st.n.get("on"); on != nil && len(on.keys) == 0 {
		b.add(on.keyAt, "as in on: {id: order}", "on needs a pair of fields at least")
	}
}

// references lists what a stream takes rows of: sources and streams.
func (s *streamDecl) references() []*node {
	all := slices.Clone(s.from)
	for _, st := range s.steps {
		if st.op == "join" {
			if n := st.n.get("with"); n != nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// dependency is a stream that another one's rows are made of, and where that is said.
type dependency struct {
	on *streamDecl
	n  *node
}

// dependencies lists the streams whose rows a stream takes, and those in whose states it looks rows up.
func (m *model) dependencies(s *streamDecl) []dependency {
	var all []dependency
	for _, n := range s.references() {
		if up := m.before(n.text); up != nil {
			all = append(all, dependency{up, n})
		}
	}
	for _, st := range s.steps {
		if of := m.looksIn(st); of != nil {
			all = append(all, dependency{of, st.n.get("state")})
		}
	}
	return all
}

// joinState is the name of the state in which the rows of the join that is step n of a stream wait.
func (s *streamDecl) joinState(n int) string {
	before := 0
	for _, st := range s.steps[:n] {
		if st.op == "join" && st.n.get("within") != nil {
			before++
		}
	}
	if before == 0 {
		return s.name + ".join"
	}
	return s.name + ".join." + strconv.Itoa(before+1)
}

// joining returns a branch for each join with what name stands for.
func (c *checker) joining(name string, at *env, way map[string]bool) []*branch {
	var all []*branch
	for _, o := range c.outputs {
		if o.join == nil {
			continue
		}
		st := o.stream.steps[o.step]
		if n := st.n.get("with"); n != nil && n.text == name {
			all = append(all, &branch{stream: o.stream, join: c.joinSide(o, 1, st, at.clone(), way)})
		}
	}
	return all
}

// joinSide checks one way to a join.
func (c *checker) joinSide(o *output, side int, st *stepDecl, e *env, way map[string]bool) *joinSide {
	j := o.join
	s := &joinSide{out: o, side: side, env: e, label: st.label}
	if j.timed {
		c.needsTime("a join within a duration", st, e)
	}
	if n := st.lates()[side]; n != nil {
		s.late = c.consumers(n.text, e.clone(), way)
	}
	fresh := o.keys == nil
	for i, pair := range j.on {
		n := pair[side]
		f, ok := e.lookup(n.text)
		if !ok {
			hint := nearest(n.text, firstNames(e.scope))
			if e.scope.IsRecord(n.text) {
				hint = "set a field to it first"
			}
			c.add(n.at, hint, "there is no field %s in %s", n.text, [2]string{"the stream here", st.n.get("with").str()}[side])
			f.Type = expr.Any
			f.Index = -1
		}
		s.keys = append(s.keys, f.Index)
		if fresh {
			o.keys = append(o.keys, f.Type)
			o.schema.Key = append(o.schema.Key, state.Column{Name: pair[0].text, Type: f.Type.Kind.String()})
			continue
		}
		k, ok := merged(o.keys[i].Kind, f.Type.Kind)
		if !ok {
			c.add(n.at, "convert one of them by a set step, or declare them alike in types", "%s is %s, and %s, which it must equal, %s", n.text, typeText(f.Type), pair[1-side].text, typeText(o.keys[i]))
		} else if k != o.keys[i].Kind {
			o.keys[i], o.schema.Key[i].Type = expr.Any, vec.Any.String()
		}
	}
	o.addSide(s)
	return s
}

// addSide adds a way of rows to the output's step.
func (o *output) addSide(s *joinSide) {
	o.join.sides = append(o.join.sides, s)
	if !slices.Contains(o.sources, s.env.src) {
		o.sources = append(o.sources, s.env.src)
	}
}

// joined declares the columns of a join's rows: the stream's own fields, those of the other side behind the name that `as` gives it, and,
// without a name, the event time of rows joined in event time.
func (c *checker) joined(o *output) {
	j, s := o.join, o.derived
	switch {
	case j.lookup != nil:
		c.lookedUp(o)
	case j.relay != nil:
		c.keepTimes(o)
	}
	if j.timed {
		s.time = s.root.add(&column{typ: expr.Time.NotNull(), origin: fromResult})
	}
	for _, side := range j.sides {
		for _, name := range side.env.scope.Names() {
			switch {
			case isMeta(name) && !j.passes():
			case side.side == 0:
				if first, _, _ := strings.Cut(name, "."); first != j.as {
					o.joinColumn(0, name)
				}
			case j.as != "" && !strings.Contains(name, "."):
				o.joinColumn(1, name)
			}
		}
	}
	for _, d := range c.dotted {
		if f, ok := strings.CutPrefix(d, j.as+"."); ok && j.as != "" {
			o.joinColumn(1, f)
		}
	}
	if j.lookup != nil {
		for _, name := range j.lookup.names() {
			o.joinColumn(1, name)
		}
	}
	s.open = true
}

// joinColumn returns the column of the joined rows for a side's field; false if no way to the side has such a field.
func (o *output) joinColumn(side int, name string) (col int, ok bool) {
	j := o.join
	for _, f := range j.fields {
		if f.side == side && f.name == name {
			return f.col, true
		}
	}
	typ := expr.Any
	found, missing := 0, j.alone[1-side]
	if j.lookup != nil && side == 1 {
		_, t, ok := j.lookup.column(name)
		if !ok {
			return 0, false
		}
		typ, found = t, 1
	}
	cols := make([]int, len(j.sides))
	for i, s := range j.sides {
		cols[i] = -1
		if s.side != side {
			continue
		}
		f, has := s.env.scope.Lookup(name)
		if !has {
			missing = true
			continue
		}
		switch cols[i] = f.Index; {
		case found == 0:
			typ = f.Type
		case f.Type.Type != typ.Type:
			typ = expr.Any
		default:
			typ.Nullable = typ.Nullable || f.Type.Nullable
		}
		found++
	}
	if found == 0 {
		return 0, false
	}
	typ.Nullable = typ.Nullable || missing
	full := name
	if side == 1 {
		full = j.as + "." + name
	}
	root := o.derived.root
	col = root.add(&column{name: full, typ: typ, origin: fromResult})
	j.fields = append(j.fields, joinedField{side: side, name: name, col: col})
	for i, s := range j.sides {
		s.cols = append(s.cols, cols[i])
	}
	return col, true
}

// joinedColumn is joinColumn by the name that the field has in the joined rows.
func (o *output) joinedColumn(name string) (col int, ok bool) {
	if isMeta(name) && !o.join.passes() {
		return 0, false
	}
	if first, rest, _ := strings.Cut(name, "."); o.join.as != "" && first == o.join.as {
		if rest == "" {
			return 0, false
		}
		return o.joinColumn(1, rest)
	}
	return o.joinColumn(0, name)
}

// propagateJoin marks what the used fields of a join's rows are made from.
func (o *output) propagateJoin() {
	for i, f := range o.join.fields {
		if !o.derived.root.cols[f.col].used {
			continue
		}
		for _, s := range o.join.sides {
			if k := s.cols[i]; k >= 0 {
				s.env.frame.cols[k].used = true
			}
		}
	}
}

// carries lists the fields of a side that are sent on, by number.
func (o *output) carries(side int) []int {
	var all []int
	for i, f := range o.join.fields {
		if f.side == side && o.derived.root.cols[f.col].used {
			all = append(all, i)
		}
	}
	return all
}

// waiting describes the rows that wait for a join: their time and, in the order in which they are written, the fields of either side. Which
// these are depends on what the steps behind the join read.
func (o *output) waiting() []state.Column {
	cols := []state.Column{{Name: "time", Type: expr.Time.Kind.String()}}
	for side := range 2 {
		for _, i := range o.carries(side) {
			c := o.derived.root.cols[o.join.fields[i].col]
			cols = append(cols, state.Column{Name: c.name, Type: c.typ.Kind.String()})
		}
	}
	return cols
}

// joinExchange is the exchange of a join.
func (o *output) joinExchange() *plan.Exchange {
	j := o.join
	e := &plan.Exchange{Name: o.name, FormatKey: value.KeyText, Parallel: o.derived.parallel, Next: func() plan.StageTask { return newStage(o.derived) }}
	if j.timed {
		e.State = &plan.State{Schema: o.schema, TimeSources: o.timeSources}
		e.Operator = func() plan.Operator { return &windowop.Join{Within: j.within, Pairs: j.pairs, Alone: j.alone} }
	}
	return e
}

// joinText writes a join step in one line.
func joinText(st *stepDecl) string {
	j := newJoin(st)
	var on []string
	for _, pair := range j.on {
		on = append(on, pair[0].text+" = "+pair[1].text)
	}
	text := fmt.Sprintf("join %s with %s on %s", j.kind, st.n.get("with").str(), strings.Join(on, ", "))
	if j.timed {
		text += " within " + st.n.get("within").dur.String()
	}
	if j.as != "" {
		text += " as " + j.as
	}
	lates := st.lates()
	if n := lates[0]; n != nil {
		text += " late to " + n.text
	}
	if n := lates[1]; n != nil {
		text += " late of the other to " + n.text
	}
	return text
}
