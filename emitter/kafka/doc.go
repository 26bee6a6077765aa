// Package kafka reads Kafka topics as an emitter.Emitter: every offset range that it has planned can be read again
// exactly, or the reading fails with the figures of what is missing. It never moves to another offset by itself,
// not at the start, not after an error, and not when a topic was made again under its name.
//
// # Positions
//
// A consumer's last record doesn't tell where it stands: transaction markers, aborted records and what compaction
// removed are invisible. Ranges are therefore cut by offsets of record batches, as the broker sends them, and may
// advance over offsets without records. No range goes beyond the last stable offset (read_committed).
//
// A position carries the topic id and the leader epoch of the last record below it. Both are checked when the
// emitter opens, and the epoch again whenever the partition gets another leader: each fetch names the leader epoch
// that the position was checked against, and the broker refuses any other.
//
// # Duties of the caller
//
// The contract of emitter.Emitter. In short: what Open and Discovered return is made durable before Admit; Plan and
// Read are called by one goroutine at a time for each partition; Ack releases memory.
//
// # Inside
//
// The kgo client is only a broker of requests. One goroutine for each leading broker (fetcher) checks positions
// and keeps the partitions' buffers filled, with a single fetch request for all partitions that have room. Buffers
// hold record batches, uncompressed but not decoded: records are decoded by Read, in the goroutine that processes
// them, into memory that is used again. Ranges that are no longer buffered are fetched again over a connection of
// their own, as a broker answers a connection's requests one after the other and a waiting fetch would hold them up.
//
// Lock order: Emitter.mu, then partition.mu. Neither is held during a request.
package kafka
