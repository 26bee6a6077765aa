// Package plan is what a pipeline is compiled to, whether it was written in Go (package engine) or in YAML
// (package spec), and what package internal/exec runs.
//
// A plan has one Task per source partition: the whole chain of steps from decoding to the map-side combine,
// fused by whoever compiled it. A task hands over, for each exchange it feeds, combined deltas by key. Between
// the stages lie only bytes: deltas of all tasks of a batch are merged per shard, in key order and, for equal
// keys, in source-partition order, and update a state or feed a later stage. Nothing in a plan depends on the
// number of cores.
package plan

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/deadletter"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

// DefaultShards is the number of shards of a pipeline's key space, fixed when it is first run.
const DefaultShards = 256

// OnBad is what happens to a record that can't be decoded or whose function fails.
type OnBad uint8

const (
	Stop       OnBad = iota // the pipeline stops with the record's place and the cause
	Skip                    // the record goes to the local state _rejected, in the same commit
	DeadLetter              // the record goes to the target of Plan.Dead, as all that the source has turned away does
)

// String is the policy's name in pipelines' files.
func (p OnBad) String() string { return [...]string{"stop", "skip", "dead_letter"}[p] }

// Plan is a compiled pipeline.
type Plan struct {
	Name string
	// Text is a canonical description of everything that decides the results: sources, steps, states. Its hash is
	// the plan's hash in the ledger. Limits and comments are no part of it.
	Text string
	// Definition is the same by its parts; nil if the author of the plan doesn't tell. See Define.
	Definition *Definition
	// Lines describe the plan for people: one line per source, step, exchange and state (validate prints them).
	Lines []string

	Sources   []*Source   // by ID
	Exchanges []*Exchange // an exchange is fed by sources and by exchanges before it only
	Persists  []*Persist
	Sinks     []*Sink // by name
	// Dead is what becomes of records under the policy DeadLetter; nil if no source has it.
	Dead    *DeadLetters
	Statics []*Static
	Queries []*Query // by name

	Batch Limits

	Ledger     Ledger
	Memory     int64 // limit of a run, in bytes; 0: the run's own. No part of Plan.Text.
	Savepoints Savepoints

	// Keeper is where the master keeps its record besides the store; nil: nowhere.
	Keeper *Keeper
}

// Keeper is a server outside that is told what the master does, and may say who is the master: ZooKeeper. It is no part
// of Plan.Text, as no result depends on it.
type Keeper struct {
	Describe string // in one line, without secrets
	// Record makes the mirror that keeps the record. It contacts nobody. If what it returns is a txstate.Gate, no batch
	// commits while that doesn't let it pass.
	Record func(env Env) (txstate.Mirror, error)
	// Lock makes the lock; nil: whoever has the data directory may run. The mirror works under its lease.
	Lock func(env Env) (txstate.Lock, error)
	// Check asks the servers.
	Check func(ctx context.Context, env doctor.Env) []doctor.Finding
}

// Ledger says what is kept of committed batches. It is no part of Plan.Text.
type Ledger struct {
	// Changes keeps each batch's write sets beside its entry, so that a replay that comes out different can name key and
	// both values.
	Changes bool
	// Entries are trimmed by whichever bound is met first, never above what a savepoint needs.
	MaxAge     time.Duration // of commit time; 0: DefaultLedgerAge, negative: none
	MaxBytes   int64         // on disk; 0: DefaultLedgerBytes, negative: none
	MaxBatches int64         // 0: none
	// Beyond these nothing is kept for savepoints either.
	HeldAge   time.Duration // 0: no bound
	HeldBytes int64         // of the whole ledger; 0: no bound
}

// Defaults of Ledger.
const (
	DefaultLedgerAge   = 7 * 24 * time.Hour
	DefaultLedgerBytes = 2 << 30
)

// Savepoints says where and when savepoints are made by themselves. It is no part of Plan.Text.
type Savepoints struct {
	To    string        // a folder, absolute, or a bucket's URL; empty: none are made
	Every time.Duration // 0: DefaultSavepointEvery
	Keep  int           // of those made by schedule; 0: DefaultSavepointKeep
}

