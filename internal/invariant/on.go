//go:build invariants

package invariant

// Enabled tells whether costly checks are compiled in.
const Enabled = true
