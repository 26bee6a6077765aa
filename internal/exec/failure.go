package exec

import (
	"math"
	"sync"

	"github.com/tridentd/tridentd/batch"
)

// firstFailure keeps, of the failures of parts that run at once, that of the part which comes first in their order. So
// that it doesn't depend on timing which one is told, a part's permanent failure may cut off those behind it, and
// must leave those before it to their end. A transient failure ends all: what the batch would have met is found by
// its next attempt.
type firstFailure struct {
	mu   sync.Mutex
	at   int // math.MaxInt: none yet
	err  error
	over bool // a transient failure has ended all
}

func newFirstFailure() *firstFailure { return &firstFailure{at: math.MaxInt} }

// note takes the failure of part i and tells the first part whose outcome has ceased to matter by it: that and all
// behind it may be cut off.
func (f *firstFailure) note(i int, err error) (from int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || i >= f.at { // it may have failed for being cut off
		return math.MaxInt
	}
	f.at, f.err = i, err
	if batch.KindOf(err) == batch.Permanent {
		return i + 1
	}
	f.over = true
	return 0
}

// matters tells whether part i still has to run.
func (f *firstFailure) matters(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.over && i < f.at
}

// first is the failure to tell, nil if there was none. No part runs any more.
func (f *firstFailure) first() error { return f.err }
