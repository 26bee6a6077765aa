package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/window"
)

// branch is a stream as it is reached on one way from one source: its steps over that source's columns.
type branch struct {
	stream   *streamDecl
	ops      []op
	leaf     *leaf
	join     *joinSide // instead: the side of a join that its rows go to
	table    *tableEnd // instead: the table whose rows they are
	sink     *sinkEnd  // of a branch that is no stream
	answer   *answerEnd
	children []*branch
}

// op is a checked step of a branch.
type op struct {
	kind  string // filter, set, flat_map, lookup, peek
	label string
	scope *expr.Scope // of the expressions
	exprs []exprDecl
	into  []int  // set: the columns; flat_map: the one column, in next
	next  *frame // flat_map
	table *static
	reads []gatherColumn // lookup
	inner bool           // lookup: rows without a match are dropped
	frame *frame         // whose rows come in
	peek  *peekEnd
}

// gatherColumn is a column of a static table and the frame's column that takes it.
type gatherColumn struct{ from, into int }

// leaf is the end of a branch: the aggregate that its rows go to.
type leaf struct {
	out    *output
	frame  *frame
	scope  *expr.Scope
	keys   []int // columns
	aggs   []aggDecl
	label  string
	window string // label of the window step
	// late are the streams that take rows that are late; none: these are turned away.
	late []*branch
}

// output is an aggregate of a stream, the same for all branches that lead to it.
type output struct {
	index   int // in Plan.Exchanges
	stream  *streamDecl
	step    int    // of the stream
	depth   int    // how many aggregates lie before it at most
	name    string // of the exchange
	kept    bool   // it keeps a state
	emits   plan.Emit
	derived *source // what its rows come from, for the steps behind it; nil if there are none
	schema  state.Schema
	groupBy []state.Column // the key without the window
	open    state.Schema   // of what an operator keeps beside it
	window  *windowDecl
	ttl     *expiry   // nil: rows don't expire
	join    *joinDecl // instead of an aggregate
	keys    []expr.Type
	values  []aggValue
	table   []tableColumn // of a table of latest values, instead of values
	looked  bool          // lookups read the state
	sources []*source
	// timeSources are the sources, by index in Plan.Sources, whose event time closes the windows, or makes rows expire.
	timeSources []int
}

// width is how many fields its rows have.
func (o *output) width() int {
	if o.join != nil {
		return len(o.join.fields)
	}
	return o.leads() + len(o.keys) + len(o.values)
}

// column is the column, in the root of its rows, of field k.
func (o *output) column(k int) int {
	if o.join != nil {
		return o.join.fields[k].col
	}
	return k
}

// leads is how many fields tell a row's window.
func (o *output) leads() int {
	if o.window == nil {
		return 0
	}
	return 2
}

