package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// SinksState is the state that says what each sink was given last: what its target must hold once the batch has committed.
const SinksState = "_sinks"

// SinksSchema describes it.
func SinksSchema() state.Schema {
	return state.Schema{
		Name: SinksState, Kind: "rows",
		Key: []state.Column{{Name: "sink", Type: "string"}},
		Values: []state.Column{
			{Name: "txid", Type: "int"},
			{Name: "records", Type: "int"}, // of all batches so far
			{Name: "chain", Type: "string"},
		},
	}
}

// given is what one sink was given up to some batch.
type given struct {
	txid    batch.Txid // the last that had something for it; 0: none had
	records int64
	chain   uint64
}

func (g given) progress(epoch batch.Epoch) sink.Progress {
	return sink.Progress{Txid: g.txid, Epoch: epoch, Chain: g.chain}
}

// target is a sink of the run, with what is known of it. It belongs to Open, then to Commit, which are never called at once.
type target struct {
	sink.Sink
	name     string
	progress sink.Progress // as the target holds it; valid if claimed
	claimed  bool          // no failure since the last Claim
}

// openSinks makes the sinks and returns the highest epoch that a target holds.
func (x *Executor) openSinks(ctx context.Context) (batch.Epoch, error) {
	if !x.cfg.Deliver {
		return 0, nil
	}
	var highest batch.Epoch
	for _, s := range x.plan.Sinks {
		out, err := s.Open(plan.Env{Logger: x.log.With("sink", s.Name)})
		if err != nil {
			return 0, sinkError(s.Name, err)
		}
		x.targets = append(x.targets, &target{Sink: out, name: s.Name})
		p, err := out.Progress(ctx)
		if err != nil {
			return 0, sinkError(s.Name, err)
		}
		highest = max(highest, p.Epoch)
	}
	return highest, nil
}

// claimSinks takes all targets over and holds what they say of themselves against the store.
func (x *Executor) claimSinks(ctx context.Context, snap *txstate.Snapshot) error {
	for i, t := range x.targets {
		if err := t.claim(ctx, x.epoch); err != nil {
			return err
		}
		if x.cfg.Fresh && snap.Txid == 0 && len(snap.Recorded) == 0 && t.progress.Txid != 0 {
			x.log.Warn("the sink's target holds output of another run of the pipeline, which is left as it is: it starts over", "sink", t.name, "txid", uint64(t.progress.Txid))
			t.claimed = false
			if err := t.Forget(ctx); err != nil {
				return sinkError(t.name, err)
			}
			t.claimed, t.progress = true, sink.Progress{Epoch: x.epoch}
		}
		if err := t.agrees(x.given[i], snap); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) claim(ctx context.Context, epoch batch.Epoch) error {
	p, err := t.Claim(ctx, epoch)
	if err != nil {
		return sinkError(t.name, err)
	}
	t.progress, t.claimed = p, true
	return nil
}

const (
	aheadRemedy  = "name the data directory that the pipeline last ran in, restore a savepoint and replay up to that txid (savepoint restore --to-txid), or start over in an empty directory (--fresh), which writes the output again"
	behindRemedy = "if the target was emptied or its progress has expired, start over in an empty data directory (--fresh), which writes all output again, or give the sink another name, which gets the output from now on"
)

// agrees holds a target's progress against what the store says that the sink was given, and against the batches that were recorded
// and have not committed.
func (t *target) agrees(g given, snap *txstate.Snapshot) error {
	fail := func(code batch.Code, remedy, format string, args ...any) error {
		return sinkError(t.name, batch.NewError(batch.Permanent, code, "", fmt.Errorf(format, args...), remedy))
	}
	p := t.progress
	switch {
	case p.Txid == g.txid && p.Chain == g.chain:
		return nil
	case p.Txid == g.txid:
		return fail(batch.CodeSinkDiffers, aheadRemedy, "the target holds txid %d of another history: digest %016x, the store's is %016x", p.Txid, p.Chain, g.chain)
	case p.Txid < g.txid && p.Txid == 0:
		return fail(batch.CodeSinkBehind, behindRemedy, "it was given the output up to txid %d, and its target knows nothing of that", g.txid)
	case p.Txid < g.txid:
		return fail(batch.CodeSinkBehind, behindRemedy, "it was given the output up to txid %d, and its target holds that up to txid %d", g.txid, p.Txid)
	case slices.ContainsFunc(snap.Recorded, func(e txstate.Entry) bool { return e.Txid == p.Txid }):
		return nil // settled when the batch comes again
	case p.Txid > snap.Txid:
		return fail(batch.CodeSinkAhead, aheadRemedy, "the target holds txid %d, the store ends at txid %d", p.Txid, snap.Txid)
	}
	return fail(batch.CodeSinkDiffers, aheadRemedy, "the target holds txid %d of another history: by the store that batch had nothing for it", p.Txid)
}

// Given is what one sink was given up to the last committed batch.
type Given struct {
	Sink    string
	Txid    batch.Txid // the last that had something for it; 0: none had
	Records int64      // of all batches so far
}

// Given tells of all sinks, by name.
func (x *Executor) Given() []Given {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []Given
	for i, g := range x.given {
		all = append(all, Given{Sink: x.plan.Sinks[i].Name, Txid: g.txid, Records: g.records})
	}
	return all
}

// loadGiven reads what the sinks were given up to the last committed batch.
func (x *Executor) loadGiven(ctx context.Context) ([]given, error) {
	if len(x.plan.Sinks) == 0 {
		return nil, nil
	}
	all := make([]given, len(x.plan.Sinks))
	r, err := x.cfg.DB.State(SinksState)
	if err != nil {
		return nil, err
	}
	for i, s := range x.plan.Sinks {
		row, ok, err := r.Get(ctx, sinkKey(s.Name))
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if all[i], err = parseGiven(row); err != nil {
			return nil, x.located(batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "open", fmt.Errorf("state %s, sink %s: %w", SinksState, s.Name, err),
				"restore a savepoint, or rebuild by replay"), 0)
		}
	}
	return all, nil
}

