package daemon

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/tridentd/tridentd/engine"
)

// defaultMemoryLimit is what a run may keep in memory if its pipeline doesn't say, in bytes: GOMEMLIMIT, else half of what there is; 0 if
// that isn't known.
func defaultMemoryLimit() int64 {
	limit := memoryTotal() / 2
	if os.Getenv("GOMEMLIMIT") != "" {
		limit = debug.SetMemoryLimit(-1)
	}
	switch limit {
	case 0, math.MaxInt64:
		return 0
	default:
		return max(limit, engine.MinMemoryLimit)
	}
}

// boundHeap tells Go's garbage collector of a run's limit, unless GOMEMLIMIT does. A quarter is left for what the store keeps outside
// the heap: blocks of tables and memtables.
func boundHeap(limit int64) {
	if limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit - limit/4)
	}
}
