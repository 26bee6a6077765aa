package exec

import (
	"math"
	"sync"

	"github.com/tridentd/tridentd/batch"
)

// patience is how many attempts of a batch a transient failure may end at once. From then on the parts beside it run to their
// end, so that it doesn't hide a permanent failure of one of them for as long as it lasts.
const patience = 3

// firstFailure keeps, of the failures of parts that run at once, that of the part which comes first in their order. So
// that it doesn't depend on timing which one is told, a part's permanent failure may cut off those behind it, and
// must leave those before it to their end. A transient failure ends all: what the batch would have met is found by
// its next attempt.
//
// If whole is set a transient failure ends no other part, and is told only if there is no permanent one.
type firstFailure struct {
	whole bool

	mu   sync.Mutex
	at   int // math.MaxInt: none yet
	err  error
	kind batch.Kind // of err
	over bool       // a transient failure has ended all
}

func newFirstFailure() *firstFailure { return &firstFailure{at: math.MaxInt} }

// firstFailureOf is for the parts of an attempt of a batch.
func firstFailureOf(b *batch.Batch) *firstFailure {
	f := newFirstFailure()
	f.whole = b.Attempt.N > patience
	return f
}

// note takes the failure of part i and tells the first part whose outcome has ceased to matter by it: that and all
// behind it may be cut off.
func (f *firstFailure) note(i int, err error) (from int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := batch.KindOf(err)
	ahead := i < f.at
	if f.whole && f.err != nil && kind != f.kind {
		ahead = kind == batch.Permanent
	}
	if f.over || !ahead { // it may have failed for being cut off
		return math.MaxInt
	}
	f.at, f.err, f.kind = i, err, kind
	switch {
	case kind == batch.Permanent:
		return i + 1
	case f.whole:
		return math.MaxInt
	}
	f.over = true
	return 0
}

// matters tells whether part i still has to run.
func (f *firstFailure) matters(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.over && (i < f.at || f.whole && f.kind == batch.Transient)
}

// first is the failure to tell, nil if there was none. No part runs any more.
func (f *firstFailure) first() error { return f.err }
