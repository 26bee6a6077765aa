// Package storm reads where a Storm topology stands: from the nodes that its Kafka spouts leave in ZooKeeper, from what
// they commit to a consumer group, and from the values that Trident's map states store.
//
// What is returned is exact: each position is the offset that the topology itself would have gone on with, as Storm's own
// source has it, or there is an error that names the node. Nothing is guessed, and nothing is written. The topology must be
// at rest: deactivated until it has no batch in flight, or killed.
//
// Four writers are known:
//
//   - storm-kafka's KafkaSpout (Storm 0.9 to 1.2), in ZooKeeper: ReadSpout;
//   - storm-kafka's Trident spouts, OpaqueTridentKafkaSpout and TransactionalTridentKafkaSpout, in ZooKeeper: ReadTrident;
//   - storm-kafka-client's Trident spouts, KafkaTridentSpoutOpaque and KafkaTridentSpoutTransactional (Storm 1.1 on), in
//     ZooKeeper: ReadTrident, which tells the two by the nodes;
//   - storm-kafka-client's KafkaSpout, in a consumer group: Committed interprets what a commit says.
//
// ReadFile takes positions from wherever else they were kept.
package storm
