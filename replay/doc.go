// Package replay proves that a pipeline's results are what its ledger says: it runs the recorded batches again, over
// the same offset ranges with the same clocks and seeds, in a store of its own, and compares.
//
// Compared are, batch by batch, the input (count and digest of what each range holds), what the batch changed in each
// state, its counts and the chain of all digests so far; and in the end every state's rows, byte for byte. The first
// batch that doesn't come out equal is a *Different. Input that can't be read again as it was is another matter: an
// error with batch.CodeUnreplayable (or the cause, such as batch.CodeFileChanged) that names partition and range.
//
// The store in question is only read, and must be at rest: no run works on it meanwhile.
package replay
