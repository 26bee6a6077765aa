package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// source is a topic on one broker.
type source struct {
	broker *kgo.Broker
	topic  string
	id     [16]byte
	ends   []int64 // by partition; nothing beyond is read
}

func open(ctx context.Context, cl *kgo.Client, topic string) (*source, error) {
	adm := kadm.NewClient(cl)
	ds, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	d := ds[topic]
	if d.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, d.Err)
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	s := &source{topic: topic, id: d.ID, ends: make([]int64, len(d.Partitions))}
	leader := d.Partitions[0].Leader
	for p := range d.Partitions { // order: each is looked at by itself
		if d.Partitions[p].Leader != leader {
			return nil, errors.New("the partitions have several leaders: one broker is needed")
		}
		o, ok := ends.Lookup(topic, p)
		if !ok || o.Err != nil {
			return nil, fmt.Errorf("partition %d: no end offset: %w", p, o.Err)
		}
		s.ends[p] = o.Offset
	}
	s.broker = cl.Broker(int(leader))
	return s, nil
}

// Bounds of a fetch: one response, and one partition's part of it.
const (
	maxBytes          = 8 << 20
	maxPartitionBytes = 1 << 20
)

// fetch asks for what follows the positions of parts.
func (s *source) fetch(ctx context.Context, parts []int32, next []int64) (*kmsg.FetchResponse, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, maxBytes
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = s.topic, s.id
	for i, p := range parts {
		if next[i] >= s.ends[p] {
			continue
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, next[i], maxPartitionBytes
		rp.CurrentLeaderEpoch = -1
		t.Partitions = append(t.Partitions, rp)
	}
	if len(t.Partitions) == 0 {
		return nil, nil
	}
	req.Topics = append(req.Topics, t)
	resp, err := s.broker.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	fr := resp.(*kmsg.FetchResponse)
	return fr, kerr.ErrorForCode(fr.ErrorCode)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Layout of a record batch of format 2.
const (
	atLength, atMagic, atCRC, atAttributes, atLastDelta, atCount = 8, 16, 17, 21, 23, 57
	overhead                                                     = 61
	lengthFrom                                                   = 12
)

// end cuts the first whole record batch off raw, and returns its records and the offset behind it; ok is false if there is none.
func cutBatch(raw []byte) (records, rest []byte, first, end int64, count int, ok bool, err error) {
	if len(raw) < overhead {
		return nil, nil, 0, 0, 0, false, nil
	}
	size := int(binary.BigEndian.Uint32(raw[atLength:])) + lengthFrom
	if len(raw) < size {
		return nil, nil, 0, 0, 0, false, nil
	}
	first = int64(binary.BigEndian.Uint64(raw))
	b := raw[:size]
	switch {
	case b[atMagic] != 2:
		err = fmt.Errorf("record batch at %d has format %d", first, b[atMagic])
	case crc32.Checksum(b[atAttributes:], castagnoli) != binary.BigEndian.Uint32(b[atCRC:]):
		err = fmt.Errorf("record batch at %d: the checksum is wrong", first)
	case binary.BigEndian.Uint16(b[atAttributes:])&0x37 != 0:
		err = fmt.Errorf("record batch at %d is compressed or of a transaction", first)
	}
	return b[overhead:], raw[size:], first, first + int64(binary.BigEndian.Uint32(b[atLastDelta:])) + 1, int(binary.BigEndian.Uint32(b[atCount:])), true, err
}