func sinkKey(name string) []byte { return value.AppendKey(nil, value.StringOf(name)) }

func (g given) row() []byte {
	return rowOf(value.IntOf(int64(g.txid)), value.IntOf(g.records), value.StringOf(fmt.Sprintf("%016x", g.chain)))
}

func parseGiven(row []byte) (g given, err error) {
	var cols [3]value.Value
	for i := range cols {
		if cols[i], row, err = value.DecodeBinary(row); err != nil {
			return given{}, err
		}
	}
	if cols[0].Kind() != value.Int || cols[1].Kind() != value.Int || cols[2].Kind() != value.String || len(row) > 0 {
		return given{}, errors.New("the row isn't a txid, a count and a digest")
	}
	g = given{txid: batch.Txid(cols[0].Int()), records: cols[1].Int()}
	g.chain, err = strconv.ParseUint(cols[2].Str(), 16, 64)
	return g, err
}

// collectSinks brings together what the tasks of f have for the sinks, and notes it in _sinks.
func (x *Executor) collectSinks(f *flight) error {
	if len(x.plan.Sinks) == 0 {
		return nil
	}
	f.outputs, f.gives = make([]*sink.Output, len(x.plan.Sinks)), slices.Clone(f.given)
	w := newRowWriter(context.Background(), nil, x.cfg.Shards)
	for i, s := range x.plan.Sinks {
		out := &sink.Output{Txid: f.b.Txid, Time: f.b.Time}
		add := func(p batch.Partition, bufs []*sink.Buffer) {
			if bufs == nil || bufs[i] == nil || len(bufs[i].Records) == 0 {
				return
			}
			out.Parts = append(out.Parts, sink.Part{Partition: p, Records: bufs[i].Records})
			out.Count += int64(len(bufs[i].Records))
		}
		for j, r := range f.results {
			add(f.b.Ranges[j].Partition, r.sinks)
		}
		for _, st := range f.stages {
			for k := range st.parts {
				add(st.partition(&st.parts[k]), st.parts[k].sinks)
			}
		}
		if s.Name == plan.DeadLettersSink {
			if err := x.addLetters(f, out); err != nil {
				return err
			}
		}
		if out.Count == 0 {
			continue
		}
		out.Chain = outputDigest(f.given[i].chain, out)
		f.outputs[i] = out
		f.gives[i] = given{txid: out.Txid, records: f.given[i].records + out.Count, chain: out.Chain}
		w.Set(sinkKey(s.Name), f.gives[i].row())
	}
	if set, _ := w.set(SinksState); set != nil {
		f.sets = append(f.sets, set)
	}
	return nil
}

