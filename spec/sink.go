package spec

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	connect "github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/columnar"
	"github.com/tridentd/tridentd/internal/expr"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/deadletter"
	"github.com/tridentd/tridentd/sink/filesink"
	"github.com/tridentd/tridentd/sink/kafkasink"
)

func sinkField() *field {
	return &field{name: "sink", kind: kindObject, fields: []*field{
		{
			name: "from", kind: kindList, required: true, item: &field{kind: kindName}, example: "from: unpaid",
			doc: "The source or stream whose rows go there. A list merges them.",
		},
		{name: "kafka", kind: kindObject, operator: true, doc: "A topic of a Kafka cluster; each batch is one transaction.", fields: kafkaTarget(
			&field{name: "key", kind: kindExpr, def: "none", example: "key: id", doc: "The records' key, as text; null leaves a record without one. Without keys, the records of a batch go to one partition."},
		)},
		{name: "file", kind: kindObject, operator: true, doc: "Files in a folder: one for each batch, a row to a line.", fields: []*field{
			{name: "dir", kind: kindString, required: true, example: "dir: archive", doc: "The folder; it is made if it isn't there. A relative one is relative to the pipeline's file."},
			{name: "by", kind: kindObject, doc: "Folders below `dir` by a time of the rows, as `day=2026-01-31/hour=07`: a batch has one file in each that it has rows for.", example: "by: {field: at, unit: hour}", fields: []*field{
				{name: "field", kind: kindRef, required: true, doc: "A timestamp. Rows where it is null share a folder."},
				{name: "unit", kind: kindEnum, enum: []string{string(filesink.Day), string(filesink.Hour)}, required: true, doc: "How long the time of a folder is, in UTC."},
			}},
			{name: "compression", kind: kindEnum, enum: []string{"none", "gzip", "zstd", "snappy"}, def: "none, of Parquet snappy", doc: "How files are packed. Only Parquet has snappy."},
			{name: "scale", kind: kindInt, min: 0, def: strconv.Itoa(filesink.DefaultScale), doc: "How many digits behind the point decimals have in Parquet, of 38 in all. One with more is a bad record."},
		}},
		postgresSink(),
		sqliteSink(),
		{
			name: "encode", kind: kindEnum, enum: []string{"json", "csv", "parquet", "avro", "protobuf"}, def: "json",
			doc:    "The form of a record's value. `json`: an object with the row's fields. `csv` and `parquet` are forms of files. `avro`, `protobuf`: a record of a schema, which a file holds; of Kafka only.",
			enumOr: &field{kind: kindObject, fields: encodeFormats()},
		},
		{name: "fields", kind: kindList, item: &field{kind: kindRef}, def: "all that are known", example: "fields: [id, amount]", doc: "The fields to write, in this order. Without it, those that are declared, come of a file's header line, or were made by steps; of JSON documents without declared types they must be named."},
	}}
}

// kafkaTarget are the settings of a topic that is written to, with those that only some know.
func kafkaTarget(more ...*field) []*field {
	fields := append(kafkaConnection(false), &field{name: "topic", kind: kindString, required: true, doc: "The topic. It must exist."})
	return append(append(fields, more...),
		&field{name: "compression", kind: kindEnum, enum: []string{"none", "gzip", "snappy", "lz4", "zstd"}, def: "none", doc: "How records are packed."},
		&field{name: "transaction_timeout", kind: kindDuration, min: 1, def: "60s", doc: "After what the brokers give up a transaction whose producer is gone, and within which a batch must be sent."},
		&field{name: "max_record_bytes", kind: kindSize, min: 1, def: "1,000,012 bytes", doc: "The largest record."},
	)
}

// sinkDecl is one of `sinks`.
type sinkDecl struct {
	name      string
	at        pos
	from      []*node
	connector string
	settings  *node
	key       *exprDecl
	fields    []*node
	table     bool      // of a SQL database, which the target's text describes wholly
	file      *fileDecl // nil: another connector
	encode    encodeDecl
}

