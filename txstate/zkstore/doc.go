// Package zkstore keeps the master's record in ZooKeeper, below <path>/<id>: where the store stands, the batch at work and
// every partition's position, as JSON that a person can read. It is a txstate.Recorder: what it holds never leads
// the store, since it is told of a batch only after the batch's commit has been synced, and losing it loses nothing.
//
// # What is written
//
// The node record and, for each source, pages of positions; docs/internals/zookeeper.md has every byte. A write takes
// along only what has changed, conditional on the version of each node that it touches. No node grows with the number of
// partitions: a page has at most maxPage bytes. What fits into one request is written in one, all or nothing;
// otherwise pages go first, the last page leading, and the record follows: whoever reads the record finds positions that are
// at least as far, and finds each partition in some page at any time.
//
// # Who may have written it
//
// Before the first write, and again whenever a write didn't find the versions that it expected or ended with an unknown outcome, all is
// read and judged: our own content is recognised as what was written; a missing, older or hand-made node is written anew (what
// can't be read is kept beside it); what a later master, another history of this pipeline or another pipeline has
// written is left alone, and ends the run. See judge.
//
// # Inside
//
// One goroutine does all requests of a run, in rounds: read if need be, judge, write what differs. Advance and Begun only leave
// word for it. Record.work is held over a round; Record.mu for moments, never over a request.
package zkstore
