package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ReadTrident reads the nodes of Trident's Kafka spouts: <root>/<id>/coordinator/currtx and, for each partition and
// transaction, <root>/<id>/user/<partition>/<txid>. root is Storm's transactional.zookeeper.root, an id the name that
// newStream was given. Several ids are spouts of one topology, whose transactions they share.
//
// The rules (storm-client of Storm 2.8.8; storm-core of the 1.x releases has the same):
//
//   - MasterBatchCoordinator.ack writes currtx = T+1 when T has committed. So what is below currtx has committed, and currtx
//     itself hasn't, or nobody knows that it has: Storm would run it again. Without a node it is 1 (getStoredCurrTransaction);
//     of several spouts the largest counts.
//   - A partition's node of T says where T ended there. TransactionalState.setData writes it as JSON, before T has committed
//     (OpaquePartitionedTridentSpoutExecutor in its commit, PartitionedTridentSpoutExecutor already when it emits); those of
//     earlier transactions go when T has succeeded (RotatingTransactionalState.cleanupBefore). So the position is what the
//     newest transaction below currtx has left.
//   - Success is told before currtx is written: a crash between the two leaves a node of currtx and none below it. Then the
//     position is where that transaction began.
//   - storm-kafka (class TridentKafkaEmitter) writes offset and nextOffset, the first offset of T and of what follows.
//   - storm-kafka-client (classes KafkaTridentSpoutBatchMetadata, KafkaTridentSpoutEmitter) writes firstOffset and lastOffset,
//     both inclusive, and goes on at lastOffset + 1. For a batch without records it writes the position less 1 as both (since
//     2.0), or what the batch before had (before that), so that firstOffset alone doesn't tell where a batch began.
func ReadTrident(ctx context.Context, n Nodes, root string, ids ...string) (*Left, error) {
	current, err := currentTransaction(ctx, n, root, ids)
	if err != nil {
		return nil, err
	}
	f := findings{left: Left{Current: current}}
	for _, id := range ids {
		if err := f.readUser(ctx, n, join(root, id+"/user")); err != nil {
			return nil, err
		}
	}
	where := join(root, ids[0])
	switch after, err := currentTransaction(ctx, n, root, ids); {
	case err != nil:
		return nil, err
	case after != current:
		return nil, failure(where, "stop the topology, then import", "went on from txid %d to txid %d while it was read", current, after)
	}
	return f.result(where, "let the topology commit a batch, or give the right path and id")
}

// currentTransaction returns the first transaction that isn't known to have committed.
func currentTransaction(ctx context.Context, n Nodes, root string, ids []string) (int64, error) {
	current := int64(1) // class MasterBatchCoordinator, INIT_TXID
	for _, id := range ids {
		path := join(root, id)
		if _, ok, err := n.Children(ctx, path); err != nil || !ok {
			if err == nil {
				err = failure(path, "give --zk-path Storm's transactional.zookeeper.root, --spout-id the stream's name, and --chroot if it has one", "doesn't exist")
			}
			return 0, err
		}
		txid, err := readTxid(ctx, n, join(path, "coordinator/currtx"))
		if err != nil {
			return 0, err
		}
		current = max(current, txid)
	}
	return current, nil
}

// readTxid reads a node currtx; 0 if there is none.
func readTxid(ctx context.Context, n Nodes, path string) (int64, error) {
	data, ok, err := n.Get(ctx, path)
	if err != nil || !ok {
		return 0, err
	}
	v, err := parse(data)
	if err != nil {
		return 0, failure(path, "take the positions from a file", "%w", err)
	}
	num, _ := v.(json.Number)
	txid, err := strconv.ParseInt(num.String(), 10, 64)
	if err != nil || txid < 1 {
		return 0, failure(path, "take the positions from a file", "holds %q, where a txid was expected", clip(data))
	}
	return txid, nil
}