// fileDecl is what a sink's files look like.
type fileDecl struct {
	format filesink.Format
	by     *node // the field whose time names the folder; nil: no folders
	unit   filesink.Unit
	first  string // where the rows come from that gave the format its columns
}

func (b *modeler) file(s *sinkDecl, form *node) *fileDecl {
	n := s.settings
	d := &fileDecl{format: filesink.Format{Form: filesink.FormJSON, Compression: n.get("compression").str()}}
	if text := form.str(); text == "csv" || text == "parquet" {
		d.format.Form = filesink.Form(text)
	}
	if by := n.get("by"); by != nil {
		d.by, d.unit = by.get("field"), filesink.Unit(by.get("unit").str())
	}
	if c := n.get("compression"); c.str() == "snappy" && d.format.Form != filesink.FormParquet {
		b.add(c.at, "compression: zstd", "only Parquet has snappy")
	}
	if sc := n.get("scale"); sc != nil {
		switch {
		case d.format.Form != filesink.FormParquet:
			b.add(sc.keyAt, "encode: parquet", "scale is that of Parquet's decimals")
		case sc.num > filesink.MaxScale:
			b.add(sc.at, "", "scale is above %d", filesink.MaxScale)
		}
	}
	return d
}

func (d *fileDecl) scale(n *node) int {
	if sc := n.get("scale"); sc != nil {
		return int(sc.num)
	}
	return filesink.DefaultScale
}

// column is a field of the rows as files have it.
func (d *fileDecl) column(name string, t expr.Type, scale int) (col filesink.Column, ok bool) {
	col = filesink.Column{Name: name, Scale: scale}
	if t.Kind == vec.List {
		elem := t.Elem
		if elem == vec.Null {
			elem = vec.String // of the empty list
		}
		col.Type = filesink.TypeList
		col.Elem, ok = columnTypes[elem]
		return col, ok
	}
	col.Type, ok = columnTypes[t.Kind]
	return col, ok
}

var columnTypes = map[vec.Kind]filesink.Type{
	vec.Null: filesink.TypeString, vec.Bool: filesink.TypeBool, vec.Int: filesink.TypeInt, vec.Float: filesink.TypeFloat, vec.Decimal: filesink.TypeDecimal,
	vec.String: filesink.TypeString, vec.Bytes: filesink.TypeBytes, vec.Time: filesink.TypeTimestamp,
}

func (b *modeler) sink(name string, n *node) *sinkDecl {
	s := &sinkDecl{name: name, at: n.keyAt, fields: nil}
	if f := n.get("from"); f != nil {
		s.from = f.list
	}
	for i, f := range s.from {
		if slices.ContainsFunc(s.from[:i], func(g *node) bool { return g.text == f.text }) {
			b.add(f.at, "", "%s is listed twice", f.text)
		}
	}
	if f := n.get("fields"); f != nil {
		s.fields = f.list
	}
	s.connector, s.settings = n.operator()
	form := n.get("encode")
	switch {
	case s.connector == "file":
		s.file = b.file(s, form)
	case form.str() == "csv" || form.str() == "parquet":
		b.add(form.at, "encode: json", "%s is a form of files", form.text)
	}
	switch s.connector {
	case "postgres", "sqlite":
		s.table = true
		for _, f := range []string{"encode", "fields"} {
			if v := n.get(f); v != nil {
				b.add(v.keyAt, "leave it out", "%s doesn't go with a table, whose columns say what is written", f)
			}
		}
		if f := s.settings.get("columns"); f != nil {
			s.fields = f.list
		}
	default:
		s.encode = encodeOf(form)
		if k := s.settings.get("key"); k != nil {
			s.key = &b.exprs(nil, "key", k)[0]
		}
	}
	return s
}

