package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
)

// Timestamps with a meaning of their own in ListOffsets.
const (
	tsLatest   = -1
	tsEarliest = -2
)

// query is a question about one partition: what offset a timestamp, or tsLatest or tsEarliest, stands for.
type query struct {
	id    batch.Partition
	epoch int32 // the leader epoch that is believed in
	ts    int64
}

type answer struct {
	offset int64 // -1: no record is that late
	err    error
}

// listOffsets asks one broker. Answers are in the order of the queries.
func (e *Emitter) listOffsets(ctx context.Context, broker int32, iso Isolation, qs []query) ([]answer, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = iso.wire()
	at := make(map[batch.Partition]int, len(qs))
	topics := map[string]int{}
	for i, q := range qs {
		ti, ok := topics[q.id.Topic]
		if !ok {
			ti = len(req.Topics)
			topics[q.id.Topic] = ti
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = q.id.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = q.id.Number, q.epoch, q.ts
		req.Topics[ti].Partitions = append(req.Topics[ti].Partitions, p)
		at[q.id] = i
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	kresp, err := e.client.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	out := make([]answer, len(qs))
	for i := range out {
		out[i].err = errors.New("the broker's answer lacks the partition")
	}
	for _, t := range kresp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if i, ok := at[batch.Partition{Source: e.id, Topic: t.Topic, Number: p.Partition}]; ok {
				out[i] = answer{offset: p.Offset, err: kerr.ErrorForCode(p.ErrorCode)}
			}
		}
	}
	return out, nil
}

// epochEnd is where a leader epoch ended in the log: the answer to OffsetForLeaderEpoch.
type epochEnd struct {
	epoch  int32 // the largest one not above the epoch asked for; NoEpoch: the broker doesn't know
	offset int64
	err    error
}

// epochEnds asks one broker where the leader epochs of qs (in ts) ended.
func (e *Emitter) epochEnds(ctx context.Context, broker int32, qs []query) ([]epochEnd, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	at := make(map[batch.Partition]int, len(qs))
	topics := map[string]int{}
	for i, q := range qs {
		ti, ok := topics[q.id.Topic]
		if !ok {
			ti = len(req.Topics)
			topics[q.id.Topic] = ti
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = q.id.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = q.id.Number, q.epoch, int32(q.ts)
		req.Topics[ti].Partitions = append(req.Topics[ti].Partitions, p)
		at[q.id] = i
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	kresp, err := e.client.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	out := make([]epochEnd, len(qs))
	for i := range out {
		out[i].err = errors.New("the broker's answer lacks the partition")
	}
	for _, t := range kresp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			if i, ok := at[batch.Partition{Source: e.id, Topic: t.Topic, Number: p.Partition}]; ok {
				out[i] = epochEnd{epoch: p.LeaderEpoch, offset: p.EndOffset, err: kerr.ErrorForCode(p.ErrorCode)}
			}
		}
	}
	return out, nil
}

// Ends asks the leaders, now, for the end of every partition: the last stable offset, or the high watermark under
// read_uncommitted. Partitions that are known and not admitted yet are among them, so that a run that is to catch up
// doesn't pass over one whose leader was away when it began.
func (e *Emitter) Ends(ctx context.Context) (map[batch.Partition]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	e.mu.RLock()
	left := make([]batch.Partition, len(e.sorted))
	for i, p := range e.sorted {
		left[i] = p.id
	}
	e.mu.RUnlock()
	ends := make(map[batch.Partition]int64, len(left))
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		var err error
		if left, err = e.endsOnce(ctx, left, ends); err == nil {
			return ends, nil
		}
		e.askMetadata()
		if serr := sleep(ctx, pause); serr != nil {
			return nil, err
		}
	}
}

// endsOnce asks each leader once. It returns the partitions that are still to be asked, with the error of the first.
func (e *Emitter) endsOnce(ctx context.Context, parts []batch.Partition, ends map[batch.Partition]int64) (left []batch.Partition, err error) {
	byLeader := map[int32][]query{}
	failures := map[batch.Partition]error{}
	for _, id := range parts {
		p := e.partition(id)
		if p == nil {
			continue // it was retired
		}
		p.mu.Lock()
		leader, epoch, trouble := p.leader, p.leaderEpoch, p.err
		p.mu.Unlock()
		if leader < 0 {
			failures[id] = errors.New("the partition has no leader")
			if trouble != nil {
				failures[id] = trouble.Err
			}
			continue
		}
		byLeader[leader] = append(byLeader[leader], query{id: id, epoch: epoch, ts: tsLatest})
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for leader, qs := range byLeader {
		wg.Go(func() {
			as, err := e.listOffsets(ctx, leader, e.cfg.Isolation, qs)
			mu.Lock()
			defer mu.Unlock()
			for i, q := range qs {
				switch {
				case err != nil:
					failures[q.id] = fmt.Errorf("broker %d: %w", leader, err)
				case as[i].err != nil:
					failures[q.id] = as[i].err
				default:
					ends[q.id] = as[i].offset
				}
			}
		})
	}
	wg.Wait()
	for _, id := range parts {
		if ferr := failures[id]; ferr != nil {
			left = append(left, id)
			if err == nil {
				err = transient("ask for the end", ferr).At(id, batch.NoOffset)
			}
		}
	}
	return left, err
}
