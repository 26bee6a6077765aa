package storm

import (
	"context"
	"fmt"
	"strings"
)

// ReadSpout reads the nodes of storm-kafka's KafkaSpout, <root>/<id>/partition_<n>, or <root>/<id>/<topic>/partition_<n> of a
// spout with a wildcard topic. root and id are SpoutConfig's zkRoot and id.
//
// The rule (external/storm-kafka of Storm 1.2.3, class PartitionManager): commit writes lastCompletedOffset, which is the
// least offset that is emitted and not yet acknowledged, or else the offset to be emitted next; a restart takes it for the
// offset to be read next. So it is taken as it is.
func ReadSpout(ctx context.Context, n Nodes, root, id string) (*Left, error) {
	path := join(root, id)
	dirs, ok, err := n.Children(ctx, path)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, failure(path, "give --zk-path the spout's zkRoot, --spout-id its id, and --chroot if it has one", "doesn't exist")
	}
	var f findings
	err = walk(ctx, n, path, dirs, &f, func(dir, topic string, partition int32) error {
		data, ok, err := n.Get(ctx, dir)
		switch {
		case err != nil:
			return err
		case !ok:
			f.fail(dir, "stop the topology, then import", "was removed while it was read")
			return nil
		}
		p, err := spoutPosition(data, topic, partition)
		if err != nil {
			f.fail(dir, "mend or remove the node, or take the positions from a file", "%w", err)
			return nil
		}
		p.From = dir
		f.add(p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f.result(path, "let the topology commit once, or give the right path and id")
}

// walk calls partition for each node of a partition below path, whose children are dirs. topic is empty where the path
// doesn't have it.
func walk(ctx context.Context, n Nodes, path string, dirs []string, f *findings, partition func(dir, topic string, number int32) error) error {
	foreign := func(dir string) {
		f.fail(dir, "remove it if it is nobody's, or give the right path and id", "is no node of a Kafka spout")
	}
	for _, name := range dirs {
		dir := join(path, name)
		if p, ok := partitionDir(name); ok {
			if err := partition(dir, "", p); err != nil {
				return err
			}
			continue
		}
		if at := strings.LastIndexByte(name, '@'); at > 0 { // class KafkaTridentSpoutTopicPartition, getId: topic@3
			if p, ok := number(name[at+1:]); ok {
				if err := partition(dir, name[:at], p); err != nil {
					return err
				}
				continue
			}
		}
		parts, _, err := n.Children(ctx, dir)
		if err != nil {
			return err
		}
		if len(parts) == 0 {
			foreign(dir)
		}
		for _, part := range parts {
			p, ok := partitionDir(part)
			if !ok {
				foreign(join(dir, part))
				continue
			}
			if err := partition(join(dir, part), name, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// spoutPosition reads the JSON of a KafkaSpout's node. The topic of its path may be empty.
func spoutPosition(data []byte, topic string, partition int32) (Position, error) {
	o, err := parseObject(data)
	if err != nil {
		return Position{}, err
	}
	p := Position{Topology: o.topology()}
	if p.Topic, p.Partition, err = o.place(topic, partition); err != nil {
		return p, err
	}
	p.Next, err = o.integer("offset", 0)
	return p, err
}

// place returns the fields topic and partition, which must be what the node's path says.
func (o object) place(topic string, partition int32) (string, int32, error) {
	t, err := o.text("topic")
	if err != nil {
		return "", 0, err
	}
	n, err := o.integer("partition", 0)
	switch {
	case err != nil:
		return "", 0, err
	case n != int64(partition):
		return "", 0, fmt.Errorf("is about partition %d", n)
	case topic != "" && t != topic:
		return "", 0, fmt.Errorf("is about topic %s", t)
	}
	return t, partition, nil
}

// join puts a path together. Neither part may end in a slash, but for the root.
func join(path, name string) string {
	path = strings.TrimRight(path, "/") + "/" + strings.Trim(name, "/")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}