// text says what the sink does, without what has no effect on its output.
func (s *sinkDecl) text(target string) string {
	parts := []string{target}
	switch {
	case s.file != nil:
		parts = append(parts, string(s.file.format.Form))
		if s.file.by != nil {
			parts = append(parts, fmt.Sprintf("by %s of %s", s.file.unit, s.file.by.text))
		}
	case !s.table:
		parts = append(parts, s.encode.text())
	}
	if s.key != nil {
		parts = append(parts, "key "+s.key.e.String())
	}
	if len(s.fields) > 0 && !s.table {
		parts = append(parts, "fields "+strings.Join((&node{list: s.fields}).texts(), ", "))
	}
	return strings.Join(parts, ", ") + ", from " + strings.Join(slices.Sorted(slices.Values((&node{list: s.from}).texts())), ", ")
}

func (s *sinkDecl) label() string {
	if s.from == nil { // it takes dead letters
		return s.name
	}
	return "sink " + s.name
}

// targetDecl is what a sink writes to.
type targetDecl struct {
	describe string
	check    func(ctx context.Context, env doctor.Env) []doctor.Finding // nil: it can't be checked
	open     func(pipeline, name string, env plan.Env) (sink.Sink, error)
	// Transactions are those that the target's servers hold; nil: they hold none.
	transactions func(pipeline, name string) (sink.Transactions, error)
	// Of a target of dead letters: what makes a record of one, and what reads them again.
	encode  func(l *deadletter.Letter, r *sink.Record) error
	letters func(ctx context.Context, env plan.Env, pipeline string, yield func(*deadletter.Letter) error) error
}

// sinkTarget checks a sink's settings.
func (c *checker) sinkTarget(s *sinkDecl) targetDecl {
	n := s.settings
	switch s.connector {
	case "postgres", "sqlite":
		return c.tableTarget(s)
	case "file":
		dir := n.get("dir").str()
		if s.file == nil {
			t := filesink.DeadLetters(dir)
			return targetDecl{describe: "files", open: t.Open, encode: t.Encode, letters: t.ReadLetters}
		}
		return targetDecl{describe: "files", open: func(pipeline, name string, env plan.Env) (sink.Sink, error) {
			return filesink.Open(filesink.Config{Pipeline: pipeline, Sink: name, Dir: dir, Format: s.file.format, Logger: env.Logger}, env.Dir)
		}}
	case "kafka":
		cluster, from, ok := c.cluster(n, s.at, s.label())
		if !ok || len(from.failed)+len(n.failed) > 0 {
			return targetDecl{}
		}
		cfg := kafkasink.Config{Topic: n.get("topic").str(), Compression: n.get("compression").str()}
		if t := n.get("transaction_timeout"); t != nil {
			cfg.TransactionTimeout = t.dur
		}
		if m := n.get("max_record_bytes"); m != nil {
			if m.num > 1<<30 {
				c.add(m.at, "", "max_record_bytes is above 1GiB")
				return targetDecl{}
			}
			cfg.MaxRecordBytes = int32(m.num)
		}
		if s.encode.subject != nil {
			cfg.Head = s.encode.subject.Head
		}
		// Making one checks the settings and contacts nobody.
		probe, err := connect.NewSink(cluster, cfg, c.m.name, s.name, plan.Env{})
		if err != nil {
			msg, hint := saying(err)
			c.add(n.keyAt, hint, "%s", msg)
			return targetDecl{}
		}
		if err := probe.Close(context.Background()); err != nil {
			panic("spec: a sink that was never claimed doesn't close: " + err.Error())
		}
		check := func(ctx context.Context, env doctor.Env) []doctor.Finding {
			found := connect.CheckSink(ctx, cluster, cfg, c.m.name, s.name)
			if s.encode.subject != nil {
				found = append(found, s.encode.subject.Check(ctx, env)...)
			}
			return found
		}
		return targetDecl{
			describe: "kafka topic " + cfg.Topic, check: check, encode: connect.EncodeLetter,
			open: func(pipeline, name string, env plan.Env) (sink.Sink, error) {
				return connect.NewSink(cluster, cfg, pipeline, name, env)
			},
			transactions: func(pipeline, name string) (sink.Transactions, error) {
				return connect.SinkTransactions(cluster, cfg, pipeline, name)
			},
			letters: func(ctx context.Context, env plan.Env, pipeline string, yield func(*deadletter.Letter) error) error {
				return connect.ReadLetters(ctx, cluster, cfg.Topic, env, pipeline, yield)
			},
		}
	}
	return targetDecl{}
}

