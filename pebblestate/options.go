package pebblestate

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
)

// Defaults of Options.
const (
	DefaultShards        = 256
	DefaultCacheBytes    = 128 << 20
	DefaultMemTableBytes = 16 << 20
	// MemTables is how many of them may wait for their flush before a commit waits.
	MemTables            = 4
	DefaultMaxBatchBytes = 1 << 30
	DefaultMinFreeBytes  = 16 << 20

	// MaxShards is bounded by the two bytes that a shard has in a key.
	MaxShards = 1 << 16
	// maxBatchBytes lies below Pebble's own limit of 4 GiB, beyond which it panics.
	maxBatchBytes = 3 << 30
)

// Options of a database. The zero value of a field stands for its default.
type Options struct {
	// Dir is the data directory of one pipeline. Files in it that aren't the database's are left alone.
	Dir string
	// FS is where Dir lies; nil is the operating system's.
	FS vfs.FS
	// Logger is told what the database does (at debug) and what goes wrong; nil is silence.
	Logger hclog.Logger
	// Pipeline owns the database: opening it under another name is refused. With ReadOnly it may be left empty, for
	// whichever pipeline's it is.
	Pipeline string
	// Shards is the number of slices of the key space, fixed when the database is created; an existing one keeps
	// its own.
	Shards int
	// ReadOnly opens a database at rest. Nothing in its directory changes.
	ReadOnly bool
	// CreateIfMissing makes a new database in a directory that is missing or holds none. A damaged one is never
	// replaced.
	CreateIfMissing bool
	// Lock is that of Dir, if the caller holds it; Close leaves it held. Nil: Open takes it.
	Lock *Lock
	// CacheBytes bounds the values kept in memory, and once more the table blocks.
	CacheBytes int64
	// MemTableBytes is how much is written before it goes from memory and log to a table.
	MemTableBytes int64
	// MaxBatchBytes bounds one write, at most 3 GiB: a batch that changes more is refused.
	MaxBatchBytes int64
	// MinFreeBytes is the room that a commit leaves on the device: below it commits fail with
	// batch.CodeStoreFull before anything is written, and what Pebble does in the background still has room.
	// Negative means none.
	MinFreeBytes int64
	// Fatal is called where Pebble can't go on and must not return; nil logs the cause and ends the process with
	// status 1. Nothing that had committed is lost by that.
	Fatal func(error)

	merge    mergeFunc     // nil: agg.Merge
	patience time.Duration // how long readers are waited for, in tests; 0: lockPatience
}

func (o Options) withDefaults() (Options, error) {
	refuse := func(format string, args ...any) (Options, error) {
		return o, batch.NewError(batch.Permanent, batch.CodeConfiguration, "open", fmt.Errorf(format, args...), "")
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.CacheBytes, DefaultCacheBytes)
	def(&o.MemTableBytes, DefaultMemTableBytes)
	def(&o.MaxBatchBytes, DefaultMaxBatchBytes)
	def(&o.MinFreeBytes, DefaultMinFreeBytes)
	if o.Shards == 0 {
		o.Shards = DefaultShards
	}
	if o.merge == nil {
		o.merge = agg.Merge
	}
	if o.Fatal == nil {
		logger := o.Logger
		o.Fatal = func(err error) {
			logger.Error("the database can't go on; what has committed is safe", "error", err)
			os.Exit(1)
		}
	}
	switch {
	case o.Dir == "":
		return refuse("Options.Dir is empty")
	case o.Pipeline == "" && !o.ReadOnly:
		return refuse("Options.Pipeline is empty")
	case o.Shards < 1 || o.Shards > MaxShards:
		return refuse("Options.Shards is %d, possible are 1 to %d", o.Shards, MaxShards)
	case o.CacheBytes < 0:
		return refuse("Options.CacheBytes is %d", o.CacheBytes)
	case o.MemTableBytes < 64<<10 || o.MemTableBytes > 1<<30:
		return refuse("Options.MemTableBytes is %d, possible are 64 KiB to 1 GiB", o.MemTableBytes)
	case o.MaxBatchBytes < 1 || o.MaxBatchBytes > maxBatchBytes:
		return refuse("Options.MaxBatchBytes is %d, possible are 1 to %d", o.MaxBatchBytes, int64(maxBatchBytes))
	}
	return o, nil
}

// pebbleFormat is the newest format of Pebble 2.1. It is named rather than taken as the newest, so that an upgrade
// of the library doesn't change what older builds can open.
const pebbleFormat = pebble.FormatValueSeparation

// pebbleOptions are tuned for few, large, sorted, synced batches. Where a value differs from Pebble's default:
//
//   - Memtables of 16 MiB (4 MiB): a batch of 100,000 keys fits. Larger ones take more memory and are no faster: inserting takes longer.
//     Up to MemTables of them (2) may wait for their flush before a commit waits.
//   - Level 0 stops writes at 1,000 sublevels (12): a commit waits for memory, hardly ever for compaction.
//   - Blocks of 16 KiB (4 KiB), half the index, and ten bits of bloom filter per key (none): states are read by
//     point lookups, mostly of keys that the cache misses because they are new.
//   - Half the cores (1) compact at once, as the other half computes.
//
// As by default, the log is synced with each commit without a least interval between syncs, and tables are
// compressed with the fast codec.
func (o *Options) pebbleOptions(fs vfs.FS, logger pebble.Logger, listener *pebble.EventListener) *pebble.Options {
	p := &pebble.Options{
		FS:                          fs,
		Logger:                      logger,
		EventListener:               listener,
		Merger:                      newMerger(o.merge),
		FormatMajorVersion:          pebbleFormat,
		ErrorIfNotExists:            true,
		CacheSize:                   max(o.CacheBytes, 8<<20),
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: MemTables,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               64 << 20,
		CompactionConcurrencyRange:  func() (lower, upper int) { return 1, max(1, runtime.GOMAXPROCS(0)/2) },
	}
	p.TargetFileSizes[0] = 4 << 20
	for i := range p.Levels {
		p.Levels[i].BlockSize = 16 << 10
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		p.Levels[i].FilterType = pebble.TableFilter
	}
	return p
}

// logger is Pebble's view of the Logger. Pebble reports failures of its own invariants, of the MANIFEST and of
// log rotation by Fatalf, and relies on it not to return.
type logger struct {
	hclog.Logger
	fatal func(error)
}

func (l logger) Infof(format string, args ...any)  { l.Debug(fmt.Sprintf(format, args...)) }
func (l logger) Errorf(format string, args ...any) { l.Warn(fmt.Sprintf(format, args...)) }

func (l logger) Fatalf(format string, args ...any) {
	l.fatal(fmt.Errorf(format, args...))
	runtime.Goexit() // Fatal returned although it must not: at least this goroutine ends
}

// throttle is how long a failed background job waits before Pebble tries it again.
const throttle = 50 * time.Millisecond

func (db *DB) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if errors.Is(err, errFenced) {
				select {} // the handle has been given up; Pebble would try again for ever
			}
			db.opts.Logger.Error("background work of the database failed", "error", err)
			db.fail(err)
			time.Sleep(throttle)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) { db.fail(db.damagedBy(info.Path, info.Details)) },
		ManifestCreated: func(info pebble.ManifestCreateInfo) {
			if info.Err == nil {
				db.manifested.Store(true)
			}
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			db.opts.Logger.Warn("commits wait for the database's background work", "reason", info.Reason)
		},
	}
}