// roots are the sources whose event times are those of its rows.
func (o *output) roots() []*source {
	var all []*source
	for _, s := range o.sources {
		from := []*source{s}
		if s.out != nil {
			from = s.out.roots()
		}
		for _, f := range from {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}

// aggValue is one aggregate of an output.
type aggValue struct {
	name  string
	fn    string
	param string   // the constant argument
	arg   vec.Kind // what it accumulates; Null for count
	by    vec.Kind // what decides about it; Null where nothing does
	typ   expr.Type
}

// weighted tells of a `top` by weights.
func (v *aggValue) weighted() bool { return v.fn == "top" && v.by != vec.Null }

// column describes the aggregate in a schema.
func (v *aggValue) column() state.Column {
	c := state.Column{Name: v.name, Type: v.typ.Kind.String(), Agg: v.fn}
	if v.param != "" {
		c.Agg += "(" + v.param + ")"
	}
	return c
}

// needsNumbers tells of an aggregate that takes numbers only: where their type isn't declared, each is looked at.
func (v *aggValue) needsNumbers() bool {
	switch v.fn {
	case "sum", "avg", "quantile", "variance", "stddev":
		return v.arg == vec.Any
	}
	return false
}

// windowDecl is a checked window step.
type windowDecl struct {
	shape     window.Windows
	time      *state.Window // of tumbling and sliding windows; nil for the others
	retention int64
	late      string // the stream of late rows; empty: none
}

// events tells of windows that go by event time.
func (w *windowDecl) events() bool { return !w.shape.BatchTime() && w.shape.Kind() != window.OfCount }

// keyed tells of windows whose borders lie where the rows of a group put them.
func (w *windowDecl) keyed() bool { return w != nil && w.time == nil }

// static is a static table with the columns that lookups ask for.
type static struct {
	decl  *staticDecl
	index int
	cols  []*column
	open  bool
	key   int
}

func newStatic(d *staticDecl, index int) *static {
	s := &static{decl: d, index: index, key: -1}
	for _, t := range d.decode.types {
		s.cols[s.column(t.name)].check = true
	}
	for _, h := range d.header {
		if h != "" {
			s.column(h)
		}
	}
	s.open = d.header == nil
	return s
}

// column returns the column of a field.
func (s *static) column(name string) int {
	for i, c := range s.cols {
		if c.name == name {
			return i
		}
	}
	t := expr.Any
	if k, ok := s.decl.decode.typeOf(name); ok {
		t = expr.Type{Type: vec.Type{Kind: k}, Nullable: true}
	} else if s.decl.decode.kind == "csv" {
		t = expr.String
	}
	s.cols = append(s.cols, &column{name: name, typ: t, origin: fromDocument})
	return len(s.cols) - 1
}

func (s *static) names() []string {
	var all []string
	for _, c := range s.cols {
		all = append(all, c.name)
	}
	return all
}

// checker types a model: from each source through all streams that begin there.
type checker struct {
	*reporter
	m       *model
	sources []*source
	statics []*static
	outputs []*output
	queries []*queryCheck
	query   *queryCheck  // that is checked; nil: the pipeline is
	outer   *checker     // of a query: the pipeline's, whose states and tables its lookups see
	targets []targetDecl // as model.sinks
	dead    targetDecl   // of dead letters, if there are any
	peeked  []*peekEnd
	dotted  []string // all names with a dot that any expression uses
	// mirrored is what sources write besides the store, and which source it is.
	mirrored map[string]string
}

func (c *checker) check() {
	for _, s := range c.m.streams {
		for _, st := range s.steps {
			for _, x := range slices.Concat(st.exprs, st.filter) {
				c.noteDotted(x.e)
			}
			for _, a := range st.aggs {
				for _, x := range a.call.Args {
					c.noteDotted(x)
				}
			}
		}
		c.outputs = append(c.outputs, c.outputsOf(s)...)
	}
	for _, s := range c.m.sinks {
		if s.key != nil {
			c.noteDotted(s.key.e)
		}
		for _, f := range s.fields {
			if strings.Contains(f.text, ".") && !slices.Contains(c.dotted, f.text) {
				c.dotted = append(c.dotted, f.text)
			}
		}
	}
	c.findLookups()
	// An exchange is fed by those before it.
	slices.SortStableFunc(c.outputs, func(a, b *output) int { return a.depth - b.depth })
	for i, o := range c.outputs {
		o.index = i
	}
	for i, d := range c.m.statics {
		c.header(&d.decode, d.header)
		s := newStatic(d, i)
		if d.key != nil && d.decode.kind != "" {
			c.staticKey(s)
		}
		c.statics = append(c.statics, s)
	}
	reached := map[string]bool{}
	for _, d := range c.m.sources {
		c.header(&d.decode, d.header)
		s := newSource(d)
		c.sources = append(c.sources, s)
		c.eventTime(s)
		root := newEnv(s)
		s.branches = c.consumers(d.name, root, reached)
		if len(s.branches) == 0 && len(c.list) == 0 {
			c.add(d.at, "", "no stream begins at source %s", d.name)
		}
	}
	for _, o := range c.outputs {
		if o.derived == nil || o.sources == nil {
			continue
		}
		if o.join != nil {
			c.joined(o)
		} else {
			o.derived.results(o)
		}
		at, way := newEnv(o.derived), map[string]bool{o.stream.name: true}
		if o.kept {
			o.derived.branches = c.consumers(o.stream.name, at, way)
		} else {
			o.derived.branches = []*branch{c.branch(o.stream, at, way, o.step+1)}
		}
	}
	for _, s := range c.m.streams {
		if !s.query && !s.aggregates() && !c.used(s.name) && len(c.list) == 0 {
			c.add(s.at, "end it in an aggregate, or name it under sinks", "stream %s ends in no state, and no other stream or sink begins at it", s.name)
		}
	}
}

// findLookups tells lookups and states of each other.
func (c *checker) findLookups() {
	for _, o := range c.outputs {
		if o.join == nil || o.join.lookup == nil {
			continue
		}
		name := o.stream.steps[o.step].n.get("state").text
		keepers := c.outputs
		if c.outer != nil {
			keepers = c.outer.outputs
		}
		for _, of := range keepers {
			if of.kept && of.stream.state == name {
				o.join.lookup.of = of
				of.looked = of.looked || c.outer == nil // a query reads what has committed
			}
		}
	}
}

// states lists the states that streams keep and a lookup may name.
func (m *model) states() []string {
	var all []string
	for _, s := range m.streams {
		if s.aggregates() {
			all = append(all, s.state)
		}
	}
	if m.outer != nil {
		all = append(all, m.outer.states()...)
	}
	return all
}

// outputsOf lists the aggregates of a stream.
func (c *checker) outputsOf(s *streamDecl) []*output {
	var all []*output
	way := map[string]bool{}
	depth := c.depth(s, way)
	for i, st := range s.steps {
		o := &output{stream: s, step: i, depth: depth, name: s.name}
		switch st.op {
		case "batch_aggregate", "distinct":
			o.name = s.name + "." + strconv.Itoa(i+1)
			o.derived = &source{root: &frame{byName: map[string]int{}}, time: -1, out: o}
			depth++
		case "join":
			o.name = s.name + "." + strconv.Itoa(i+1)
			o.derived = &source{root: &frame{byName: map[string]int{}}, time: -1, out: o}
			o.join = newJoin(st)
			depth = max(depth, c.depthOf(st.n.get("with").str(), way))
			o.depth = depth
			depth++
		case "lookup":
			of := c.m.looksIn(st)
			if of == nil {
				continue
			}
			o.name = s.name + "." + strconv.Itoa(i+1)
			o.derived = &source{root: &frame{byName: map[string]int{}}, time: -1, out: o}
			o.join = newJoin(st)
			o.join.kind, o.join.lookup = "lookup", &lookupDecl{inner: st.n.get("kind").str() == "inner"}
			o.join.alone = [2]bool{!o.join.lookup.inner, false}
			depth = max(depth, c.depthOf(of.name, way))
			o.depth = depth
			depth++
		case "sort", "limit", "repartition":
			o.name = s.name + "." + strconv.Itoa(i+1)
			o.derived = &source{root: &frame{byName: map[string]int{}}, time: -1, out: o}
			o.join = &joinDecl{relay: newRelay(st)}
			depth++
		case "latest":
			o.kept = true
		case "aggregate":
			o.kept = true
			if c.used(s.name) {
				o.derived = &source{root: &frame{byName: map[string]int{}}, time: -1, out: o}
				o.emits = plan.EmitUpdates
			}
		default:
			continue
		}
		all = append(all, o)
	}
	return all
}

// depth is how many aggregates and joins the rows that a stream takes have passed at most.
func (c *checker) depth(s *streamDecl, way map[string]bool) int {
	most := 0
	way[s.name] = true
	for _, f := range s.from {
		most = max(most, c.depthOf(f.text, way))
	}
	delete(way, s.name)
	return most
}

// depthOf is how many the rows of what a name stands for have passed.
func (c *checker) depthOf(name string, way map[string]bool) int {
	up := c.m.before(name)
	if up == nil || way[up.name] {
		return 0
	}
	d := c.depth(up, way)
	way[up.name] = true
	for _, st := range up.steps {
		switch st.op {
		case "batch_aggregate", "distinct", "aggregate", "latest", "sort", "limit", "repartition":
			d++
		case "join":
			d = max(d, c.depthOf(st.n.get("with").str(), way)) + 1
		case "lookup":
			if of := c.m.looksIn(st); of != nil {
				d = max(d, c.depthOf(of.name, way)) + 1
			}
		}
	}
	delete(way, up.name)
	return d
}

// output returns the aggregate that a step of a stream is.
func (c *checker) output(s *streamDecl, step int) *output {
	for _, o := range c.outputs {
		if o.stream == s && o.step == step {
			return o
		}
	}
	panic("spec: stream " + s.name + " has no such aggregate")
}

func (c *checker) used(stream string) bool {
	for _, s := range c.m.streams {
		for _, f := range s.references() {
			if f.text == stream {
				return true
			}
		}
	}
	return slices.ContainsFunc(c.m.sinks, func(s *sinkDecl) bool {
		return slices.ContainsFunc(s.from, func(f *node) bool { return f.text == stream })
	})
}

func (c *checker) noteDotted(x *expr.Expr) {
	for _, name := range x.Fields() {
		if strings.Contains(name, ".") && !slices.Contains(c.dotted, name) {
			c.dotted = append(c.dotted, name)
		}
	}
}

// header holds declared types against the columns that a CSV file has.
func (c *checker) header(d *decodeDecl, header []string) {
	if header == nil {
		return
	}
	for _, t := range d.types {
		if !slices.Contains(header, t.name) {
			c.add(t.at, nearest(t.name, header), "the file has no column %s", t.name)
		}
	}
}

func nearest(name string, candidates []string) string {
	if near, ok := names.Nearest(name, candidates); ok {
		return "did you mean " + near + "?"
	}
	return ""
}

func (c *checker) staticKey(s *static) {
	name := s.decl.key.text
	if !s.open && !slices.Contains(s.names(), name) {
		c.add(s.decl.key.at, nearest(name, s.names()), "the table has no column %s", name)
		return
	}
	s.key = s.column(name)
	s.cols[s.key].used = true
}

// eventTime finds the column of a source's event time.
func (c *checker) eventTime(s *source) {
	f := s.decl.timeField
	if f == nil {
		return
	}
	field, ok := newEnv(s).lookup(f.text)
	switch {
	case !ok:
		c.add(f.at, nearest(f.text, s.fieldNames()), "source %s has no field %s", s.decl.name, f.text)
	case field.Type.Kind != vec.Time:
		hint := "declare it: types: {" + f.text + ": timestamp}"
		if isMeta(f.text) {
			hint = ""
		}
		c.add(f.at, hint, "event time needs a timestamp, %s is %s", f.text, typeText(field.Type))
	default:
		s.time = field.Index
	}
}

func (s *source) fieldNames() []string {
	var all []string
	for _, c := range s.root.cols {
		all = append(all, c.name)
	}
	return all
}

// typeText writes a type for people.
func typeText(t expr.Type) string {
	switch t.Kind {
	case vec.Any:
		return "of no declared type"
	case vec.Null:
		return "always null"
	}
	return t.Article()
}

// consumers checks every stream that begins at a source or stream, with the environment that it finds there.
func (c *checker) consumers(name string, at *env, way map[string]bool) []*branch {
	var all []*branch
	for _, s := range c.m.streams {
		if way[s.name] { // a cycle, reported already
			continue
		}
		for _, f := range s.from {
			if f.text != name {
				continue
			}
			way[s.name] = true
			all = append(all, c.branch(s, at.clone(), way, 0))
			delete(way, s.name)
			break
		}
	}
	for i, s := range c.m.sinks {
		if slices.ContainsFunc(s.from, func(f *node) bool { return f.text == name }) {
			all = append(all, c.sinkBranch(i, s, at.clone()))
		}
	}
	return append(all, c.joining(name, at, way)...)
}

// branch checks the steps of a stream from one on, up to an aggregate.
func (c *checker) branch(s *streamDecl, e *env, way map[string]bool, from int) *branch {
	b := &branch{stream: s}
	if p := &e.src.parallel; s.parallel > 0 && (*p == 0 || s.parallel < *p) {
		*p = s.parallel
	}
	l := leaf{}
	var window *windowDecl
	for i, st := range s.steps[from:] {
		c.peeks(b, s, from+i, e)
		switch st.op {
		case "filter":
			c.filter(b, st, e)
		case "set":
			c.set(b, st, e)
		case "answer":
			c.set(b, st, e)
			b.answer = c.answerEnd(e)
			return b
		case "keep":
			c.keep(st, e)
		case "drop":
			c.drop(st, e)
		case "flat_map":
			c.flatMap(b, st, e)
		case "lookup":
			if c.m.looksIn(st) == nil {
				c.lookup(b, st, e)
				continue
			}
			if as := st.n.get("as"); as == nil || isMeta(as.text) {
				if as != nil {
					c.add(as.at, "", "%s is a property of the record and can't be set", as.text)
				}
				c.assume(as, e)
				continue
			}
			if window != nil {
				c.add(st.at, "move the window behind it", "between window and its aggregate there can be no lookup in a state that changes")
			}
			b.join = c.lookupSide(b, c.output(s, from+i), st, e)
			return b
		case "sort", "limit", "repartition":
			b.join = c.relaySide(c.output(s, from+i), st, e)
			return b
		case "latest":
			b.table = c.tableEnd(c.output(s, from+i), st, e, len(s.from) == 1 && c.m.source(s.from[0].text) != nil)
			return b
		case "window":
			window = c.window(st, e)
			l.window = st.label
		case "group_by":
			l.keys = c.groupBy(st, e)
		case "join":
			b.join = c.joinSide(c.output(s, from+i), 0, st, e, way)
			return b
		case "aggregate", "batch_aggregate", "distinct":
			if st.op == "distinct" {
				l.keys = c.groupBy(st, e)
			}
			l.frame, l.label, l.out = e.frame, st.label, c.output(s, from+i)
			if window != nil && window.late != "" {
				l.late = c.consumers(window.late, e.clone(), way)
			}
			c.aggregate(&l, st, e, window)
			b.leaf = &l
			return b
		}
	}
	c.peeks(b, s, len(s.steps), e)
	b.children = c.consumers(s.name, e, way)
	return b
}

// typed checks an expression and marks what it reads; ok is false if it is wrong.
func (c *checker) typed(x exprDecl, e *env) (t expr.Type, ok bool) {
	t, errs := x.e.Check(e.scope)
	if len(errs) > 0 {
		c.exprError(x.n, errs)
		return t, false
	}
	e.reads(x.e)
	return t, true
}

func expressions(list []exprDecl) []*expr.Expr {
	var all []*expr.Expr
	for _, x := range list {
		all = append(all, x.e)
	}
	return all
}

func (c *checker) filter(b *branch, st *stepDecl, e *env) {
	for _, x := range st.exprs {
		t, ok := c.typed(x, e)
		switch {
		case !ok:
		case t.Kind != vec.Bool && t.Kind != vec.Any && t.Kind != vec.Null:
			c.add(x.n.place(0), "", "filter needs a condition, this is %s", typeText(t))
		default:
			b.ops = append(b.ops, op{kind: st.op, label: st.label, scope: e.freeze(x.e), exprs: []exprDecl{x}, frame: e.frame})
		}
	}
}

func (c *checker) set(b *branch, st *stepDecl, e *env) {
	o := op{kind: "set", label: st.label, frame: e.frame}
	types := make([]expr.Type, len(st.exprs))
	for i, x := range st.exprs {
		t, ok := c.typed(x, e)
		if !ok {
			t = expr.Any // so that what uses the field isn't reported as well
		}
		if t.Kind == vec.Null {
			t = expr.Any
		}
		if isMeta(x.name) {
			c.add(x.n.keyAt, "", "%s is a property of the record and can't be set", x.name)
		}
		types[i] = t
		o.exprs = append(o.exprs, x)
	}
	o.scope = e.freeze(expressions(o.exprs)...)
	for i, x := range o.exprs {
		o.into = append(o.into, e.set(x.name, types[i]))
	}
	b.ops = append(b.ops, o)
}

// named resolves the fields that a step lists; records are passed over.
func (c *checker) named(st *stepDecl, e *env) []string {
	var all []string
	for _, n := range st.n.list {
		if slices.Contains(all, n.text) {
			c.add(n.at, "", "%s is listed twice", n.text)
			continue
		}
		if _, ok := e.scope.Lookup(n.text); !ok && !e.scope.IsRecord(n.text) {
			c.add(n.at, nearest(n.text, firstNames(e.scope)), "there is no field %s here", n.text)
			continue
		}
		all = append(all, n.text)
	}
	return all
}

func firstNames(s *expr.Scope) []string {
	var all []string
	for _, n := range s.Names() {
		first, _, _ := strings.Cut(n, ".")
		if !isMeta(n) && !slices.Contains(all, first) {
			all = append(all, first)
		}
	}
	return all
}

func (c *checker) keep(st *stepDecl, e *env) { e.keep(c.named(st, e)) }

func (c *checker) drop(st *stepDecl, e *env) {
	for _, name := range c.named(st, e) {
		if isMeta(name) {
			continue
		}
		e.drop(name)
	}
}

func (c *checker) flatMap(b *branch, st *stepDecl, e *env) {
	if len(st.exprs) == 0 {
		return
	}
	x := st.exprs[0]
	o := op{kind: st.op, label: st.label, exprs: []exprDecl{x}, frame: e.frame}
	t, ok := c.typed(x, e)
	elem := expr.Any
	switch {
	case !ok:
	case t.Kind == vec.List:
		if t.Elem != vec.Null {
			elem = expr.Type{Type: vec.Type{Kind: t.Elem}, Nullable: true}
		}
	case t.Kind != vec.Any && t.Kind != vec.Null:
		c.add(x.n.place(0), "split(s, \" \") makes a list of a string", "flat_map needs a list, this is %s", typeText(t))
	}
	if isMeta(x.name) {
		c.add(x.n.keyAt, "", "%s is a property of the record and can't be set", x.name)
	}
	o.scope = e.freeze(x.e)
	o.next = e.expand()
	o.into = []int{e.set(x.name, elem)}
	b.ops = append(b.ops, o)
}

func (c *checker) lookup(b *branch, st *stepDecl, e *env) {
	ref, as := st.n.get("state"), st.n.get("as")
	if ref == nil || as == nil {
		c.assume(as, e)
		return
	}
	var t *static
	all := c.m.states()
	for _, s := range c.statics {
		all = append(all, s.decl.name)
		if s.decl.name == ref.text {
			t = s
		}
	}
	if t == nil {
		c.add(ref.at, nearest(ref.text, all), "there is no state %s", ref.text)
		c.assume(as, e)
		return
	}
	if n := len(st.exprs); n != 1 {
		at := st.at
		if k := st.n.get("key"); k != nil {
			at = k.keyAt
		}
		c.add(at, "as in key: "+t.decl.key.str(), "the key of a static table is one value, that of the lookup has length %d", n)
		c.assume(as, e)
		return
	}
	x := st.exprs[0]
	kt, ok := c.typed(x, e)
	if ok && t.key >= 0 {
		want := t.cols[t.key].typ
		if kt.Kind != want.Kind && kt.Kind != vec.Any && kt.Kind != vec.Null && want.Kind != vec.Any {
			c.add(x.n.place(0), "", "the key of %s is %s, this is %s", ref.text, typeText(want), typeText(kt))
		}
	}
	if isMeta(as.text) {
		c.add(as.at, "", "%s is a property of the record and can't be set", as.text)
		return
	}
	if t.open {
		for _, d := range c.dotted {
			if f, ok := strings.CutPrefix(d, as.text+"."); ok && !strings.Contains(f, ".") {
				t.column(f)
			}
		}
	}
	o := op{kind: st.op, label: st.label, scope: e.freeze(x.e), exprs: []exprDecl{x}, frame: e.frame, table: t, inner: st.n.get("kind").str() == "inner"}
	e.drop(as.text)
	for i, col := range t.cols {
		ty := col.typ
		ty.Nullable = true
		into := e.set(as.text+"."+col.name, ty)
		e.frame.cols[into].origin = fromTable
		o.reads = append(o.reads, gatherColumn{from: i, into: into})
	}
	b.ops = append(b.ops, o)
}

// assume declares whatever is used of a lookup that is wrong, so that this isn't reported as well.
func (c *checker) assume(as *node, e *env) {
	if as == nil {
		return
	}
	for _, d := range c.dotted {
		if strings.HasPrefix(d, as.text+".") {
			e.set(d, expr.Any)
		}
	}
}
