// Package coordinator decides which batch runs when. It guarantees:
//
//   - Transaction ids are 1, 2, 3, … with no gap. Batches are planned one at a time and commit one group at a
//     time, both strictly in txid order; at most Config.MaxPending are in flight.
//   - An attempt of a txid is greater, by (epoch, n), than every attempt of it before, restarts included.
//     Whatever is reported of an older attempt changes nothing.
//   - A batch keeps its seed over all its attempts. From the moment its ranges are asked to be recorded it keeps
//     these and its clock too, in this process and, once the record is durable, in every later one. A batch that is
//     planned anew takes a new clock: the present, but never one before that of the batch ahead.
//   - With participants outside the local store, a commit is asked for only when the batch's record is durable
//     and the batch before has committed.
//   - A transient failure drops the batch and every later one in flight and begins them again after a back-off;
//     a permanent one ends the run with its cause. What had committed stays.
//
// Machine is a pure state machine: Step takes the time and one event and returns actions. It reads no clock, starts
// no goroutine, writes no log and waits for nothing, so the same machine runs in production (package runner),
// in scripts and in a seeded simulation (package coordtest).
//
// # The caller's duties
//
// Perform the actions of one Step in their order, and all of them before the next Step. Begin, Process, Record,
// Commit, Abort and Reopen are answered by an event each, at any later time and in any order:
//
//	Begin    Planned or Failed
//	Process  Processed or Failed
//	Record   Recorded or Failed
//	Commit   Committed, CommitUnknown, or Failed if surely nothing was written
//	Abort    Aborted, once no call for its batches is running any more
//	Reopen   Reopened or ReopenFailed
//
// An answer that comes twice, or not at all because its batch has been aborted, does no harm; the answers to
// Commit, Abort and Reopen must come. SetTimer asks for a Tick at a time and replaces the timer asked for
// before. After Stopped there are no more actions.
//
// # A batch's phases
//
//	         Begin          Process           Record*         Commit
//	waiting ------> planning ------> processing ----> recording ----> committing ----> gone (Success)
//	   ^               |                 |                |               |
//	   +---------------+-----------------+----------------+---------------+  Failed, timed out, dropped
//
// (* with outside participants.) Between the calls a batch rests in processed or recorded until those before it
// have caught up. The batches in flight are a prefix of the txids above the last committed one; behind them may
// stand some that wait to be begun again and whose attempts, seed, recorded ranges and their clock are remembered.
package coordinator