// sinkEnd is the end of a branch at a sink.
type sinkEnd struct {
	index int // in Plan.Sinks
	decl  *sinkDecl
	frame *frame
	scope *expr.Scope
	names []string
	cols  []int
	by    int              // the column whose time names the folder; -1: none
	types []columnar.Field // of the names
}

// sinkBranch checks what a sink takes of the rows that reach it on one way.
func (c *checker) sinkBranch(index int, s *sinkDecl, e *env) *branch {
	end := &sinkEnd{index: c.m.sinkIndex(index), decl: s, frame: e.frame, by: -1}
	b := &branch{sink: end}
	take := func(name string) {
		if f, ok := e.lookup(name); ok {
			end.names, end.cols = append(end.names, name), append(end.cols, f.Index)
			end.types = append(end.types, columnar.Field{Name: name, Type: f.Type.Type})
		}
	}
	switch {
	case len(s.fields) > 0:
		for i, f := range s.fields {
			switch {
			case slices.ContainsFunc(s.fields[:i], func(g *node) bool { return g.text == f.text }):
				c.add(f.at, "", "%s is listed twice", f.text)
			default:
				if _, ok := e.scope.Lookup(f.text); !ok {
					c.add(f.at, nearest(f.text, firstNames(e.scope)), "there is no field %s here", f.text)
					continue
				}
				take(f.text)
			}
		}
	case e.open && e.src.decl != nil && len(e.src.decl.decode.types) == 0:
		c.add(s.at, "fields: [a, b]", "sink %s: nothing says which fields the documents of %s have", s.name, e.src.decl.name)
	default:
		for _, name := range e.scope.Names() {
			if !isMeta(name) {
				take(name)
			}
		}
		if len(end.names) == 0 {
			c.add(s.at, "fields: [_offset]", "sink %s: the rows have no fields", s.name)
		}
	}
	c.fits(s, end)
	var xs []*expr.Expr
	if s.key != nil {
		if t, ok := c.typed(*s.key, e); ok && (t.Kind == vec.List) {
			c.add(s.key.n.place(0), "", "a key is one value, this is %s", typeText(t))
		}
		xs = append(xs, s.key.e)
	}
	if s.file != nil {
		c.fileColumns(end, e)
	}
	end.scope = e.freeze(xs...)
	return b
}

// fileColumns checks what a sink of files takes of the rows that reach it on one way.
func (c *checker) fileColumns(end *sinkEnd, e *env) {
	s, d := end.decl, end.decl.file
	if d.by != nil {
		switch f, ok := e.lookup(d.by.text); {
		case !ok:
			c.add(d.by.at, nearest(d.by.text, firstNames(e.scope)), "there is no field %s here", d.by.text)
		case f.Type.Kind != vec.Time:
			c.add(d.by.at, "declare it under types, or set: {"+d.by.text+": timestamp("+d.by.text+")}", "folders need a timestamp, %s is %s", d.by.text, typeText(f.Type))
		default:
			end.by = f.Index
		}
	}
	if d.format.Form == filesink.FormJSON {
		return
	}
	from := "rows on another way"
	if e.src.decl != nil {
		from = "rows of " + e.src.decl.name
	}
	columns := make([]filesink.Column, len(end.names))
	for i, name := range end.names {
		f, _ := e.scope.Lookup(name)
		col, ok := d.column(name, f.Type, d.scale(s.settings))
		if !ok && d.format.Form == filesink.FormParquet {
			c.add(s.at, "declare it under types, or leave it out by fields", "sink %s: a column of Parquet needs a type, %s is %s", s.name, name, typeText(f.Type))
			return
		}
		if columns[i] = col; d.format.Form == filesink.FormCSV {
			columns[i] = filesink.Column{Name: name} // whatever type: all are text
		}
	}
	if d.format.Columns == nil {
		d.format.Columns, d.first = columns, from
		return
	}
	if !slices.Equal(d.format.Columns, columns) {
		c.add(s.at, "name fields that all of them have, of the same types", "sink %s: %s have the columns %s, %s have %s, and a file has one list of them", s.name, from, d.text(columns), d.first, d.text(d.format.Columns))
	}
}

