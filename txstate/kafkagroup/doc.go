// Package kafkagroup shows a source's committed offsets in a Kafka consumer group, where every tool for Kafka finds
// them. It is a txstate.Mirror: the group never leads the state store, since it is told of a batch only after the
// batch's commit has been synced, and nothing that goes wrong with the group delays a batch or changes a result.
//
// # What is written
//
// For each partition of one source: the next offset to be processed, the leader epoch of the last record below it, and
// metadata of less than 4096 bytes,
//
//	{"tridentd":1,"pipeline":"words","source":"lines","txid":12,"epoch":3}
//
// where txid is the batch that last moved the partition (0 before the first) and epoch that of the master that wrote
// it. One write is in flight at a time, at most one in each Config.Interval; the latest positions win. What hasn't
// changed is written again in each Config.Refresh, as brokers forget the offsets of groups without members.
//
// # Repairs
//
// A plain commit of offsets can't be made conditional. The group is therefore read at the start, after every failed
// write, and every Config.Reread, and compared with what the store says: offsets that are gone, or that an ordinary
// consumer has committed, are written again. Offsets that a later batch of this pipeline wrote, or another pipeline or source that runs, are
// left alone: the mirror waits until the store has passed them, or somebody has removed them from the group.
//
// # Under a lease
//
// Where a lock says who runs the pipeline, the offsets of a round go through a transaction (TxnOffsetCommit) of a producer
// of their own, tridentd.mirror.<pipeline>.<source>. A master claims it before it reads the group, which settles what hung,
// and has the brokers refuse whatever an earlier master still sends. See fence. Brokers don't refuse a transaction for the group's
// members, as they do a plain commit: they are asked for before each write.
//
// # Inside
//
// One goroutine does all requests, in rounds: read if due, compare, write what differs. Committed only leaves the
// positions for it and wakes it.
package kafkagroup
