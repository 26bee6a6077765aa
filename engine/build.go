package engine

// Build tells which code makes batches: module version or revision, Go version, architecture and its level. It goes into
// each ledger entry, as two builds may differ in the last bit of a float.
func Build() string { return buildID() }
