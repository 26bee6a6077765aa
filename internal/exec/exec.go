// Package exec takes a batch its way: ranges from the emitters, records through the tasks of the source stage,
// deltas through the exchange into the states, and everything with the ranges and the txid into one atomic write.
//
// It guarantees that what a batch writes is a function of the batch, the records in its ranges and what the
// batches before it left: not of the number of cores, of how many batches are in flight, or of which form a
// write takes. Tasks run in parallel, their results are merged in source-partition order; shards are updated in
// parallel, each in key order and in txid order.
//
// The order in which things happen is the coordinator's (package coordinator, driven by its runner): Executor is
// what the runner drives.
package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// Config is what an Executor is made from.
type Config struct {
	Plan   *plan.Plan
	DB     *pebblestate.DB
	Shards int // of the database
	Logger hclog.Logger
	// Procs bounds how many tasks and shards are worked on at once; 0 means GOMAXPROCS.
	Procs   int
	Build   string // build id for the ledger
	PlanSum uint64 // hash of Plan.Text
	Mirrors []txstate.Mirror
	// Epoch is the highest that was claimed elsewhere: the run takes a higher one.
	Epoch batch.Epoch
	// Claim claims the run's epoch elsewhere, once the store has it and before anything else is done. May be nil.
	Claim func(ctx context.Context, epoch batch.Epoch) error
	// Deliver opens the plan's sinks and hands each batch's output to them before it commits. Without it (replays, tests of results) the
	// output is only digested. With it, each batch must be recorded and commit by itself.
	Deliver bool
	// MaxBytes takes the place of Plan.Batch.MaxBytes unless it is 0.
	MaxBytes int64
	// Fetched bounds what the sources together fetch before batches take it, in bytes; 0: their defaults.
	Fetched int64
	// Pressed tells that memory is short: a batch then waits until nothing is in flight, and is small. May be nil.
	Pressed func() bool
	// Fresh lets the pipeline start over although a sink's target holds output of it.
	Fresh bool
	// Now is the clock of everything that informs only: durations, commit times.
	Now func() time.Time
	// OnCommit is told each committed entry, in order; it must not block. May be nil.
	OnCommit func(*txstate.Entry)
	// OnOutput is told what each batch that has committed had for a sink, in order, before OnCommit; it must not keep what it is
	// told. May be nil.
	OnOutput func(name string, out *sink.Output)
	// Check is the share of batches, 0 to 1, that are computed a second time before they commit; one that comes out otherwise is
	// a permanent failure with batch.CodeNotDeterministic.
	Check float64
	// OnChecked is told each batch that came out equal; it must not block. May be nil.
	OnChecked func(batch.Txid)
	// Reopened opens the database again after an unknown outcome.
	Reopened func(ctx context.Context) (*pebblestate.DB, error)
	// Mark, if not nil, tells whether a source that is opened for the first time is remembered as opened: what appears of it
	// later then begins at its beginning. A replay of batches that don't know the source must leave that open.
	Mark func(source string) bool
	// Sources, if not nil, replaces Plan.Sources[i].Open: the test kit and the replay driver bring their own.
	Sources func(id string) (emitter.Emitter, error)
	// Tables, if not nil, replaces Plan.Statics[i].Open: it returns the content of a static table that a ledger entry
	// names by its digest. Only recorded batches can run then. The replay driver takes it from the store in question.
	Tables func(ctx context.Context, name string, digest uint64) (pebblestate.StaticTable, bool, error)
}