// text lists the columns as files have them: those of CSV have no types.
func (d *fileDecl) text(columns []filesink.Column) string {
	all := make([]string, len(columns))
	for i := range columns {
		all[i] = columns[i].Name
		if d.format.Form == filesink.FormParquet {
			all[i] += " " + columns[i].Type.String()
		}
	}
	return strings.Join(all, ", ")
}

// planSink makes a sink of a plan.
func (p *Pipeline) planSink(i int) *plan.Sink {
	s, target := p.m.sinks[i], p.c.targets[i]
	return p.sinkTo(s.name, s.text(target.describe), target)
}

func (p *Pipeline) sinkTo(name, describe string, target targetDecl) *plan.Sink {
	check := target.check
	if check != nil {
		check = func(ctx context.Context, env doctor.Env) []doctor.Finding {
			env.Dir = p.dir
			return target.check(ctx, env)
		}
	}
	out := &plan.Sink{Name: name, Describe: describe, Check: check, Open: func(env plan.Env) (sink.Sink, error) {
		env.Dir = p.dir
		return target.open(p.name, name, env)
	}}
	if target.transactions != nil {
		out.Transactions = func() (sink.Transactions, error) { return target.transactions(p.name, name) }
	}
	return out
}

// outlet collects what one task has for one sink. Several ways through the streams may lead there: the rows of a block are brought into the
// order of their records, those of one record into that of the ways, so that it doesn't show how records are cut into blocks.
type outlet struct {
	t     *task
	index int
	buf   *sink.Buffer
	rows  []outletRow
	arena []byte // of the block
}

type outletRow struct {
	record int32
	sink.Record
}

func (t *task) outlet(index int) *outlet {
	for _, o := range t.outlets {
		if o.index == index {
			return o
		}
	}
	o := &outlet{t: t, index: index}
	t.outlets = append(t.outlets, o)
	return o
}

func (o *outlet) begin(tc *plan.TaskContext) {
	o.buf = &sink.Buffer{} // that of the batch before is still to be delivered
	tc.Sinks[o.index] = o.buf
}

func (o *outlet) endBlock() {
	slices.SortStableFunc(o.rows, func(a, b outletRow) int { return cmp.Compare(a.record, b.record) })
	for i := range o.rows {
		o.buf.Add(o.rows[i].Record)
	}
	clear(o.rows)
	o.rows, o.arena = o.rows[:0], o.arena[:0]
}

// sinkRun writes the rows that reach a sink on one way, in one task.
type sinkRun struct {
	t     *task
	f     *frameRun
	end   *sinkEnd
	out   *outlet
	names [][]byte
	cols  []*vec.Column
	form  rowWriter     // nil: JSON
	key   *expr.Program // nil: none
	keys  vec.Column
	times *vec.Column // event times of the records; nil if they have none
	by    *vec.Column // times that name folders; nil if there are none
	fits  func(row []byte) error
	hour  time.Time // of named
	named string    // the folder of the row before; empty: none
}