// Defaults of Savepoints.
const (
	DefaultSavepointEvery = time.Hour
	DefaultSavepointKeep  = 24
)

// Limits are the settings of batching. Zero values stand for the defaults.
type Limits struct {
	MaxRecords int64 // per source partition and batch; 0: adaptive, at most DefaultMaxRecords
	MaxBytes   int64 // raw bytes of all that is in flight; 0: DefaultMaxBytes
	MaxPending int   // batches in flight; 0: DefaultMaxPending
	Interval   time.Duration
	Timeout    time.Duration // of one attempt, after which it counts as a transient failure; 0: none
	Retry      Retry
}

// Defaults of Limits.
const (
	DefaultMaxRecords = 200_000
	DefaultMaxBytes   = 64 << 20
	DefaultMaxPending = 4
)

// DefaultRetention is for how long of batch time a window's rows are kept after it has closed.
const DefaultRetention = 7 * 24 * time.Hour

// Retry is the policy for transient failures.
type Retry struct {
	Min, Max time.Duration // back-off; 0: 100 ms and 30 s
	Attempts int           // per txid; 0: for ever
	For      time.Duration // per txid, since its first failure; 0: for ever
}

// Source is one source and the chain of steps that begins at it.
type Source struct {
	ID string
	// Framing is what the source is opened with; whoever brings records of its own (the test kit) must match it.
	Framing emitter.Framing
	Open    func(env Env) (emitter.Emitter, error)
	NewTask func() Task
	OnBad   OnBad
	// LoadFirst: other sources wait until this one has been read to the end that it has when it is first opened.
	LoadFirst bool
	Time      *EventTime // nil: the source has no event time
	// Parallel bounds how many of its partitions are worked on at once; 0: as many as there are procs. No result depends on it.
	Parallel int
	// Mirror makes what is told the source's committed positions; nil: nothing is. It contacts nobody.
	Mirror func(env Env) (txstate.Mirror, error)
	// Mirrored names what Mirror writes, for example a topic's offsets in a group: two sources that wrote the same
	// would write over each other.
	Mirrored []string
	// Exporter makes what writes the source's positions on purpose to another place of the kind that Mirror writes to: the
	// consumer group of the given name, its own if that is empty. It is a txstate.Exporting. nil: there is no such kind.
	Exporter func(env Env, place string) (txstate.Mirror, error)
	// Survey asks the source's servers without opening it; nil: it can't be asked.
	Survey func(ctx context.Context, env Env, q emitter.SurveyQuery) ([]emitter.Survey, error)
	// Resend sends records to the source's topics: see emitter.Resending; nil: nothing can be sent there.
	Resend func(ctx context.Context, env Env, records []emitter.Resent) (int, error)
	// Check asks the source's servers how they are; nil: it can't be checked.
	Check func(ctx context.Context, env doctor.Env) []doctor.Finding
}

// Env is what a source is opened with.
type Env = emitter.Env

// EventTime is a source's rule for the watermark.
type EventTime struct {
	Lateness time.Duration
	Idle     time.Duration // 0: DefaultIdle
	Future   time.Duration // a time further than this ahead of the batch's clock is turned away; 0: DefaultFuture
}

// Defaults of EventTime.
const (
	DefaultIdle   = time.Minute
	DefaultFuture = time.Hour
)

// Task runs the chain of one source partition (or, in a later stage, of one shard), for one batch at a time. A
// task isn't used by two goroutines at once; it keeps its buffers from batch to batch.
type Task interface {
	// Begin starts a batch. Whatever an earlier batch left is dropped.
	Begin(tc *TaskContext) error
	// Process takes the next records, in offset order.
	Process(c *batch.Chunk) error
	// End completes tc.Out.
	End() error
}

// StageTask is the Task of a later stage: it takes the merged rows of one shard in key order.
type StageTask interface {
	Begin(tc *TaskContext) error
	// Row takes one key with its merged delta (batch aggregates), its value (states, as State.Emit says) or a row that an
	// Operator emitted for it.
	Row(key, value []byte) error
	End() error
}

