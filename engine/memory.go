package engine

import (
	"cmp"
	"fmt"
	"runtime/metrics"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
)

// MinMemoryLimit is the least that a run can do with, in bytes.
const MinMemoryLimit = 64 << 20

// WithMemoryLimit bounds, in bytes, what a run keeps in memory: the store's caches and write buffers, what sources have fetched and
// batches in flight get a share each. Where states or functions of the pipeline's own take more than that leaves, batches become small and wait for
// each other. At least MinMemoryLimit; by default Options.MemoryLimit counts. No result depends on it.
func WithMemoryLimit(bytes int64) PipelineOption {
	return func(p *Pipeline) {
		if bytes < MinMemoryLimit {
			p.errorf("WithMemoryLimit: %d bytes, at least %d are needed", bytes, int64(MinMemoryLimit))
		}
		p.memory = bytes
	}
}

func (o Options) checkMemory() error {
	if o.MemoryLimit != 0 && o.MemoryLimit < MinMemoryLimit {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "start", fmt.Errorf("Options.MemoryLimit is %d bytes", o.MemoryLimit),
			fmt.Sprintf("give at least %d MiB, or 0 for no limit", MinMemoryLimit>>20))
	}
	return nil
}

// budget is how a memory limit is shared out, in bytes: a sixteenth each for the cached values, the cached table blocks, the writes that
// wait for their flush, what sources have fetched and the raw records in flight. These are there about seven times at worst, where every record becomes
// a large row of its own: as rows, deltas, values and in the batches and the log of the store. Where the limit leaves more than
// the defaults take, these stay.
type budget struct {
	limit    int64 // 0: none; all others are the defaults then
	cache    int64 // of values, and once more of blocks
	memTable int64
	fetched  int64 // over all sources
	inFlight int64
	live     int64 // live heap from which on batches wait for each other
}

func newBudget(limit, cache, inFlight int64) budget {
	b := budget{
		limit: limit, cache: cmp.Or(cache, pebblestate.DefaultCacheBytes), memTable: pebblestate.DefaultMemTableBytes, inFlight: cmp.Or(inFlight, plan.DefaultMaxBytes),
	}
	if limit == 0 {
		return b
	}
	b.cache = min(b.cache, limit/16)
	b.inFlight = min(b.inFlight, limit/16)
	b.memTable = min(b.memTable, limit/16/pebblestate.MemTables)
	b.fetched = limit / 16
	b.live = limit / 2
	return b
}

// BytesInFlight is how many raw bytes the batches in flight may hold under a memory limit, if their own bound (0: the default) isn't lower.
func BytesInFlight(limit, bound int64) int64 { return newBudget(limit, 0, bound).inFlight }

// MemoryLimit is what bounds the memory of the run, in bytes; 0: nothing does.
func (h *Handle) MemoryLimit() int64 { return h.memory.limit }

// pressed tells whether so much of the heap is in use that a batch should wait until the one before has committed. The limit is the
// process's, as the heap is.
func (b budget) pressed() bool {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() > uint64(b.live)
}
