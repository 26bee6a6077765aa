package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
)

// checkTimeout bounds all of a check.
const checkTimeout = 8 * time.Second

// Check asks a sink's cluster whether the topic is there, takes what the settings say, and what the progress is. It changes nothing.
func Check(ctx context.Context, cfg Config) []doctor.Finding {
	topic, progress := "kafka topic "+cfg.Topic, "kafka sink "+cfg.Sink
	cfg.Timeout = checkTimeout
	s, err := New(cfg)
	if err != nil {
		return []doctor.Finding{doctor.Of(progress, err)}
	}
	defer s.Close(ctx) //nolint:errcheck // it holds nothing
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	client, err := kgo.NewClient(append(slices.Clone(cfg.Client), kgo.MaxVersions(versions()))...)
	if err != nil {
		return []doctor.Finding{doctor.Of(progress, configError("kafka", "correct the client's options", "%w", err))}
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	var all []doctor.Finding
	found, err := adm.ListTopics(ctx, cfg.Topic)
	if err == nil {
		err = found[cfg.Topic].Err
	}
	if err != nil {
		return append(all, doctor.Of(topic, s.failure("metadata", err)))
	}
	all = append(all, s.checkTopic(ctx, adm, topic, len(found[cfg.Topic].Partitions))...)
	if f := s.checkTransactions(ctx, adm, client, progress); f != nil {
		return append(all, *f)
	}
	p, err := s.fetch(ctx, client, false)
	if err != nil {
		return append(all, doctor.Of(progress, s.failure("reading the progress", err)))
	}
	return append(all, doctor.Finding{Subject: progress, Text: p.Text()})
}

// number returns a configuration's value; ok is false if it can't be seen.
func number(rs kadm.ResourceConfigs, name string) (n int64, ok bool) {
	for _, r := range rs {
		for _, c := range r.Configs {
			if c.Key == name {
				n, err := strconv.ParseInt(c.MaybeValue(), 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}

func (s *Sink) checkTopic(ctx context.Context, adm *kadm.Client, subject string, partitions int) []doctor.Finding {
	all := []doctor.Finding{{Subject: subject, Text: fmt.Sprintf("%d partitions, to be written to", partitions)}}
	rs, err := adm.DescribeTopicConfigs(ctx, s.cfg.Topic)
	if most, ok := number(rs, "max.message.bytes"); err == nil && ok && most < int64(s.cfg.MaxRecordBytes) {
		all = append(all, doctor.Finding{
			Level: doctor.Warn, Subject: subject, Code: batch.CodeBatchTooLarge, Text: fmt.Sprintf("takes records of %s, the sink's max_record_bytes is %s", doctor.Bytes(most), doctor.Bytes(int64(s.cfg.MaxRecordBytes))),
			Remedy: "raise the topic's max.message.bytes, or lower max_record_bytes",
		})
	}
	return all
}

// checkTransactions looks at the brokers' limit and at the right to the transactional id, by the end of a transaction that nobody began.
func (s *Sink) checkTransactions(ctx context.Context, adm *kadm.Client, client *kgo.Client, subject string) *doctor.Finding {
	if brokers, err := adm.ListBrokers(ctx); err == nil {
		rs, err := adm.DescribeBrokerConfigs(ctx, brokers.NodeIDs()...)
		if ms, ok := number(rs, maxTransaction); err == nil && ok && s.cfg.TransactionTimeout > time.Duration(ms)*time.Millisecond {
			return &doctor.Finding{
				Level: doctor.Error, Subject: subject, Code: batch.CodeConfiguration,
				Text:   fmt.Sprintf("its transaction_timeout of %s is above the brokers' %s of %s", s.cfg.TransactionTimeout, maxTransaction, time.Duration(ms)*time.Millisecond),
				Remedy: "lower transaction_timeout, or raise the brokers' limit",
			}
		}
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID = TransactionalID(s.cfg.Pipeline, s.cfg.Sink)
	end.ProducerID, end.ProducerEpoch = -1, -1
	resp, err := end.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		f := doctor.Of(subject, s.failure("the right to transactions", err))
		return &f
	}
	return nil
}