// RowTask is the task of a stage behind a Persist.
type RowTask interface {
	Begin(tc *TaskContext) error
	// Row takes what Persist.Apply emitted, in order.
	Row(row any) error
	End() error
}

// TaskContext is a task's view of its batch.
type TaskContext struct {
	Batch     *batch.Batch
	Partition batch.Partition // zero in later stages
	Shard     int             // in later stages
	// Final says, in later stages, that the next rows are those of windows that have just closed (EmitCloses).
	Final bool
	// State returns a state as the exchanges, and the persists placed between them, that stand before have left it in this
	// batch. It is nil in the source stage. The state must exist and not be Mergeable. A Reader isn't used by two goroutines
	// at once.
	State  func(name string) state.Reader
	OnBad  OnBad
	Future time.Duration
	// Careful asks the task to guard each user function by itself, so that a panic is a bad record of that step.
	// Without it, the task may let panics through: the executor runs it again, careful.
	Careful bool
	// Watermarks holds, by index in Plan.Sources, what the batch before left; txstate.NoTime where there is none.
	Watermarks []int64
	// Statics holds, by index in Plan.Statics, what Static.Build returned.
	Statics []any

	// EventTime is the largest event time seen in this partition, in nanoseconds; the task raises it.
	EventTime int64
	// Out[i] receives the deltas for exchange i. Entries for exchanges that the task doesn't feed stay empty.
	Out []*Deltas
	// Persist[i] receives the rows for Plan.Persists[i], as that expects them; nil for none.
	Persist []any
	// Sinks[i] receives the output for Plan.Sinks[i]; nil for none.
	Sinks []*sink.Buffer
	// Rejected are the rows turned away, in the order of their offsets.
	Rejected []Rejected
	// Filtered counts the rows that filters dropped. The task adds to it.
	Filtered int64
	// Peeked are the rows that a task's peeks show, in the order in which they came to them.
	Peeked []Peeked
	// Trace, if not nil, asks the task to note what each step hands on. A task that can't tell leaves it empty.
	Trace *Trace
}

// RejectKind says why a row was turned away.
type RejectKind string

const (
	RejectBad    RejectKind = deadletter.Bad
	RejectLate   RejectKind = deadletter.Late
	RejectFuture RejectKind = deadletter.Future
)

// Rejected is a row that was turned away. Key and Value are the source record's own, copied. In later stages Key is the
// row's key as text, Value the row as JSON where it was repartitioned, and there is no Timestamp.
type Rejected struct {
	Kind      RejectKind
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []batch.Header // of a source record under the policy DeadLetter; copied
	Step      string
	Cause     string
}

// Peek is a place in a plan of which rows are shown to people. It is no part of Plan.Text, and no result depends on it.
type Peek struct {
	Stream string
	N      int // counts the stream's peeks, from 1
	Rows   int // the most of each batch that are shown; a task needs to give no more
}

// Peeked is a row that has come to a peek. It refers to nothing of the task that gives it.
type Peeked struct {
	Peek      *Peek
	Partition batch.Partition // in later stages, as Rejected: the stage's name and the shard
	Offset    int64           // of the record that the row comes from; in later stages, the row's number in its shard
	Fields    []any           // names and values by turns
}

// Exchange brings deltas with equal keys together and says what is done with them.
type Exchange struct {
	Name string // the stream's name, for errors and figures
	// Merge appends to dst the combination of delta a, then b. It must be associative. nil: deltas are put one behind the
	// other. An Operator has none, as it takes them one by one.
	Merge func(dst, a, b []byte) ([]byte, error)
	// State is updated with the merged deltas; nil for a batch aggregate. With an Operator it is what that keeps.
	State *State
	// Operator makes what works on the state's keys instead of Merge and State.Update; nil: these do.
	Operator func() Operator
	// Output is a state that the operator writes rows to; nil: none. Its Update isn't used.
	Output *State
	// Next makes the tasks of the stage behind the exchange; nil if there is none.
	Next func() StageTask
	// FormatKey writes an encoded key for people, in errors.
	FormatKey func(key []byte) string
	// Parallel bounds how many shards are worked on at once; 0: as many as there are procs. No result depends on it.
	Parallel int
}

