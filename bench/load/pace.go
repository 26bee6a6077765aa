package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/tridentd/tridentd/bench/workload"
)

const (
	// tick is how often records go out.
	tick = 10 * time.Millisecond
	// variety is how many different record batches are prepared for each partition.
	variety = 16
	// inFlight is how many requests may wait for their answers before the pace falls behind.
	inFlight = 16
)

// pace sends s.Records records at an even rate: every tick one request with one record batch for each partition. The
// batches are made beforehand and sent again and again, so that the generator takes as little as it can of the cores that
// it shares with what is measured. Every 100 ms it prints `SENT`, the time in milliseconds since 1970 and the
// records acknowledged so far.
func pace(ctx context.Context, cl *kgo.Client, s workload.Spec, topic string, rate int) error {
	perBatch := int(float64(rate) * tick.Seconds() / float64(s.Partitions))
	if perBatch < 1 {
		return fmt.Errorf("-rate %d is less than one record for each partition every %v", rate, tick)
	}
	id, broker, err := lookup(ctx, cl, topic)
	if err != nil {
		return err
	}
	perRequest := int64(perBatch) * int64(s.Partitions)
	var requests [variety]*kmsg.ProduceRequest
	g := workload.NewGenerator(s)
	for i := range requests {
		values := make([][][]byte, s.Partitions)
		for range perRequest {
			v, part := g.Next(nil)
			values[part] = append(values[part], v)
		}
		requests[i] = request(topic, id, values)
	}
	interval := time.Duration(float64(perRequest) / float64(rate) * float64(time.Second))
	out := &pacer{said: time.Now()}
	flight, ctx := errgroup.WithContext(ctx)
	flight.SetLimit(inFlight)
	began := time.Now()
	for i := 0; int64(i)*perRequest < s.Records && ctx.Err() == nil; i++ {
		if wait := time.Until(began.Add(time.Duration(i) * interval)); wait > 0 {
			time.Sleep(wait)
		}
		flight.Go(func() error {
			if err := send(ctx, broker, requests[i%variety]); err != nil {
				return err
			}
			out.acknowledged(perRequest, s.Records)
			return nil
		})
	}
	return flight.Wait()
}

// pacer says how many records have been acknowledged.
type pacer struct {
	mu    sync.Mutex
	acked int64
	said  time.Time
}

func (p *pacer) acknowledged(n, last int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked += n
	if now := time.Now(); now.Sub(p.said) >= 100*time.Millisecond || p.acked >= last {
		p.said = now
		fmt.Printf("SENT %d %d\n", now.UnixMilli(), p.acked)
	}
}

// lookup finds the topic's id, and the broker that leads all its partitions.
func lookup(ctx context.Context, cl *kgo.Client, topic string) (id [16]byte, leader *kgo.Broker, err error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = new(topic)
	req.Topics = append(req.Topics, t)
	for ctx.Err() == nil {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return id, nil, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) == 0 || resp.Topics[0].ErrorCode != 0 {
			time.Sleep(50 * time.Millisecond) // just made
			continue
		}
		node := resp.Topics[0].Partitions[0].Leader
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader != node {
				return id, nil, fmt.Errorf("partition %d of %s has leader %d, partition 0 has %d: one broker is needed", p.Partition, topic, p.Leader, node)
			}
		}
		return resp.Topics[0].TopicID, cl.Broker(int(node)), nil
	}
	return id, nil, ctx.Err()
}

func request(topic string, id [16]byte, values [][][]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	for part, vs := range values {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(part), recordBatch(vs)
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// recordBatch is a record batch of format 2, without key, compression and producer.
func recordBatch(values [][]byte) []byte {
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(values) - 1), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(values)),
	}
	for i, v := range values {
		var body []byte
		body = append(body, 0)                          // attributes
		body = binary.AppendVarint(body, 0)             // time
		body = binary.AppendVarint(body, int64(i))      // offset
		body = binary.AppendVarint(body, -1)            // no key
		body = binary.AppendVarint(body, int64(len(v))) // value
		body = append(body, v...)                       //
		body = binary.AppendVarint(body, 0)             // no headers
		b.Records = binary.AppendVarint(b.Records, int64(len(body)))
		b.Records = append(b.Records, body...)
	}
	const lengthFrom, crcAt, crcFrom = 12, 17, 21
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-lengthFrom))
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[crcFrom:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func send(ctx context.Context, broker *kgo.Broker, req *kmsg.ProduceRequest) error {
	resp, err := broker.Request(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return errors.Join(fmt.Errorf("partition %d", p.Partition), err)
			}
		}
	}
	return nil
}