// Executor runs the batches of one pipeline. Its methods are those that the runner drives, plus Open and Close.
type Executor struct {
	cfg      Config
	plan     *plan.Plan
	log      hclog.Logger
	emitters []emitter.Emitter // as Plan.Sources
	sourceAt map[string]int
	ready    chan struct{}
	waiting  bool // a batch was put off until one in flight has ended; guarded by mu
	stop     context.CancelFunc
	pumps    sync.WaitGroup
	// Held while a task, or a shard, is worked on. They are kept apart: a read that hangs must not keep the batch
	// before from its end.
	taskSlots, shardSlots chan struct{}
	// In which order ranges and shards are begun; nil: as they are numbered. alone: one range after the other.
	turns    func(n int) []int
	alone    bool
	tasks    []taskPool
	outs     outPool
	windowed bool
	timed    bool
	loads    bool // a source is loaded first
	// The policy of later stages, whose rows come of several sources: see stagePolicy.
	onBad plan.OnBad

	epoch   batch.Epoch
	targets []*target // as Plan.Sinks; empty without Config.Deliver
	// By source: partitions that appeared and whose starts aren't durable yet. Only Plan works on it.
	appeared [][]batch.Position
	// By source that is being loaded: the ends up to which others wait. Only Open and Plan work on it.
	loading map[string]map[batch.Partition]int64

	mu      sync.Mutex
	cursors map[batch.Partition]*cursor
	active  map[string]int // by source: partitions that had something in the last plan
	joining []batch.Position
	flights map[batch.Txid]*flight
	asked   time.Time // the clock of the latest planning
	// What the last committed batch left.
	txid    batch.Txid
	chain   uint64
	clock   time.Time // its Time
	times   *times
	windows windowSet
	given   []given          // as Plan.Sinks
	tally   tally            // if Plan.Dead is set
	wakes   map[string]int64 // by operator's state: no timer wants to be woken before; none: that isn't known
	tables  tables           // as the batch planned last leaves them
	// What the commit left with which Reached first found all positions reached: what comes later must not keep a bounded run
	// from its end.
	reachedAt *times
	recorded  map[batch.Txid]txstate.Entry // recorded and not committed
	schemas   []state.Schema               // of states that are new or described otherwise, and that no commit has brought yet
}

// cursor is where a partition stands, committed and planned.
type cursor struct {
	next      int64 // where the next range begins
	movedPlan time.Time
	saved     txstate.SavedPosition
}

// flight is one batch between its plan and its commit.
type flight struct {
	b        *batch.Batch
	expect   []txstate.RangeEntry // of a recorded batch: what reading must give
	results  []*partResult        // as b.Ranges
	stages   []*stageOut          // of later stages
	placed   map[int]int          // by index in Plan.Persists: how many stages were through when it was applied
	pages    []*arena             // memory that sets refer to
	read     chan struct{}        // closed when the source stage is done
	done     chan struct{}        // closed when the state stage is done
	times    *times               // what the batch leaves
	windows  windowSet
	timers   *rowWriter       // of _timers; nil as long as nothing changes there
	wakes    map[string]int64 // what the batch leaves; see Executor.wakes
	sets     []*state.WriteSet
	overlays map[string]*overlay
	states   []txstate.StateDigest
	counts   txstate.Counts
	outputs  []*sink.Output // as Plan.Sinks; nil for those that the batch has nothing for
	given    []given        // as Plan.Sinks: what the batch before leaves
	gives    []given        // what the batch leaves
	was      tally          // what the batch before leaves; if Plan.Dead is set
	tally    tally          // what the batch leaves
	again    bool           // a second run, for comparison
	known    bool           // the batch was recorded before: it has been held against all limits
	tables   []any          // the static tables that it uses, by index in Plan.Statics
	contents []*content     // those of them that it is the first to use
	undo     tables         // what Executor.tables was before it
	left     *times         // what the batch before left
	entry    *txstate.Entry
	took     txstate.Durations
	peeked   []plan.Peeked // not told yet; in the order of tasks
	told     map[*plan.Peek]int
}

