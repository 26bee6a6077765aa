package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/replay"
	"github.com/tridentd/tridentd/state"
)

// The columns of a dump: of the records that a batch read, and of what it wrote. In JSON and CSV a row has both, behind its kind.
var (
	dumpInput = []state.Column{
		{Name: "source", Type: "string"},
		{Name: "topic", Type: "string"},
		{Name: "partition", Type: "int"},
		{Name: "offset", Type: "int"},
		{Name: "timestamp", Type: "timestamp"},
		{Name: "key", Type: "string"},
		{Name: "value", Type: "string"},
		{Name: "headers", Type: "any"},
	}
	dumpWrites = []state.Column{
		{Name: "state", Type: "string"},
		{Name: "op", Type: "string"},
		{Name: "state_key", Type: "any"},
		{Name: "old", Type: "any"},
		{Name: "added", Type: "any"},
		{Name: "new", Type: "any"},
	}
)

// dumper prints a batch.
type dumper struct {
	format string
	json   bool
	input  rowPrinter
	writes rowPrinter // the same as input but in tables
}

func newDumper(a *app, format string, txid batch.Txid) (*dumper, error) {
	d := &dumper{format: format, json: format == formatJSON, input: newStatePrinter(format, a.out)}
	d.writes = d.input
	if format == formatTable {
		d.writes = newStatePrinter(format, a.out)
		return d, errors.Join(d.input.Begin(txid, dumpInput), d.writes.Begin(txid, dumpWrites))
	}
	all := append([]state.Column{{Name: "kind", Type: "string"}}, dumpInput...)
	return d, d.input.Begin(txid, append(all, dumpWrites...))
}

// nulls are as many.
func nulls(n int) []value.Value {
	row := make([]value.Value, n)
	for i := range row {
		row[i] = value.NullValue()
	}
	return row
}

func (d *dumper) record(p batch.Partition, r *batch.Record) error {
	ts := value.NullValue()
	if r.Timestamp != 0 {
		ts = value.TimeOf(r.Timestamp * int64(time.Millisecond))
	}
	row := []value.Value{
		value.StringOf(p.Source), value.StringOf(p.Topic), value.IntOf(int64(p.Number)), value.IntOf(r.Offset), ts,
		shown(r.Key), shown(r.Value), d.headers(r.Headers),
	}
	if d.format == formatTable {
		return d.input.Row(row)
	}
	return d.input.Row(append(append([]value.Value{value.StringOf("input")}, row...), nulls(len(dumpWrites))...))
}

// shown is text as it is, and anything else as base64.
func shown(b []byte) value.Value {
	switch {
	case b == nil:
		return value.NullValue()
	case utf8.Valid(b):
		return value.StringOf(string(b))
	}
	return value.BytesOf(b)
}

func (d *dumper) headers(hs []batch.Header) value.Value {
	if len(hs) == 0 {
		return value.NullValue()
	}
	var b []byte
	for i, h := range hs {
		if i > 0 {
			b = append(b, ", "...)
		}
		if d.json {
			b = value.AppendJSON(append(b, `{"key": `...), value.StringOf(h.Key))
			b = append(value.AppendJSON(append(b, `, "value": `...), shown(h.Value)), '}')
		} else {
			b = value.AppendText(append(append(b, h.Key...), '='), shown(h.Value))
		}
	}
	if d.json {
		return value.JSONOf("[" + string(b) + "]")
	}
	return value.StringOf(string(b))
}

func (d *dumper) write(w replay.Write) error {
	n := len(w.Schema.Key)
	cols := query.Columns(w.Schema)
	side := func(known bool, row []value.Value, none string) value.Value {
		switch {
		case !known:
			return value.NullValue()
		case row == nil && d.json:
			return value.JSONOf("{}")
		case row == nil:
			return value.StringOf(none)
		}
		return d.fields(cols[n:], row)
	}
	row := []value.Value{
		value.StringOf(w.Schema.Name), value.StringOf(w.Op), d.fields(cols[:min(n, len(w.Key))], w.Key),
		side(w.KnownOld, w.Old, "no row"), side(w.Change != nil, w.Change, ""), side(w.KnownNew, w.New, "no row"),
	}
	if d.format == formatTable {
		return d.writes.Row(row)
	}
	return d.writes.Row(append(append([]value.Value{value.StringOf("write")}, nulls(len(dumpInput))...), row...))
}

// fields are columns with their values: an object in JSON.
func (d *dumper) fields(cols []state.Column, row []value.Value) value.Value {
	all := make([]string, len(row))
	for i, v := range row {
		if d.json {
			all[i] = string(value.AppendJSON(nil, value.StringOf(cols[i].Name))) + ": " + string(value.AppendJSON(nil, v))
		} else {
			all[i] = cols[i].Name + "=" + string(value.AppendText(nil, v))
		}
	}
	if d.json {
		return value.JSONOf("{" + strings.Join(all, ", ") + "}")
	}
	return value.StringOf(strings.Join(all, " "))
}

func (d *dumper) end(a *app) error {
	if err := d.input.end(); err != nil || d.format != formatTable {
		return err
	}
	if _, err := fmt.Fprintln(a.out); err != nil {
		return err
	}
	return d.writes.end()
}

// dump prints what one batch read and wrote.
func (a *app) dump(ctx context.Context, t *target, f *replayFlags) error {
	return a.inThePast(ctx, t, func(p *past) error {
		o := a.replayOptions(f)
		o.From, o.To, o.Store = 0, batch.Txid(f.dump), p.db
		d, err := newDumper(a, f.format, o.To)
		if err != nil {
			return err
		}
		for e, err := range p.db.Store().Entries(ctx, o.To, o.To) {
			if err != nil {
				return err
			}
			if by := replay.NoBatch(&e); by != "" {
				fmt.Fprintf(a.err, "txid %d is no batch, and neither read nor wrote anything: %s\n", o.To, by)
				return d.end(a)
			}
		}
		if err := replay.Input(ctx, t.pipeline, o, d.record); err != nil {
			return replayError(err)
		}
		if _, kept, err := p.db.Changes(ctx, o.To); err != nil {
			return err
		} else if !kept && o.To > 1 {
			o.Dir, o.Scratch = filepath.Join(p.tmp, "dump"), true
			if o.Base, err = p.base(ctx, o.To-1, o.Dir); err != nil {
				return err
			}
		}
		from, err := replay.Writes(ctx, t.pipeline, o, d.write)
		if err != nil {
			return replayError(err)
		}
		if err := d.end(a); err != nil {
			return err
		}
		if from.Different != nil {
			return replayError(from.Different)
		}
		return nil
	})
}
