// Package invariant states what the engine takes for granted about itself. A broken invariant is a bug, never a
// user's mistake: it panics, as going on could commit a wrong result.
//
// Cheap conditions are checked always, by Check. Checks whose cost grows with the data stand in
// `if invariant.Enabled { … }`, which the compiler removes unless the build tag `invariants` is set.
package invariant

import "fmt"

// Check panics with the formatted text if cond does not hold. The arguments are evaluated either way: keep them
// to values at hand.
func Check(cond bool, format string, args ...any) {
	if !cond {
		panic("broken invariant: " + fmt.Sprintf(format, args...))
	}
}
