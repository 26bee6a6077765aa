package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchRequest returns a fetch outside of any fetch session, without partitions.
func fetchRequest(iso Isolation, wait time.Duration, maxBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(wait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = maxBytes
	req.IsolationLevel = iso.wire()
	req.SessionEpoch = -1
	return req
}

// fetchTopic names a topic by its name and its id: which of them goes out depends on the broker's version.
func fetchTopic(t *topic) kmsg.FetchRequestTopic {
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = t.name
	if k := t.id.Load(); k != nil {
		rt.TopicID = k.id
	}
	return rt
}

func fetchPartition(number int32, next int64, leaderEpoch, maxBytes int32) kmsg.FetchRequestTopicPartition {
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition = number
	rp.FetchOffset = next
	rp.CurrentLeaderEpoch = leaderEpoch
	rp.PartitionMaxBytes = maxBytes
	return rp
}

// exchange sends a fetch to a broker and waits for the answer.
func (e *Emitter) exchange(ctx context.Context, client *kgo.Client, broker int32, req *kmsg.FetchRequest, wait time.Duration) (*kmsg.FetchResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+e.cfg.Timeout)
	defer cancel()
	kresp, err := client.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}
