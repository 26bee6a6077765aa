package engine

import (
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/txstate"
)

// Options are the settings of one run. The zero value runs with every default.
type Options struct {
	// DataDir is the directory that holds the data directories of pipelines: this one's is DataDir/<pipeline>.
	// Default: TRIDENTD_DATA_DIR, or "tridentd-data".
	DataDir string
	// Logger receives what happens. Default: none.
	Logger hclog.Logger
	// UntilCaughtUp ends the run once every partition has reached the end that it had when the run began.
	UntilCaughtUp bool
	// Procs bounds how many partitions and shards are worked on at once. Default: GOMAXPROCS. No result depends on it.
	Procs int
	// CheckDeterminism is the share of batches, 0 to 1, that are computed a second time before they commit, on another number of procs and
	// in another order. If one comes out otherwise, the run stops for good, and nothing of the batch is applied. Which batches these are
	// follows from their seeds. A checked batch costs about twice the work. Default: 0, none.
	CheckDeterminism float64
	// Grace is for how long a stop waits for batches in flight before it drops them. Default: 6 s.
	Grace time.Duration
	// Fresh lets a pipeline start over in an empty data directory although a mirror of its offsets (a Kafka group, ZooKeeper) says
	// that it has run; without it that is an error. It deletes nothing, and does nothing where a batch has committed.
	Fresh bool
	// CacheBytes bounds the values that the store keeps in memory, and once more its table blocks. Default: 128 MiB.
	CacheBytes int64
	// MemoryLimit bounds what the run keeps in memory, in bytes, unless the pipeline has a limit of its own (WithMemoryLimit). It
	// goes by the heap of the whole process, but doesn't set Go's limit for it (debug.SetMemoryLimit). Default: none.
	MemoryLimit int64
	// Standby has the run wait for as long as another process holds the pipeline's lock or its data directory, and again when it
	// has lost the lock; without it both are errors. The pipeline must have a lock.
	Standby bool
	// AfterOpen is called when the store has been opened: at the start, and under Standby each time that the run begins to lead. May
	// be nil.
	AfterOpen func()
	// BeforeClose is called when the run has ended, or has lost its lock, before the store is closed: whoever still reads a Snapshot must give it up
	// then, as closing waits for that, and fails in the end. May be nil.
	BeforeClose func()
	// Registerer receives the metrics of the run (docs/operating.md lists them). They stay registered when the run has ended, so that its end is
	// seen, until the pipeline's next run takes their place. May be nil: none are kept.
	Registerer prometheus.Registerer
	// Observer is told what happens. It must not block. May be nil.
	Observer Observer
	// store changes the options that the store is opened with, in tests; nil: it doesn't.
	store func(*pebblestate.Options)
}

// DefaultGrace is for how long a stop waits for the batches in flight.
const DefaultGrace = 6 * time.Second

// stopTimeout bounds the wait for calls that don't return once the batches have been dropped.
const stopTimeout = 2 * time.Second

// closeGrace bounds the orderly end of all that is left after the batches: sources, mirrors.
const closeGrace = 2 * time.Second

// Observer is told what happens in a run.
type Observer interface {
	// Resumed is told the last committed txid that the store held at the start.
	Resumed(txid batch.Txid)
	// Begun is told each beginning of a batch, first ones and repeated ones.
	Begun(txid batch.Txid, attempt batch.Attempt)
	// Failed is told each failure, of a batch or of the start.
	Failed(err error)
	// Committed is told each batch, in txid order, after its commit has been synced.
	Committed(e *txstate.Entry)
}

type noObserver struct{}

func (noObserver) Resumed(batch.Txid)              {}
func (noObserver) Begun(batch.Txid, batch.Attempt) {}
func (noObserver) Failed(error)                    {}
func (noObserver) Committed(*txstate.Entry)        {}

func (o Options) check() error {
	if !(o.CheckDeterminism >= 0 && o.CheckDeterminism <= 1) { // NaN is none
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "start", fmt.Errorf("Options.CheckDeterminism is %v", o.CheckDeterminism), "give a share between 0 and 1")
	}
	return o.checkMemory()
}

func (o Options) withDefaults() Options {
	if o.DataDir == "" {
		if o.DataDir = os.Getenv("TRIDENTD_DATA_DIR"); o.DataDir == "" {
			o.DataDir = "tridentd-data"
		}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	return o
}
