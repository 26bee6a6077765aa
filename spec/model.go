package spec

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/vec"
)

// model is the file's content with names resolved and expressions parsed; types are not known yet.
type model struct {
	name        string
	onBad       plan.OnBad
	limits      plan.Limits
	ledger      plan.Ledger
	memory      int64
	savepoints  plan.Savepoints
	connections *node
	keeper      *node
	sources     []*sourceDecl
	statics     []*staticDecl
	streams     []*streamDecl
	sinks       []*sinkDecl
	dead        *deadDecl // nil: there are no dead letters
	queries     []*queryDecl
	tests       []*Test
	outer       *model // of a query: the pipeline's
	notes       []string
}

// decodeDecl says how a record's value is read.
type decodeDecl struct {
	at    pos
	kind  string // json, csv, string, bytes, avro, protobuf
	nulls []string
	types []typeDecl
	// Of avro and protobuf: what stands in the file, nil for nothing, and what became of it.
	settings *node
	schema   *schemaDecl
}

// typeDecl is one entry of `types`.
type typeDecl struct {
	name string
	at   pos
	kind vec.Kind
}

// plain tells of records whose value is a single field, for which null is a value like others.
func (d *decodeDecl) plain() bool { return d.kind == "string" || d.kind == "bytes" }

func (d *decodeDecl) typeOf(name string) (vec.Kind, bool) {
	for _, t := range d.types {
		if t.name == name {
			return t.kind, true
		}
	}
	return d.schemaType(name)
}

// sourceDecl is one of `sources`.
type sourceDecl struct {
	name      string
	at        pos
	connector string
	settings  *node
	decode    decodeDecl
	onBad     plan.OnBad
	time      *plan.EventTime
	timeField *node
	// header holds the columns of a CSV file that could be looked at.
	header []string
	load   bool // the other sources wait until it has been read
	// arguments tells of those of a query: a row has them, and nothing else.
	arguments bool
}

// staticDecl is a static table of `states`.
type staticDecl struct {
	name   string
	at     pos
	paths  *node
	decode decodeDecl
	key    *node
	header []string
}

// streamDecl is one of `streams`.
type streamDecl struct {
	name  string
	at    pos
	from  []*node
	steps []*stepDecl
	peeks []*peekDecl
	state string // of its aggregate; empty without one
	table bool   // it is a table of latest values
	// parallel bounds how many of the tasks that its steps run in work at once; 0: nothing does.
	parallel int
	query    bool // it is the steps of a query
}

// stepDecl is one step. Which fields are in use depends on op.
type stepDecl struct {
	op    string
	at    pos // of the operator's name
	label string
	n     *node
	exprs []exprDecl
	aggs  []aggDecl
	state *node
	emit  *node
	// ttl and ttlBy say when the rows of its state expire; nil: they don't.
	ttl, ttlBy *node
	// filter holds the condition of a table's removals; empty: none.
	filter []exprDecl
}

// exprDecl is an expression and the field that takes its value.
type exprDecl struct {
	name string
	n    *node
	e    *expr.Expr
}

// aggDecl is one aggregate of an aggregate step.
type aggDecl struct {
	name string
	n    *node
	call *expr.Aggregate
}

// aggregates tells whether the stream ends in a state.
func (s *streamDecl) aggregates() bool { return s.state != "" }

