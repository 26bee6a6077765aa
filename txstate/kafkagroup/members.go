package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
)

// What a group with members is, and what to do about it.
const (
	membersText   = "the group has members, whose offsets aren't overwritten"
	membersRemedy = "end the consumers in the group, or give the pipeline a group of its own (group: NAME); batches go on meanwhile"
)

// unshared fails if the group has members. A broker itself refuses a plain commit of offsets from outside to such a group, but lets
// one through that belongs to a transaction. Who joins between the answer and the commit isn't seen.
func unshared(ctx context.Context, client *kgo.Client, group string) error {
	members, err := membersOf(ctx, client, group)
	if err == nil && len(members) > 0 {
		more := ""
		if len(members) > 1 {
			more = fmt.Sprintf(" and %d more", len(members)-1)
		}
		err = batch.NewError(batch.Transient, batch.CodeGroupMembers, "mirror", fmt.Errorf("consumer group %s: %s (%s%s)", group, membersText, members[0], more), membersRemedy)
	}
	return err
}

// membersOf lists the client ids of a group's members, sorted. A group of the protocol in which the brokers assign the partitions
// isn't there for those who ask for one of the classic protocol.
func membersOf(ctx context.Context, client *kgo.Client, group string) ([]string, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	var members []string
	empty := false
	for _, g := range resp.Groups {
		err := kerr.ErrorForCode(g.ErrorCode)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, err
		}
		empty = err == nil && g.State == "Empty"
		for _, m := range g.Members {
			members = append(members, m.ClientID)
		}
	}
	if len(members) == 0 && !empty {
		if members, err = assignedMembersOf(ctx, client, group); err != nil {
			return nil, err
		}
	}
	slices.Sort(members)
	return members, nil
}

// assignedMembersOf is membersOf for a group whose partitions the brokers assign, where they know of such groups.
func assignedMembersOf(ctx context.Context, client *kgo.Client, group string) ([]string, error) {
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(versions.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(kmsg.ConsumerGroupDescribe) }) {
		return nil, nil
	}
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	var members []string
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, err
		}
		for _, m := range g.Members {
			members = append(members, m.ClientID)
		}
	}
	return members, nil
}
