// Package kafkasink sends a pipeline's output to Kafka topics, each batch in one transaction.
//
// With the output goes the sink's progress, in the same transaction: an offset of a consumer group of the sink's own, whose value is
// the txid and whose metadata hold epoch and digest. So readers with isolation.level=read_committed find the output of each batch
// whole and once: a batch that was cut off by a crash, a cut connection or a broker's restart is sent again if its transaction was
// aborted, and passed over if it was committed.
//
// A claim asks the brokers for the producer id first, which fences whoever used it before and settles his transaction, then reads
// the progress, then writes the new epoch into it. A former master that wakes up has its transaction refused; if it asks for the
// producer id again, it finds a higher epoch in the progress and gives up for good.
package kafkasink