func (m *model) source(name string) *sourceDecl {
	for _, s := range m.sources {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (m *model) stream(name string) *streamDecl {
	for _, s := range m.streams {
		if s.name == name {
			return s
		}
	}
	return nil
}

// lates lists the names that a step gives to streams of late rows: of a join first this stream's, then the other's; nil where it gives none.
func (st *stepDecl) lates() []*node {
	switch st.op {
	case "window":
		return []*node{st.n.get("late")}
	case "join":
		return []*node{st.n.get("late"), st.n.get("late_with")}
	}
	return nil
}

// late returns the stream with a step whose late rows are a stream of that name, the step, and the side of it that they come to.
func (m *model) late(name string) (s *streamDecl, step, side int) {
	for _, s := range m.streams {
		for i, st := range s.steps {
			for side, n := range st.lates() {
				if n != nil && n.text == name {
					return s, i, side
				}
			}
		}
	}
	return nil, 0, 0
}

// before returns the stream that a name stands for, as a whole or for its late rows; nil for a source.
func (m *model) before(name string) *streamDecl {
	if s := m.stream(name); s != nil {
		return s
	}
	s, _, _ := m.late(name)
	return s
}

func (m *model) static(name string) *staticDecl {
	for _, s := range m.statics {
		if s.name == name {
			return s
		}
	}
	if m.outer != nil {
		return m.outer.static(name)
	}
	return nil
}

// exprError reports the mistakes that package expr found in n's text.
func (r *reporter) exprError(n *node, errs expr.Errors) {
	for _, e := range errs {
		r.add(n.place(e.Offset), e.Hint, "%s", e.Msg)
	}
}

// modeler builds a model. All it finds wrong is reported; what can't be used is left out.
type modeler struct {
	*reporter
	m *model
	// broken are sources and streams that are there but couldn't be used.
	broken []string
	// functions are those of Go that expressions may call.
	functions *expr.Functions
}

func (b *modeler) build(root *node) *model {
	m := &model{name: root.get("pipeline").str(), connections: root.get("connections"), keeper: root.get("zookeeper")}
	b.m = m
	if n := root.get("pipeline"); names.Reserved(m.name) {
		b.add(n.at, "", "a directory of that name holds the pipelines' savepoints")
	}
	m.onBad = onBadOf(root.get("on_bad_record"), plan.Stop)
	m.limits = b.limits(root.get("batch"))
	m.ledger = ledgerOf(root.get("ledger"))
	if n := root.get("memory_limit"); n != nil {
		m.memory = n.num
	}
	m.savepoints = savepointsOf(root.get("savepoints"))
	for _, section := range []string{"sources", "streams"} {
		if n := root.get(section); n != nil {
			b.broken = append(b.broken, n.failed...)
		}
	}
	if n := root.get("sources"); n != nil {
		for _, name := range n.keys {
			m.sources = append(m.sources, b.source(name, n.values[name]))
		}
	}
	if n := root.get("states"); n != nil {
		for _, name := range n.keys {
			if s := b.static(name, n.values[name]); s != nil {
				m.statics = append(m.statics, s)
			}
			if op, settings := n.values[name].operator(); op == "latest" {
				m.streams = append(m.streams, b.latest(name, n.values[name], settings))
			}
		}
	}
	if n := root.get("streams"); n != nil {
		for _, name := range n.keys {
			if src := m.source(name); src != nil {
				b.add(n.values[name].keyAt, "", "stream %s has the name of a source", name)
			}
			if t := m.stream(name); t != nil {
				b.add(n.values[name].keyAt, "", "stream %s has the name of a table (line %d)", name, t.at.line)
				continue
			}
			m.streams = append(m.streams, b.stream(name, n.values[name]))
		}
	}
	b.queries(root.get("queries"))
	if n := root.get("sinks"); n != nil {
		for _, name := range n.keys {
			m.sinks = append(m.sinks, b.sink(name, n.values[name]))
		}
	}
	b.resolve()
	b.deadLetters(root.get("dead_letters"), root.has("dead_letters"))
	b.checkStates()
	m.tests = b.tests(root.get("tests"))
	// The order of the file's sections decides nothing: a plan is in the order of names.
	slices.SortFunc(m.sources, func(a, b *sourceDecl) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(m.statics, func(a, b *staticDecl) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(m.streams, func(a, b *streamDecl) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(m.sinks, func(a, b *sinkDecl) int { return strings.Compare(a.name, b.name) })
	return m
}

func onBadOf(n *node, def plan.OnBad) plan.OnBad {
	switch n.str() {
	case "skip":
		return plan.Skip
	case "dead_letter":
		return plan.DeadLetter
	case "stop":
		return plan.Stop
	}
	return def
}

func (b *modeler) limits(n *node) plan.Limits {
	num := func(name string) int64 {
		if c := n.get(name); c != nil {
			return c.num
		}
		return 0
	}
	dur := func(n *node, name string) time.Duration {
		if c := n.get(name); c != nil {
			return c.dur
		}
		return 0
	}
	r := n.get("retries")
	l := plan.Limits{
		MaxRecords: num("max_records"), MaxBytes: num("max_bytes"), MaxPending: int(num("max_pending")),
		Interval: dur(n, "interval"), Timeout: dur(n, "timeout"),
		Retry: plan.Retry{Min: dur(r, "min"), Max: dur(r, "max"), For: dur(r, "for")},
	}
	if a := r.get("attempts"); a != nil {
		l.Retry.Attempts = int(a.num)
	}
	if l.Retry.Max != 0 && l.Retry.Min > l.Retry.Max {
		b.add(r.get("min").at, "", "retries: min %s is above max %s", l.Retry.Min, l.Retry.Max)
	}
	return l
}

func (b *modeler) source(name string, n *node) *sourceDecl {
	s := &sourceDecl{name: name, at: n.keyAt, onBad: onBadOf(n.get("on_bad_record"), b.m.onBad)}
	s.connector, s.settings = n.operator()
	s.load = n.get("load") != nil
	s.decode = b.decode(n, "source "+name)
	d := n.get("decode")
	switch {
	case d != nil && s.decode.kind == "csv" && s.connector != "file" && s.connector != "":
		b.add(d.at, "decode: json", "csv needs a file with a header line; %s records have none", s.connector)
	case d == nil && s.connector == "generate":
		s.decode.kind = "json"
		if s.settings.get("kind").str() == "words" {
			s.decode.kind = "string"
		}
	case d == nil && s.connector != "" && !n.has("decode"):
		b.add(n.keyAt, "", "source %s needs decode: json, csv, avro, protobuf, string or bytes", name)
	}
	if t := n.get("time"); t != nil && t.get("field") != nil {
		s.timeField = t.get("field")
		s.time = &plan.EventTime{}
		for _, o := range []struct {
			name string
			to   *time.Duration
		}{{"lateness", &s.time.Lateness}, {"idle", &s.time.Idle}, {"future", &s.time.Future}} {
			if v := t.get(o.name); v != nil {
				*o.to = v.dur
			}
		}
	}
	return s
}

// decode reads the settings decode and types of a source or a static table.
func (b *modeler) decode(n *node, what string) decodeDecl {
	var d decodeDecl
	if v := n.get("decode"); v != nil {
		d.at = v.at
		switch op, settings := v.operator(); {
		case op == "csv":
			d.kind, d.nulls = "csv", settings.get("null_values").texts()
		case settings != nil:
			d.kind, d.settings = op, settings
		default:
			d.kind = v.text
		}
	}
	types := n.get("types")
	if types == nil {
		return d
	}
	if d.kind == "string" || d.kind == "bytes" {
		b.add(types.keyAt, "", "%s: types are for json and csv; decode: %s gives the field value", what, d.kind)
		return d
	}
	for _, name := range types.keys {
		t := types.values[name]
		if strings.HasPrefix(name, "_") && isMeta(name) {
			b.add(t.keyAt, "", "%s is a record's own property and has a type", name)
			continue
		}
		d.types = append(d.types, typeDecl{name: name, at: t.keyAt, kind: kindByName[t.text]})
	}
	return d
}

// kindByName maps typeNames to kinds of columns.
var kindByName = map[string]vec.Kind{
	"string": vec.String, "int": vec.Int, "float": vec.Float, "bool": vec.Bool, "decimal": vec.Decimal,
	"timestamp": vec.Time, "bytes": vec.Bytes,
}

func (b *modeler) static(name string, n *node) *staticDecl {
	op, settings := n.operator()
	if op != "static" {
		return nil
	}
	s := &staticDecl{name: name, at: n.keyAt, key: settings.get("key"), paths: settings.get("file").get("paths")}
	s.decode = b.decode(settings, "state "+name)
	if !settings.has("decode") {
		b.add(settings.keyAt, "", "state %s needs decode: csv or json", name)
	}
	return s
}

func (b *modeler) stream(name string, n *node) *streamDecl {
	s := &streamDecl{name: name, at: n.keyAt}
	if f := n.get("from"); f != nil {
		s.from = f.list
	}
	if p := n.get("parallelism"); p != nil {
		s.parallel = int(min(p.num, math.MaxInt32))
	}
	for i, f := range s.from {
		if slices.ContainsFunc(s.from[:i], func(g *node) bool { return g.text == f.text }) {
			b.add(f.at, "", "%s is listed twice", f.text)
		}
	}
	steps := n.get("steps")
	if steps == nil {
		return s
	}
	lost := 0 // steps that are wrong, and keep their places
	for _, v := range steps.list {
		op, arg := v.operator()
		switch op {
		case "":
			lost++
			continue
		case "peek":
			b.peek(s, arg)
			continue
		}
		n := len(s.steps) + lost + 1
		st := &stepDecl{op: op, at: arg.keyAt, n: arg, label: stepLabel(name, n, op)}
		switch op {
		case "filter":
			st.exprs = b.exprs(st.exprs, "", arg)
		case "set", "flat_map":
			for _, k := range arg.keys {
				st.exprs = b.exprs(st.exprs, k, arg.values[k])
			}
			if op == "flat_map" && len(arg.keys) > 1 {
				b.add(arg.values[arg.keys[1]].keyAt, "use two flat_map steps for all combinations", "flat_map makes one field")
			}
		case "lookup":
			if k := arg.get("key"); k != nil {
				for _, x := range k.list {
					st.exprs = b.exprs(st.exprs, "key", x)
				}
			}
		case "join":
			b.join(st)
		case "sort", "limit", "repartition":
			b.relay(st)
		case "distinct":
			// It groups, and the rows of the groups are what it is for: how many of each there were has no name.
			st.aggs = []aggDecl{{n: arg, call: &expr.Aggregate{Fn: "count"}}}
		case "aggregate", "batch_aggregate":
			if op == "aggregate" {
				st.state = v.get("state")
				s.state = name
				st.emit = v.get("emit")
				st.ttl, st.ttlBy = v.get("ttl"), v.get("ttl_by")
				if st.state != nil {
					s.state = st.state.text
				}
			}
			for _, k := range arg.keys {
				c := arg.values[k]
				call, err := b.functions.ParseAggregate(c.text)
				if err != nil {
					b.parseError(c, err)
					continue
				}
				st.aggs = append(st.aggs, aggDecl{name: k, n: c, call: call})
			}
		}
		s.steps = append(s.steps, st)
	}
	b.checkOrder(s, lost == 0)
	b.checkPeeks(s)
	return s
}

func (b *modeler) exprs(list []exprDecl, name string, n *node) []exprDecl {
	e, err := b.functions.Parse(n.text)
	if err != nil {
		b.parseError(n, err)
		e = unknown() // so that what uses the field isn't reported as well
	}
	return append(list, exprDecl{name: name, n: n, e: e})
}

// unknown stands for an expression that can't be parsed: any field may take its value.
func unknown() *expr.Expr {
	e, err := expr.Parse("nil")
	if err != nil {
		panic(err)
	}
	return e
}

func (b *modeler) parseError(n *node, err error) {
	errs, ok := errors.AsType[expr.Errors](err)
	if !ok {
		b.add(n.at, "", "%v", err)
		return
	}
	b.exprError(n, errs)
}

// checkOrder holds the steps against the order that the operators need. whole tells that none was left out.
func (b *modeler) checkOrder(s *streamDecl, whole bool) {
	var window, group *stepDecl
	for i, st := range s.steps {
		last := i == len(s.steps)-1
		switch st.op {
		case "window":
			if window != nil {
				b.add(st.at, "", "a second window")
			}
			window = st
		case "group_by":
			if group != nil {
				b.add(st.at, "list all fields in one group_by", "a second group_by")
			}
			group = st
		case "aggregate":
			if !last {
				b.add(s.steps[i+1].at, "", "steps behind an aggregate are not available yet")
				return
			}
		case "join", "sort", "limit", "repartition":
			for _, earlier := range []*stepDecl{window, group} {
				if earlier != nil {
					b.add(st.at, "move the "+earlier.op+" behind it", "between %s and its aggregate there can be no %s", earlier.op, st.op)
					break
				}
			}
		case "batch_aggregate", "distinct":
			if window != nil {
				b.add(window.at, "use aggregate, which keeps a row for each window", "a %s has no windows", st.op)
			}
			if st.op == "distinct" && group != nil {
				b.add(st.at, "list the fields under distinct", "distinct takes no group_by")
			}
			window, group = nil, nil
		default:
			if group != nil {
				b.add(st.at, "move it before the group_by", "between group_by and its aggregate there can be no %s", st.op)
			}
		}
	}
	if !whole || s.aggregates() {
		return
	}
	for _, st := range []*stepDecl{window, group} {
		if st != nil {
			b.add(st.at, "", "%s has no aggregate behind it", st.op)
		}
	}
}

// resolve finds what the streams begin at, and cycles.
func (b *modeler) resolve() {
	var all []string
	for _, s := range b.m.sources {
		all = append(all, s.name)
	}
	for _, s := range b.m.streams {
		all = append(all, s.name)
	}
	for _, s := range b.m.streams {
		all = append(all, b.lateNames(s)...)
	}
	known := func(from []*node) {
		for _, f := range from {
			up := b.m.before(f.text)
			if up != nil && up.table && b.m.source(f.text) == nil {
				b.add(f.at, "look rows up in it, or begin at "+up.from[0].text, "%s is a table", f.text)
				continue
			}
			if b.m.source(f.text) != nil || slices.Contains(b.broken, f.text) || up != nil {
				continue
			}
			hint := ""
			if near, ok := names.Nearest(f.text, all); ok {
				hint = "did you mean " + near + "?"
			}
			b.add(f.at, hint, "there is no source or stream %s", f.text)
		}
	}
	for _, s := range b.m.streams {
		known(s.references())
	}
	for _, s := range b.m.sinks {
		known(s.from)
	}
	state := map[string]int{} // 1: on the way, 2: done
	var walk func(s *streamDecl, path []string) bool
	walk = func(s *streamDecl, path []string) bool {
		path = append(path, s.name)
		state[s.name] = 1
		defer func() { state[s.name] = 2 }()
		for _, d := range b.m.dependencies(s) {
			up, f := d.on, d.n
			if state[up.name] == 2 {
				continue
			}
			if state[up.name] == 1 {
				i := slices.Index(path, up.name)
				b.add(f.at, "", "a cycle: %s", strings.Join(append(slices.Clone(path[i:]), up.name), " from "))
				continue
			}
			walk(up, path)
		}
		return true
	}
	for _, s := range b.m.streams {
		if state[s.name] == 0 {
			walk(s, nil)
		}
	}
}

// lateNames lists the streams of late rows that a stream makes.
func (b *modeler) lateNames(s *streamDecl) []string {
	var names []string
	for i, st := range s.steps {
		for side, n := range st.lates() {
			if n == nil {
				continue
			}
			begins := func(f *node) bool { return f.text == n.text }
			other, at, of := b.m.late(n.text)
			switch {
			case st.op == "join" && st.n.get("within") == nil:
				b.add(n.keyAt, "give the join a within, or leave it out", "nothing is late in a join within a batch")
			case b.m.source(n.text) != nil:
				b.add(n.at, "", "the stream of late rows has the name of source %s", n.text)
			case b.m.stream(n.text) != nil:
				b.add(n.at, "", "the stream of late rows has the name of stream %s", n.text)
			case other != s || at != i || of != side:
				b.add(n.at, "", "two streams of late rows are named %s", n.text)
			case !slices.ContainsFunc(b.m.streams, func(s *streamDecl) bool { return slices.ContainsFunc(s.references(), begins) }) &&
				!slices.ContainsFunc(b.m.sinks, func(s *sinkDecl) bool { return slices.ContainsFunc(s.from, begins) }):
				b.add(n.at, "without "+n.field.name+": they go to _rejected", "no stream begins at %s", n.text)
			}
			names = append(names, n.text)
		}
	}
	return names
}

// checkStates looks at the names of the states.
func (b *modeler) checkStates() {
	owner := map[string]*streamDecl{}
	kept := false
	for _, s := range b.m.streams {
		if !s.aggregates() {
			continue
		}
		kept = true
		last := &stepDecl{}
		if len(s.steps) > 0 {
			last = s.steps[len(s.steps)-1]
		}
		at := s.at
		if last.state != nil {
			at = last.state.at
		}
		if t := b.m.static(s.state); t != nil {
			b.add(at, "", "state %s is a static table (line %d)", s.state, t.at.line)
		}
		if o := owner[s.state]; o != nil {
			b.add(at, "name another one with state:", "state %s is kept by stream %s already", s.state, o.name)
			continue
		}
		owner[s.state] = s
	}
	if !kept && len(b.m.sinks) == 0 && len(b.list) == 0 {
		b.add(pos{}, "end a stream in an aggregate, or add a sink", "no stream keeps a state, and there is no sink: the pipeline would do nothing")
	}
}

func stepLabel(stream string, n int, op string) string {
	return stream + " step " + strconv.Itoa(n) + " (" + op + ")"
}