// State is a state that an exchange updates.
type State struct {
	Schema state.Schema
	// Mergeable states are written as merge operands, without reading: only where agg.Merge is exactly associative
	// and nobody needs the new value within the batch: nothing is emitted, and no later stage reads the state.
	Mergeable bool
	// Emit says which rows go to Exchange.Next; it is empty where there is none, or an operator says it.
	Emit Emit
	// Clock is what an operator's timers go by, or what closes the windows of a windowed state.
	Clock Clock
	// TimeSources are the indices in Plan.Sources whose watermarks close the windows of a windowed state, or are the clock
	// of an operator; of ClockEvent.
	TimeSources []int
	// Zero returns the cells of a value that no record has reached; nil where the values are no cells.
	Zero func() []byte
	// Update appends the new value to dst. old is nil where the key is absent. keep = false removes the key.
	Update func(dst, old, delta []byte) (value []byte, keep bool, err error)
}

// Emit is a set of reasons for which a state's rows go to the stage behind it.
type Emit uint8

const (
	// EmitUpdates sends each key that a batch changed, with its new value.
	EmitUpdates Emit = 1 << iota
	// EmitCloses sends all rows of each window that closes, in key order, with TaskContext.Final set. Batch T closes the
	// windows whose ends the watermark left by T-1 has reached, once T's own deltas are applied. A window that a batch writes
	// to after it closed, as a source that joined has held the watermark's sources back, closes again and is sent again.
	EmitCloses
)

// Clock is what an operator's timers, or windows, go by.
type Clock uint8

const (
	ClockEvent Clock = iota // the watermark of the state's TimeSources that the batch before left
	ClockBatch              // the batch's clock
)

// NoWake is what Operator.Wake returns for a value that doesn't want to be woken.
const NoWake = txstate.NoTime

// Operator works on the keys of one state with all that comes for them, and may want to be woken at times. What it does is a
// function of its arguments: it keeps nothing from call to call but buffers, and isn't used by two goroutines at once. It guards the
// functions of users that it calls: a panic of its own ends the process.
type Operator interface {
	// Key takes all that a batch brings for a key, in the order of tasks (sources by id, topic, partition; stages behind them)
	// and, within a task, in the order in which it was added: nothing, if the key is only woken. old is nil where the key is
	// absent. It returns the new value, or keep = false, which removes the key. A value that is kept must not want to be
	// woken at or before c.Now. The arguments may be used until it returns; value until the next call.
	Key(c *KeyContext, key, old []byte, deltas [][]byte) (value []byte, keep bool, err error)
	// Wake tells when a value wants to be woken, in nanoseconds; NoWake: never. It is a pure function.
	Wake(value []byte) int64
}

// KeyContext is an operator's view of its batch.
type KeyContext struct {
	Batch *batch.Batch
	Shard int
	OnBad OnBad
	// Now is the operator's clock: timers up to it are due. It is txstate.NoTime where there is no watermark yet.
	Now int64
	// Emit hands a row to Exchange.Next, with the key.
	Emit func(row []byte) error
	// Reject turns a row away.
	Reject func(r Rejected)
	// Row reads a row of Exchange.Output as the batches before have left it.
	Row func(key []byte) (row []byte, ok bool, err error)
	// Put and Delete write a row of Exchange.Output. They are applied in the order of shards, keys and calls. Both arguments are copied.
	Put    func(key, value []byte)
	Delete func(key []byte)
}

// Persist is a partitionPersist: rows kept per task and applied to a state one task after the other, in
// source-partition order, then in the order of the stages before it and their shards, with the writes of earlier ones visible.
type Persist struct {
	Name   string
	Schema state.Schema
	Apply  func(ctx context.Context, b *batch.Batch, p batch.Partition, rows any, st ReadWriter) error
	// Before is the exchange ahead of which the rows are applied, so that it and those behind it may take what Next makes, and
	// read the state; nil: behind all exchanges. All the rows must come of stages before it.
	Before *Exchange
	// Next makes the tasks of the stage behind: one for each task whose rows made Apply emit something. What a task has for
	// other persists goes to later ones. nil if there is none.
	Next func() RowTask
}

