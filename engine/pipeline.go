package engine

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/names"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
)

// Pipeline is a set of streams from sources to states. It is built by one goroutine; once it runs it isn't
// changed.
type Pipeline struct {
	name    string
	errs    []error
	queries []*queryDef
	// outer is the pipeline whose states a query reads; nil for a pipeline of its own. reads and tablesRead are the
	// states and the static tables that its streams ask.
	outer             *Pipeline
	reads, tablesRead []string

	sources   []*sourceDef
	exchanges []*plan.Exchange
	persists  []*plan.Persist
	sinks     []*sinkDef
	statics   []*plan.Static
	// timed[i] completes exchanges[i].State.TimeSources, which need the final order of sources.
	timed map[*plan.State][]*sourceDef
	// placed holds how many exchanges there were when a persist with a stream behind it was added: it goes before the next.
	placed map[*plan.Persist]int
	states map[string]bool
	names  map[string]bool // of operators
	lines  []string
	text   []string
	// What the plan's definition is made of.
	defined    []plan.StateDefinition
	tables     []plan.Part
	onBad      plan.OnBad
	policySet  bool
	dead       *deadDef // nil: there are no dead letters
	limits     plan.Limits
	ledger     plan.Ledger
	memory     int64
	savepoints plan.Savepoints
	keeper     Keeper
	steps      int

	compiled *plan.Plan
}

// sourceDef is a source under construction.
type sourceDef struct {
	plan   *plan.Source
	desc   string
	decode string
	inputs []string // as desc has them
}

// PipelineOption is a setting of a whole pipeline.
type PipelineOption func(*Pipeline)

// Policy is what happens to a record that can't be decoded or whose function fails.
type Policy = plan.OnBad

// The policies for bad records.
const (
	Stop Policy = plan.Stop // the pipeline stops with the record's place and the cause; the default
	Skip Policy = plan.Skip // the record goes to the state _rejected, in the same commit
	// DeadLetter sends the record to the target that the option DeadLetters names.
	DeadLetter Policy = plan.DeadLetter
)

// OnBadRecord sets the policy for bad records, and for bad rows behind a BatchAggregate. The default is Stop, or DeadLetter with the
// option DeadLetters.
func OnBadRecord(policy Policy) PipelineOption {
	return func(p *Pipeline) { p.onBad, p.policySet = policy, true }
}

// Batching bounds batches. Zero fields keep their defaults.
type Batching struct {
	MaxRecords int64         // per source partition and batch; default adaptive, at most 200,000
	MaxBytes   int64         // raw bytes of everything that is in flight; default 64 MiB
	MaxPending int           // batches in flight; default 4
	Interval   time.Duration // the least time between two beginnings; default 0: data starts a batch at once
	Timeout    time.Duration // of one attempt; default none
	RetryMin   time.Duration // first back-off after a transient failure; default 100 ms
	RetryMax   time.Duration // largest back-off; default 30 s
	Attempts   int           // per batch before the pipeline stops; default: no limit
	RetryFor   time.Duration // per batch since its first failure; default: no limit
}

// WithBatching sets the bounds of batches.
func WithBatching(b Batching) PipelineOption {
	return func(p *Pipeline) {
		switch {
		case b.MaxRecords < 0 || b.MaxBytes < 0 || b.MaxPending < 0 || b.Interval < 0 || b.Timeout < 0 ||
			b.RetryMin < 0 || b.RetryMax < 0 || b.Attempts < 0 || b.RetryFor < 0:
			p.errorf("Batching: negative value in %+v", b)
		case b.RetryMax > 0 && b.RetryMin > b.RetryMax:
			p.errorf("Batching: RetryMin %s is above RetryMax %s", b.RetryMin, b.RetryMax)
		}
		p.limits = plan.Limits{
			MaxRecords: b.MaxRecords, MaxBytes: b.MaxBytes, MaxPending: b.MaxPending, Interval: b.Interval, Timeout: b.Timeout,
			Retry: plan.Retry{Min: b.RetryMin, Max: b.RetryMax, Attempts: b.Attempts, For: b.RetryFor},
		}
	}
}