// readUser reads the partitions of one spout.
func (f *findings) readUser(ctx context.Context, n Nodes, path string) error {
	dirs, _, err := n.Children(ctx, path)
	if err != nil {
		return err
	}
	return walk(ctx, n, path, dirs, f, func(dir, topic string, partition int32) error {
		names, _, err := n.Children(ctx, dir)
		if err != nil {
			return err
		}
		txids := make([]int64, 0, len(names))
		for _, name := range names {
			txid, err := strconv.ParseInt(name, 10, 64)
			if err != nil || txid < 1 {
				f.fail(join(dir, name), "remove it if it is nobody's", "is named after no txid")
				return nil
			}
			txids = append(txids, txid)
		}
		txid, committed, err := choose(txids, f.left.Current)
		if err != nil {
			f.fail(dir, "let the topology commit a batch, or take the positions from a file", "%w", err)
			return nil
		}
		if txid == 0 {
			return nil // no transaction has left anything: for Storm it is a new partition
		}
		node := join(dir, strconv.FormatInt(txid, 10))
		data, ok, err := n.Get(ctx, node)
		switch {
		case err != nil:
			return err
		case !ok:
			f.fail(node, "stop the topology, then import", "was removed while it was read")
			return nil
		}
		p, err := tridentPosition(data, topic, partition, committed)
		if err != nil {
			f.fail(node, "let the topology commit a batch, or take the positions from a file", "%w", err)
			return nil
		}
		p.From, p.Txid = node, txid
		f.add(p)
		return nil
	})
}

// choose picks the transaction whose node counts: the newest that has committed, or else the current one. 0: there is none.
func choose(txids []int64, current int64) (txid int64, committed bool, err error) {
	if len(txids) == 0 {
		return 0, false, nil
	}
	slices.Sort(txids)
	i, _ := slices.BinarySearch(txids, current)
	switch {
	case i > 0:
		return txids[i-1], true, nil
	case txids[0] == current:
		return current, false, nil
	}
	return 0, false, fmt.Errorf("begins at txid %d, and txid %d is the first that hasn't committed", txids[0], current)
}

// tridentPosition reads the JSON that a transaction left. committed tells whether it counts; otherwise the position is where
// it began.
func tridentPosition(data []byte, topic string, partition int32, committed bool) (p Position, err error) {
	o, err := parseObject(data)
	if err != nil {
		return p, err
	}
	_, old := o["nextOffset"]
	_, client := o["lastOffset"]
	switch {
	case old == client:
		return p, fmt.Errorf("has neither nextOffset nor lastOffset alone (%q)", clip(data))
	case client && topic == "":
		return p, errors.New("is storm-kafka-client's in a node of storm-kafka")
	case client:
		return o.clientPosition(topic, partition, committed)
	}
	p.Topology = o.topology()
	if p.Topic, p.Partition, err = o.place(topic, partition); err != nil {
		return p, err
	}
	first, err := o.integer("offset", 0)
	if err != nil {
		return p, err
	}
	if p.Next, err = o.integer("nextOffset", 0); err != nil {
		return p, err
	}
	if p.Next < first {
		return p, fmt.Errorf("ends at %d, before it begins at %d", p.Next, first)
	}
	if !committed {
		p.Next = first
	}
	return p, nil
}

// clientPosition reads the metadata of storm-kafka-client, which names its partition in the path and, before 2.0, in the
// field tp.
func (o object) clientPosition(topic string, partition int32, committed bool) (Position, error) {
	p := Position{Topic: topic, Partition: partition}
	p.Topology, _ = o["topologyId"].(string)
	if tp, ok := o["tp"].(map[string]any); ok {
		if _, _, err := object(tp).place(topic, partition); err != nil {
			return p, fmt.Errorf("in field %q %w", "tp", err)
		}
	}
	const none = -1 // a batch without records at the beginning of a partition
	first, err := o.integer("firstOffset", none)
	if err != nil {
		return p, err
	}
	last, err := o.integer("lastOffset", none)
	switch {
	case err != nil:
		return p, err
	case last < first:
		return p, fmt.Errorf("ends at %d, before it begins at %d", last, first)
	case committed:
		p.Next, err = next(last)
		return p, err
	case first < last && p.Topology != "": // since 2.0 only a batch with records has two offsets
		p.Next = first
		return p, nil
	}
	return p, errors.New("is of a transaction that hasn't committed, and doesn't tell for sure where that began")
}