// Sink is a target outside that takes rows. It is no part of the definition of any state.
type Sink struct {
	Name string
	// Describe names the target in one line, without addresses and secrets.
	Describe string
	// Open makes the sink of one run. It contacts nobody.
	Open func(env Env) (sink.Sink, error)
	// Check asks the target how it is; nil: it can't be checked.
	Check func(ctx context.Context, env doctor.Env) []doctor.Finding
	// Transactions asks for those that the target's servers hold for the pipeline; nil: they hold none.
	Transactions func() (sink.Transactions, error)
}

// DeadLetters says what becomes of records that a source with the policy DeadLetter turns away. The plan has a sink of the name
// DeadLettersSink, to which no task sends anything: the letters of a batch are its output, in the order of source partitions, then of
// later stages and their shards.
type DeadLetters struct {
	// Encode makes the target's record of a letter; r comes empty. It is a pure function.
	Encode func(l *deadletter.Letter, r *sink.Record) error
	// Read passes on what the target holds of the pipeline, in the order in which it lies there; nil: it can't be read.
	Read  func(ctx context.Context, env Env, yield func(*deadletter.Letter) error) error
	Limit DeadLimit
}

// DeadLettersSink is the name of the sink that takes dead letters.
const DeadLettersSink = deadletter.Sink

// DeadLimit is how many bad records may become dead letters before the pipeline stops: what is met first counts. Late records, and those
// of the future, don't.
type DeadLimit struct {
	Count int64   // within Within; 0: any number
	Share float64 // of the records read within Within, once there are more than DeadShareFrom; 0: any share
	// Within is how far back of the batch's clock is looked.
	Within time.Duration
}

// Defaults of DeadLimit, and how many dead letters within DeadLimit.Within are never too large a share.
const (
	DefaultDeadCount  = 1000
	DefaultDeadShare  = 0.01
	DefaultDeadWithin = time.Hour
	DeadShareFrom     = 10
)

// WithDefaults fills in what isn't set: Count and Share where neither is, and Within.
func (l DeadLimit) WithDefaults() DeadLimit {
	if l.Count == 0 && l.Share == 0 {
		l.Count, l.Share = DefaultDeadCount, DefaultDeadShare
	}
	if l.Within == 0 {
		l.Within = DefaultDeadWithin
	}
	return l
}

// Definition is the part of the limit that decides what the store keeps, in one line.
func (l DeadLimit) Definition() string { return "counted within " + l.Within.String() }

// String is the limit for people: "1000 or 1% within 1h0m0s".
func (l DeadLimit) String() string {
	var parts []string
	if l.Count > 0 {
		parts = append(parts, strconv.FormatInt(l.Count, 10))
	}
	if l.Share > 0 {
		parts = append(parts, Percent(l.Share))
	}
	return strings.Join(parts, " or ") + " within " + l.Within.String()
}

// Percent writes a share of 1 in percent.
func Percent(share float64) string { return strconv.FormatFloat(share*100, 'g', 3, 64) + "%" }

// ReadWriter is a state under change by one batch. Reads see the batch's own writes.
type ReadWriter interface {
	state.Reader
	Set(key, value []byte)
	Delete(key []byte)
	// Emit hands a row to Persist.Next. It must not be changed any more.
	Emit(row any)
}

// Static is a table that is read whole when the pipeline starts and copied into the store.
type Static struct {
	Name string
	Open func(env Env) (emitter.Emitter, error)
	// Check asks the table's source how it is; nil: it can't be checked.
	Check func(ctx context.Context, env doctor.Env) []doctor.Finding
	// Build makes the table that tasks find in TaskContext.Statics. The records may be kept.
	Build func(parts []StaticPart) (any, error)
}

// StaticPart is the content of one partition of a static table's source.
type StaticPart struct {
	Partition batch.Partition
	Chunk     batch.Chunk
}