// Ledger says what is kept of batches that have committed. Zero fields keep their defaults.
type Ledger struct {
	// KeepChanges keeps what each batch changed beside its ledger entry, so that a replay that comes out otherwise names
	// key and both values. It costs the disk what the batches write; by default only a digest is kept.
	KeepChanges bool
	// The bound that is met first counts. What a replay needs to begin at is never trimmed.
	MaxAge     time.Duration // since the commit; default 7 days, negative: for ever
	MaxBytes   int64         // of ledger and kept changes on disk; default 2 GiB, negative: any size
	MaxBatches int64         // default: no bound
	// What savepoints need is kept beyond those bounds, up to these. One that would need more can be restored, but no txid behind it
	// can be gone back to any more.
	HeldAge   time.Duration // since the commit; default: for ever
	HeldBytes int64         // of ledger and kept changes on disk; default: any size
}

// WithLedger sets what is kept of batches that have committed. No result depends on it.
func WithLedger(l Ledger) PipelineOption {
	return func(p *Pipeline) {
		if l.MaxBatches < 0 {
			p.errorf("Ledger: MaxBatches is %d", l.MaxBatches)
		}
		if l.HeldAge < 0 || l.HeldBytes < 0 {
			p.errorf("Ledger: HeldAge is %s, HeldBytes is %d", l.HeldAge, l.HeldBytes)
		}
		p.ledger = plan.Ledger{Changes: l.KeepChanges, MaxAge: l.MaxAge, MaxBytes: l.MaxBytes, MaxBatches: l.MaxBatches, HeldAge: l.HeldAge, HeldBytes: l.HeldBytes}
	}
}

// New begins a pipeline. Its name is part of where its data lie: letters, digits, "-" and "_", beginning with a
// letter, at most 64.
func New(name string, opts ...PipelineOption) *Pipeline {
	p := &Pipeline{name: name, states: map[string]bool{}, names: map[string]bool{}, timed: map[*plan.State][]*sourceDef{}, placed: map[*plan.Persist]int{}}
	p.checkName("pipeline", name)
	if names.Reserved(name) {
		p.errorf("pipeline name %q: a directory of that name holds the pipelines' savepoints", name)
	}
	for _, o := range opts {
		o(p)
	}
	return p
}

// Wrap makes a Pipeline of a plan that was compiled elsewhere.
func Wrap(pl *plan.Plan) *Pipeline { return &Pipeline{name: pl.Name, compiled: pl} }

// Name is the pipeline's name.
func (p *Pipeline) Name() string { return p.name }

func (p *Pipeline) errorf(format string, args ...any) {
	p.errs = append(p.errs, batch.NewError(batch.Permanent, batch.CodeConfiguration, "", fmt.Errorf(format, args...), ""))
}

// strange refuses a stream of another pipeline.
func (p *Pipeline) strange(what string, other *Pipeline) {
	if p.outer == nil && other.outer == nil {
		p.errorf("%s: streams of two pipelines, %s and %s", what, p.name, other.name)
		return
	}
	err := fmt.Errorf("%s: streams of two queries", what)
	if p.outer == nil || other.outer == nil {
		err = fmt.Errorf("%s: a query's stream and one of its pipeline", what)
	}
	p.errs = append(p.errs, batch.NewError(batch.Permanent, batch.CodeConfiguration, "", err,
		"a call reads what is kept: keep the other stream in a state, and read that by StateQuery or Lookup"))
}

var namePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

func (p *Pipeline) checkName(what, name string) {
	if !namePattern.MatchString(name) {
		p.errorf("%s name %q: use a letter, then letters, digits, - and _, at most 64 in all", what, name)
	}
}

// addState notes a state's name; two of one name would write over each other.
func (p *Pipeline) addState(name string) {
	p.checkName("state", name)
	if p.states[name] {
		p.errorf("two states are named %q", name)
	}
	p.states[name] = true
}