// New returns an executor; Open must succeed before anything else is called.
func New(cfg Config) *Executor {
	if cfg.Procs <= 0 {
		cfg.Procs = runtime.GOMAXPROCS(0)
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	x := &Executor{
		cfg: cfg, plan: cfg.Plan, log: cfg.Logger,
		sourceAt: map[string]int{},
		ready:    make(chan struct{}, 1),
		appeared: make([][]batch.Position, len(cfg.Plan.Sources)),
		tasks:    make([]taskPool, len(cfg.Plan.Sources)),
		cursors:  map[batch.Partition]*cursor{},
		active:   map[string]int{},
		flights:  map[batch.Txid]*flight{},
		windows:  windowSet{},
		recorded: map[batch.Txid]txstate.Entry{},
	}
	x.taskSlots, x.shardSlots = make(chan struct{}, cfg.Procs), make(chan struct{}, cfg.Procs)
	x.outs.n = len(cfg.Plan.Exchanges)
	x.onBad = stagePolicy(cfg.Plan)
	for i, s := range cfg.Plan.Sources {
		x.sourceAt[s.ID] = i
		x.tasks[i].make = s.NewTask
		if s.Parallel > 0 {
			x.tasks[i].slots = make(chan struct{}, s.Parallel)
		}
		x.timed, x.loads = x.timed || s.Time != nil, x.loads || s.LoadFirst
	}
	x.windowed = checkStages(cfg.Plan)
	checkSinks(cfg.Plan)
	return x
}

// marker is the position by which the store remembers that a source has been opened before, even if it had no
// partition then: what appears later begins at its beginning, whatever the start policy says.
func marker(source string) batch.Partition { return batch.Partition{Source: source} }

func isMarker(p batch.Partition) bool { return p.Topic == "" }

// Open claims the next epoch, loads the static tables and opens the sources at their committed positions. New
// partitions' starts are durable when it returns. A transient failure may be followed by Close and another
// executor's Open; a permanent one is a reason not to start.
func (x *Executor) Open(ctx context.Context) (txstate.Snapshot, error) {
	store := x.cfg.DB.Store()
	snap, err := store.Load(ctx)
	if err != nil {
		return snap, err
	}
	outside, err := x.openSinks(ctx)
	if err != nil {
		return snap, x.located(err, 0)
	}
	x.epoch = max(snap.Epoch, x.cfg.Epoch, outside) + 1
	if err := store.Claim(ctx, x.epoch); err != nil {
		return snap, err
	}
	if x.cfg.Claim != nil {
		if err := x.cfg.Claim(ctx, x.epoch); err != nil {
			return snap, err
		}
	}
	snap.Epoch = x.epoch
	if err := x.checkHead(ctx, &snap); err != nil {
		return snap, x.located(err, 0)
	}
	if err := x.restore(ctx, snap); err != nil {
		return snap, err
	}
	if err := x.checkRecorded(snap.Recorded); err != nil {
		return snap, x.located(err, 0)
	}
	if err := x.checkPlan(ctx, snap.Txid); err != nil {
		return snap, x.located(err, 0)
	}
	if err := x.claimSinks(ctx, &snap); err != nil {
		return snap, x.located(err, 0)
	}
	if err := x.loadStatics(ctx); err != nil {
		return snap, err
	}
	pump, cancel := context.WithCancel(context.WithoutCancel(ctx))
	x.stop = cancel
	for _, s := range x.plan.Sources {
		em, err := x.openSource(ctx, s, snap.Positions)
		if err != nil {
			return snap, x.located(err, 0)
		}
		x.emitters = append(x.emitters, em)
		x.pumps.Go(func() { x.pump(pump, em) })
	}
	if x.cfg.Tables == nil { // recorded batches list only the partitions that move in them
		x.warnUnlisted(snap.Positions)
	}
	loaded := map[string]bool{}
	for _, p := range snap.Positions {
		if p.Partition == loadedMark(p.Source) {
			loaded[p.Source] = true
		}
	}
	if err := x.beginLoading(ctx, loaded); err != nil {
		return snap, x.located(err, 0)
	}
	x.signal()
	return snap, nil
}

// restore takes over what the last committed batch left. If it fails, nothing has changed.
func (x *Executor) restore(ctx context.Context, snap txstate.Snapshot) error {
	times := newTimes(x.plan)
	if snap.Txid > 0 {
		for e, err := range x.cfg.DB.Store().Entries(ctx, snap.Txid, snap.Txid) {
			if err != nil {
				return err
			}
			times.take(x.plan, e.Watermarks)
		}
	}
	windows, err := x.loadWindows(ctx)
	if err != nil {
		return err
	}
	given, err := x.loadGiven(ctx)
	if err != nil {
		return err
	}
	tally, err := x.loadTally(ctx)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.txid, x.chain, x.clock, x.times, x.windows, x.wakes = snap.Txid, snap.Chain, snap.Time, times, windows, nil
	x.given, x.tally = given, tally
	clear(x.cursors)
	x.joining = nil
	if f := x.flights[snap.Txid+1]; f != nil {
		x.tables = f.undo
	}
	// Those that did commit are still to be told to Success.
	maps.DeleteFunc(x.flights, func(t batch.Txid, _ *flight) bool { return t > snap.Txid })
	clear(x.recorded)
	for _, e := range snap.Recorded {
		x.recorded[e.Txid] = e
	}
	for _, p := range snap.Positions {
		if isMarker(p.Partition) {
			continue
		}
		x.cursors[p.Partition] = &cursor{next: p.Next, movedPlan: p.MovedAt, saved: p}
		i, ok := x.sourceAt[p.Source]
		if !ok {
			continue
		}
		if p.Joined == 0 {
			x.joining = append(x.joining, p.Position)
		} else if x.plan.Sources[i].Time != nil {
			x.times.parts[p.Partition] = p.EventTime
		}
	}
	slices.SortFunc(x.joining, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	return nil
}

func (x *Executor) openSource(ctx context.Context, s *plan.Source, saved []txstate.SavedPosition) (emitter.Emitter, error) {
	var em emitter.Emitter
	var err error
	if x.cfg.Sources != nil {
		em, err = x.cfg.Sources(s.ID)
	} else {
		em, err = s.Open(plan.Env{Logger: x.log.With("source", s.ID), Buffer: x.cfg.Fetched / int64(len(x.plan.Sources))})
	}
	if err != nil {
		return nil, err
	}
	first := true
	var mine []batch.Position
	for _, p := range saved {
		if p.Source != s.ID {
			continue
		}
		first = false
		if !isMarker(p.Partition) {
			mine = append(mine, p.Position)
		}
	}
	starts, err := em.Open(ctx, mine, first)
	if err != nil {
		return nil, errors.Join(err, em.Close(ctx))
	}
	if first && (x.cfg.Mark == nil || x.cfg.Mark(s.ID)) {
		starts = append(starts, batch.Position{Partition: marker(s.ID), LeaderEpoch: batch.NoEpoch})
	}
	if err := x.admit(ctx, em, starts); err != nil {
		return nil, errors.Join(err, em.Close(ctx))
	}
	return em, nil
}

// admit makes the starts durable, then lets the partitions take part.
func (x *Executor) admit(ctx context.Context, em emitter.Emitter, starts []batch.Position) error {
	if len(starts) == 0 {
		return nil
	}
	var fresh []batch.Position
	x.mu.Lock()
	for _, p := range starts {
		// The write of an earlier call may have failed and be there all the same: restore has found it then.
		if c := x.cursors[p.Partition]; c == nil || c.saved.Txid != 0 || c.saved.Position != p {
			fresh = append(fresh, p)
		}
	}
	x.mu.Unlock()
	if len(fresh) > 0 {
		if err := x.cfg.DB.Store().Admit(ctx, fresh); err != nil {
			return err
		}
	}
	var real []batch.Position
	x.mu.Lock()
	for _, p := range fresh {
		if !isMarker(p.Partition) {
			x.cursors[p.Partition] = &cursor{next: p.Next, saved: txstate.AdmittedAt(p)}
			x.joining = append(x.joining, p)
		}
	}
	slices.SortFunc(x.joining, func(a, b batch.Position) int { return a.Compare(b.Partition) })
	x.mu.Unlock()
	for _, p := range starts {
		if !isMarker(p.Partition) {
			real = append(real, p)
		}
	}
	for _, p := range real {
		x.log.Info("partition joins", "topic", p.Topic, "partition", p.Number, "offset", p.Next)
	}
	em.Admit(real)
	return nil
}

// warnUnlisted names saved positions that no source reads any more.
func (x *Executor) warnUnlisted(saved []txstate.SavedPosition) {
	listed := map[batch.Partition]bool{}
	for _, em := range x.emitters {
		for _, p := range em.Partitions() {
			listed[p] = true
		}
	}
	for _, p := range saved {
		if !isMarker(p.Partition) && !listed[p.Partition] {
			x.log.Warn("a partition with a saved position is not listed any more; its position is kept",
				"source", p.Source, "topic", p.Topic, "partition", p.Number, "offset", p.Next)
		}
	}
}

// pump passes an emitter's signals on.
func (x *Executor) pump(ctx context.Context, em emitter.Emitter) {
	for {
		select {
		case <-em.Ready():
			x.signal()
		case <-ctx.Done():
			return
		}
	}
}

func (x *Executor) signal() {
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

// Ready receives a value when Plan may have something.
func (x *Executor) Ready() <-chan struct{} { return x.ready }

// Epoch is the epoch that Open claimed.
func (x *Executor) Epoch() batch.Epoch { return x.epoch }

// Close ends the sources.
func (x *Executor) Close(ctx context.Context) error {
	if x.stop != nil {
		x.stop()
		x.pumps.Wait()
	}
	var errs []error
	for _, em := range x.emitters {
		errs = append(errs, em.Close(ctx))
	}
	errs = append(errs, x.closeSinks(ctx))
	return errors.Join(errs...)
}

// Emitters returns the opened sources.
func (x *Executor) Emitters() []emitter.Emitter { return x.emitters }

// Ends asks every source for its present end: the target of a bounded run.
func (x *Executor) Ends(ctx context.Context) (map[batch.Partition]int64, error) {
	all := map[batch.Partition]int64{}
	for _, em := range x.emitters {
		ends, err := em.Ends(ctx)
		if err != nil {
			return nil, fmt.Errorf("source %s: asking for its end: %w", em.ID(), err)
		}
		maps.Copy(all, ends)
	}
	return all, nil
}

// Reached tells whether every partition's committed position has reached its end in ends, and nothing is left to be done that
// the watermarks of then allowed: no window to be sent on, no key to be woken.
func (x *Executor) Reached(ends map[batch.Partition]int64) bool {
	x.mu.Lock()
	for p, end := range ends { // order: a conjunction
		c := x.cursors[p]
		if c == nil || c.saved.Next < end {
			x.reachedAt = nil
			x.mu.Unlock()
			return false
		}
	}
	if x.reachedAt == nil {
		x.reachedAt = x.times
	}
	at := x.reachedAt
	x.mu.Unlock()
	return x.settled(at)
}

// Committed returns the committed positions, in partition order.
func (x *Executor) Committed() (batch.Txid, []txstate.SavedPosition) {
	at := x.Point()
	return at.Txid, at.Positions
}

// Point tells where the store stands, with every partition ever admitted in batch.Partition order.
func (x *Executor) Point() txstate.Point {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]txstate.SavedPosition, 0, len(x.cursors))
	for _, c := range x.cursors {
		all = append(all, c.saved)
	}
	slices.SortFunc(all, func(a, b txstate.SavedPosition) int { return a.Compare(b.Partition) })
	return txstate.Point{Txid: x.txid, Epoch: x.epoch, Time: x.clock, Chain: x.chain, Positions: all}
}

// Tell hands over to a mirror what has committed.
func Tell(m txstate.Mirror, at txstate.Point) {
	if r, ok := m.(txstate.Recorder); ok {
		r.Advance(at)
		return
	}
	m.Committed(at.Txid, at.Epoch, at.Positions)
}

// located completes an error with what the executor knows of its place. One that is wrapped stays as it is: what
// wraps it may say more than its words, as pebblestate.ErrUnknownOutcome does.
func (x *Executor) located(err error, txid batch.Txid) error {
	e, ok := err.(*batch.Error) //nolint:errorlint // see above
	if !ok {
		return err
	}
	c := *e
	if c.Pipeline == "" {
		c.Pipeline = x.plan.Name
	}
	if c.Txid == 0 {
		c.Txid = txid
	}
	return &c
}