// inherit notes what the batch ahead of f leaves for it. before are the batches in flight ahead of f, the newest first.
func (x *Executor) inherit(f *flight, before []*flight) {
	switch {
	case f.again: // it has what the first run had
	case len(before) > 0:
		f.given, f.was = before[0].gives, before[0].tally
	default:
		x.mu.Lock()
		f.given, f.was = x.given, x.tally
		x.mu.Unlock()
	}
}

// outputDigest chains a batch's output to what a sink was given before. Where a record came from is no part of it.
func outputDigest(before uint64, out *sink.Output) uint64 {
	d := digest(seedOutput).word(before).word(uint64(out.Txid)).word(uint64(out.Count))
	for _, r := range out.All() {
		d = d.text(r.Topic).word(uint64(r.Timestamp)).nullable(r.Key).nullable(r.Value).word(uint64(len(r.Headers)))
		for _, h := range r.Headers {
			d = d.text(h.Key).nullable(h.Value)
		}
	}
	return d.sum()
}

// deliver brings a recorded batch's output to all sinks: first everything is prepared, then one after the other commits. A sink that
// holds it already is passed over.
func (x *Executor) deliver(ctx context.Context, f *flight) error {
	before := f.given
	var prepared []*target
	undo := func(err error) error {
		for _, t := range prepared {
			if aerr := t.Abort(ctx); aerr != nil {
				x.log.Debug("an abort failed", "sink", t.name, "error", aerr)
				t.claimed = false
			}
		}
		return err
	}
	for i, t := range x.targets {
		out := f.outputs[i]
		if out == nil {
			continue
		}
		if !t.claimed {
			if err := t.claim(ctx, x.epoch); err != nil {
				return undo(err)
			}
		}
		out.Epoch = x.epoch
		switch p := t.progress; {
		case p.Txid == out.Txid && p.Chain == out.Chain:
			x.log.Info("the sink's target holds the batch already", "sink", t.name, "txid", uint64(out.Txid))
			continue
		case p.Txid == out.Txid:
			return undo(sinkError(t.name, batch.NewError(batch.Permanent, batch.CodeSinkDiffers, "",
				fmt.Errorf("the target holds txid %d with another output: digest %016x, the one at hand has %016x", p.Txid, p.Chain, out.Chain),
				"start the pipeline as it was when that output was written (file, program, build), until the batch has committed; then change it")))
		case p.Txid != before[i].txid || p.Chain != before[i].chain:
			return undo(sinkError(t.name, batch.NewError(batch.Permanent, batch.CodeSinkDiffers, "",
				fmt.Errorf("the target holds txid %d with digest %016x, where it was left at txid %d with digest %016x", p.Txid, p.Chain, before[i].txid, before[i].chain),
				"make sure that one process runs the pipeline, and that nobody changes its progress, and start again")))
		}
		t.claimed = false // unless it succeeds
		if err := t.Prepare(ctx, out); err != nil {
			return undo(sinkError(t.name, err))
		}
		t.claimed = true
		prepared = append(prepared, t)
	}
	for len(prepared) > 0 {
		t := prepared[0]
		prepared = prepared[1:]
		i := slices.Index(x.targets, t)
		t.claimed = false
		if err := t.Commit(ctx); err != nil {
			return undo(sinkError(t.name, err))
		}
		t.claimed, t.progress = true, f.gives[i].progress(x.epoch)
	}
	return nil
}

// sinkError says which sink failed.
func sinkError(name string, err error) error {
	e, ok := errors.AsType[*batch.Error](err)
	if !ok {
		e = batch.NewError(batch.Transient, batch.CodeOf(err), "", err, "")
	}
	c := *e
	c.Op = "sink " + name
	return &c
}

func (x *Executor) closeSinks(ctx context.Context) error {
	var errs []error
	for _, t := range x.targets {
		errs = append(errs, t.Close(ctx))
	}
	return errors.Join(errs...)
}

// checkSinks panics if a stage has output for a sink that the plan doesn't name in order: whoever compiled it is at fault.
func checkSinks(p *plan.Plan) {
	for i, s := range p.Sinks {
		if i > 0 && p.Sinks[i-1].Name >= s.Name {
			panic("exec: the plan's sinks aren't in the order of their names: " + p.Sinks[i-1].Name + ", " + s.Name)
		}
	}
}