// hasStage tells whether a stage stands behind an exchange, or a persist, of that name: two could not be told apart.
func (p *Pipeline) hasStage(name string) bool {
	return slices.ContainsFunc(p.exchanges, func(e *plan.Exchange) bool { return e.Next != nil && e.Name == name }) ||
		slices.ContainsFunc(p.persists, func(q *plan.Persist) bool { return q.Next != nil && q.Name == name })
}

// describe adds a line to the plan, and to the text whose hash is the plan's.
func (p *Pipeline) describe(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	p.lines = append(p.lines, line)
	p.text = append(p.text, line)
}

// step names the next operator.
func (p *Pipeline) step(kind string) string {
	p.steps++
	return fmt.Sprintf("%s %d", kind, p.steps)
}

// Plan compiles the pipeline, or reports everything that is wrong with it.
func (p *Pipeline) Plan() (*plan.Plan, error) {
	if p.compiled != nil {
		return p.compiled, nil
	}
	errs := p.errs
	if len(p.sources) == 0 {
		errs = append(errs, batch.NewError(batch.Permanent, batch.CodeConfiguration, "", errors.New("the pipeline has no source"), "begin with engine.From"))
	}
	if len(p.exchanges) == 0 && len(p.persists) == 0 && len(p.sinks) == 0 {
		errs = append(errs, batch.NewError(batch.Permanent, batch.CodeConfiguration, "", errors.New("the pipeline keeps nothing and sends nothing on"), "end a stream in Aggregate, PartitionPersist or To"))
	}
	errs = append(errs, p.checkDead()...)
	if err := checkMirrored(p.sources); err != nil {
		errs = append(errs, err)
	}
	for _, q := range p.queries {
		errs = append(errs, q.finish()...)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("pipeline %s: %w", p.name, errors.Join(errs...))
	}
	sources := slices.Clone(p.sources)
	slices.SortFunc(sources, func(a, b *sourceDef) int { return strings.Compare(a.plan.ID, b.plan.ID) })
	at := map[*sourceDef]int{}
	pl := &plan.Plan{
		Name: p.name, Lines: p.lines, Exchanges: p.exchanges, Persists: p.persists, Statics: p.statics, Batch: p.limits, Ledger: p.ledger, Memory: p.memory, Savepoints: p.savepoints,
	}
	pl.Queries = sortedQueries(p.queries)
	pl.Lines = append(slices.Clip(pl.Lines), describeQueries(pl.Queries)...)
	if p.keeper != nil {
		pl.Keeper = PlanKeeper(p.name, p.keeper)
		pl.Lines = append(slices.Clip(pl.Lines), pl.Keeper.Describe)
	}
	for i, s := range sources {
		at[s] = i
		s.plan.OnBad = p.onBad
		pl.Sources = append(pl.Sources, s.plan)
	}
	p.planDead(pl)
	slices.SortFunc(p.sinks, func(a, b *sinkDef) int { return strings.Compare(a.plan.Name, b.plan.Name) })
	for i, s := range p.sinks {
		s.index = i
		pl.Sinks = append(pl.Sinks, s.plan)
	}
	for q, n := range p.placed { // order: each persist is placed by itself
		if n < len(p.exchanges) {
			q.Before = p.exchanges[n]
		}
	}
	for st, defs := range p.timed { // order: each state is completed by itself
		st.TimeSources = nil
		for _, d := range defs {
			st.TimeSources = append(st.TimeSources, at[d])
		}
		slices.Sort(st.TimeSources)
		st.TimeSources = slices.Compact(st.TimeSources)
	}
	pl.Text = strings.Join(append([]string{"pipeline " + p.name, fmt.Sprintf("on_bad_record %d", p.onBad)}, p.text...), "\n")
	pl.Definition = p.definition()
	p.compiled = pl
	return pl, nil
}

// schemaColumns are a state's key columns, a windowed one's led by those of the window.
func schemaColumns(key []state.Column, w *state.Window) []state.Column {
	if w == nil {
		return key
	}
	return append(w.Columns(), key...)
}