func (t *task) newSinkRun(e *sinkEnd) *sinkRun {
	r := &sinkRun{t: t, f: t.frame(e.frame), end: e, out: t.outlet(e.index)}
	for i, name := range e.names {
		r.names = append(r.names, append(value.AppendJSON(nil, value.StringOf(name)), ':'))
		r.cols = append(r.cols, r.f.rows.Cols[e.cols[i]])
	}
	if e.decl.encode.schema != nil {
		r.form = e.decl.encode.writer(e.types, r.cols)
	}
	if e.decl.key != nil {
		r.key = compiled(expr.Compile(e.decl.key.e, e.scope))
	}
	if t.src.time >= 0 {
		r.times = t.root.rows.Cols[t.src.time]
	}
	if e.by >= 0 {
		r.by = r.f.rows.Cols[e.by]
	}
	if f := e.decl.file; f != nil {
		r.fits = f.format.Fits()
	}
	return r
}

func (r *sinkRun) run(sel []int32) {
	if r.key != nil {
		r.key.Eval(r.t.evaluates(r.f, r.end.decl.label()), &r.f.rows, sel, &r.keys)
		sel = r.t.without(r.f, sel, r.end.decl.label())
	}
	o := r.out
	for _, i := range sel {
		row := outletRow{record: r.f.records[i], Record: sink.Record{Offset: r.f.offsets[i], Timestamp: sink.NoTimestamp}}
		if r.times != nil {
			row.Timestamp = r.times.Int[row.record] / int64(time.Millisecond)
		}
		at := len(o.arena)
		if r.key != nil && !r.keys.IsNull(int(i)) {
			o.arena = appendKeyText(o.arena, r.keys.Value(int(i)))
			row.Key = o.arena[at:len(o.arena):len(o.arena)]
			at = len(o.arena)
		}
		if r.form == nil {
			r.object(i)
		} else if !r.write(i, row.record) {
			continue
		}
		row.Value = o.arena[at:len(o.arena):len(o.arena)]
		if r.fits != nil {
			if err := r.fits(row.Value); err != nil {
				r.t.reject(row.record, plan.RejectBad, r.end.decl.label(), err.Error())
				continue
			}
		}
		if r.by != nil {
			row.Topic = r.folder(int(i))
		}
		o.rows = append(o.rows, row)
	}
}

// folder is that of row i. Rows near each other mostly share theirs.
func (r *sinkRun) folder(i int) string {
	if r.by.IsNull(i) {
		return filesink.Folder(time.Time{}, r.end.decl.file.unit)
	}
	at := time.Unix(0, r.by.Int[i]).UTC()
	if hour := at.Truncate(time.Hour); !hour.Equal(r.hour) || r.named == "" {
		r.hour, r.named = hour, filesink.Folder(at, r.end.decl.file.unit)
	}
	return r.named
}

// object appends row i as a JSON object.
func (r *sinkRun) object(i int32) {
	o := r.out
	o.arena = append(o.arena, '{')
	for k, c := range r.cols {
		if k > 0 {
			o.arena = append(o.arena, ',')
		}
		o.arena = append(o.arena, r.names[k]...)
		if c.IsNull(int(i)) {
			o.arena = append(o.arena, "null"...)
			continue
		}
		o.arena = value.AppendJSON(o.arena, c.Value(int(i)))
	}
	o.arena = append(o.arena, '}')
}

// write appends row i in the form of the sink. ok is false where the row has none: its record is turned away.
func (r *sinkRun) write(i, record int32) (ok bool) {
	b, err := r.form.Write(r.out.arena, int(i))
	if err != nil {
		r.out.arena = b[:len(r.out.arena)]
		r.t.reject(record, plan.RejectBad, r.end.decl.label(), err.Error())
		return false
	}
	r.out.arena = b
	return true
}

// appendKeyText appends a key as text: strings and bytes as they are.
func appendKeyText(dst []byte, v value.Value) []byte {
	if v.Kind() == value.Bytes {
		return append(dst, v.Bytes()...)
	}
	return value.AppendText(dst, v)
}
