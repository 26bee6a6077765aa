package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
)

// checkTimeout bounds each step of a check: so little that a check with a broker that hangs ends while somebody waits for it.
const checkTimeout = 4 * time.Second

// CheckOptions say what is checked besides the brokers and the topics.
type CheckOptions struct {
	Group           string // the consumer group that shows the offsets; empty: none
	TransactionalID string // by which they are written to it; empty: without transactions
}

// Check asks every broker, and the cluster about the topics of cfg: whether they are there, led, readable and in sync, and
// whether anything threatens records that aren't processed yet. It changes nothing.
func Check(ctx context.Context, cfg Config, opts CheckOptions, env doctor.Env) []doctor.Finding {
	if cfg.Timeout == 0 || cfg.Timeout > checkTimeout {
		cfg.Timeout = checkTimeout
	}
	c := &checker{cfg: cfg, opts: opts, env: env, now: time.Now()}
	defer c.close(ctx)
	if err := c.open(cfg.Brokers); err != nil {
		return []doctor.Finding{doctor.Of("kafka", err)}
	}
	return c.check(ctx)
}

// checker is one check of a source's cluster.
type checker struct {
	cfg  Config
	e    *Emitter // never opened; its client asks the brokers that answer
	opts CheckOptions
	env  doctor.Env
	now  time.Time

	versions *kversion.Versions // what a broker that answers knows
}

// address is a broker's, as it was configured or as the cluster tells it.
type address struct {
	addr string
	node int32 // -1: not told by the cluster
	seed bool
	*answered
	fault *fault
}

// open makes the client of a check anew, for these addresses.
func (c *checker) open(brokers []string) error {
	cfg := c.cfg
	cfg.Brokers = brokers
	// What fails is a finding: the client needn't log it too.
	e, err := New(c.env.Source, cfg, emitter.Env{Logger: hclog.NewNullLogger()})
	if err != nil {
		return err
	}
	if e.client, err = kgo.NewClient(e.opts...); err != nil {
		return configError("kafka", "correct the client's options", "%w", err)
	}
	c.e = e
	return nil
}

func (c *checker) close(ctx context.Context) {
	if c.e != nil {
		c.e.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it has been used for questions only
	}
}

func (c *checker) check(ctx context.Context) []doctor.Finding {
	var all []*address
	for _, b := range c.cfg.Brokers {
		if !slices.ContainsFunc(all, func(a *address) bool { return a.addr == b }) {
			all = append(all, &address{addr: b, node: -1, seed: true})
		}
	}
	c.probeAll(ctx, all)
	i := slices.IndexFunc(all, func(a *address) bool { return a.fault == nil })
	if i < 0 {
		return c.brokers(all, nil, nil)
	}
	meta := all[i].meta
	c.versions = all[i].versions
	told := c.told(meta, all)
	c.probeAll(ctx, told)
	all = append(all, told...)
	var well []string
	for _, a := range all {
		if a.fault == nil && a.seed {
			well = append(well, a.addr)
		}
	}
	c.close(ctx)
	if err := c.open(well); err != nil {
		return append(c.brokers(all, meta, nil), doctor.Of("kafka", err))
	}

	var topics, group []doctor.Finding
	var lead map[int32]int
	var wg sync.WaitGroup
	wg.Go(func() { topics, lead = c.topics(ctx) })
	wg.Go(func() { group = c.group(ctx) })
	wg.Wait()
	return slices.Concat(c.brokers(all, meta, lead), topics, group)
}

// told marks the addresses that the cluster tells as well, and returns those that were not configured, by node.
func (c *checker) told(meta *kmsg.MetadataResponse, all []*address) []*address {
	brokers := slices.Clone(meta.Brokers)
	slices.SortFunc(brokers, func(a, b kmsg.MetadataResponseBroker) int { return int(a.NodeID) - int(b.NodeID) })
	var more []*address
	for _, b := range brokers {
		addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		if i := slices.IndexFunc(all, func(a *address) bool { return a.addr == addr }); i >= 0 {
			all[i].node = b.NodeID
			continue
		}
		more = append(more, &address{addr: addr, node: b.NodeID})
	}
	return more
}

func (c *checker) probeAll(ctx context.Context, all []*address) {
	var wg sync.WaitGroup
	for _, a := range all {
		wg.Go(func() { a.answered, a.fault = c.probe(ctx, a.addr) })
	}
	wg.Wait()
}

// brokers says how each address fares. One that can't be used is an error where nothing works without it: if none answers,
// or it leads partitions that are to be read.
func (c *checker) brokers(all []*address, meta *kmsg.MetadataResponse, lead map[int32]int) []doctor.Finding {
	var findings []doctor.Finding
	for _, a := range all {
		f := doctor.Finding{Subject: "kafka " + a.addr}
		switch {
		case a.fault == nil:
			f.Text = c.wellText(a, meta)
			if v, ok := a.versions.LookupMaxKeyVersion(kmsg.Metadata.Int16()); !ok || v < minMetadata {
				f.Level, f.Code = doctor.Error, doctor.CodeVersion
				f.Text += "; it has no topic ids, so that a topic made again under its name isn't noticed"
				f.Remedy = "upgrade to Kafka 2.8 or newer"
			}
		default:
			f.Level, f.Code, f.Text, f.Remedy = doctor.Error, a.fault.code, a.fault.text, a.fault.remedy
			if meta != nil && lead[a.node] == 0 {
				f.Level = doctor.Warn
			}
			if n := lead[a.node]; n > 0 {
				f.Text += fmt.Sprintf("; %s to be read", leads(n))
			}
			if a.node >= 0 && !a.seed {
				f.Text = fmt.Sprintf("broker %d is told to be at this address: ", a.node) + f.Text
				f.Remedy += "; the broker's advertised.listeners must name an address that can be reached from here"
			}
		}
		findings = append(findings, f)
	}
	return findings
}

func leads(n int) string {
	if n == 1 {
		return "it leads 1 partition that is"
	}
	return fmt.Sprintf("it leads %d partitions that are", n)
}

func (c *checker) wellText(a *address, meta *kmsg.MetadataResponse) string {
	text := versionText(a.versions)
	if a.node >= 0 {
		text += fmt.Sprintf(", id %d", a.node)
	}
	text += ", cluster of " + count(len(meta.Brokers), "broker")
	if s := &c.e.cfg.SASL; s.Mechanism != "" {
		text += fmt.Sprintf(", lets %s in (%s)", s.who(), s.Mechanism)
	}
	if c.e.cfg.TLS.enabled() {
		text += ", over TLS"
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// group checks the right to read and write the group, and whether anybody else is in it.
func (c *checker) group(ctx context.Context) []doctor.Finding {
	if c.opts.Group == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f := doctor.Finding{Subject: "kafka group " + c.opts.Group, Text: "may be read and written"}
	var members []string
	err := patiently(ctx, func() (err error) {
		if members, err = c.members(ctx); err != nil {
			return err
		}
		return c.mayCommit(ctx)
	})
	switch {
	case err != nil:
		f = c.groupFault(f.Subject, err)
	case len(members) > 0:
		f.Level, f.Code = doctor.Warn, batch.CodeGroupMembers
		f.Text = fmt.Sprintf("has %s (%s): the brokers take offsets from members only, so that ours are refused", count(len(members), "member"), strings.Join(members, ", "))
		f.Remedy = "end the consumers in the group, or give the pipeline a group of its own (group: NAME); batches go on meanwhile"
	}
	findings := []doctor.Finding{f}
	if c.opts.TransactionalID != "" {
		findings = append(findings, c.transactions(ctx))
	}
	return findings
}

// patiently asks again while there is no coordinator: the first question about any group or transaction makes a cluster
// create the topic that needs one.
func patiently(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress) && !errors.Is(err, kerr.NotCoordinator) {
			return err
		}
		if sleep(ctx, minBackoff) != nil {
			return err
		}
	}
}

// groupFault says why a group can't be used. What a run can't write it tries again, so that it is a warning, but a right
// that is missing must be mended.
func (c *checker) groupFault(subject string, err error) doctor.Finding {
	f := doctor.Finding{Level: doctor.Warn, Subject: subject, Code: batch.CodeGroupCoordinator, Text: "can't be asked: " + plainText(err)}
	f.Remedy = "see to the brokers that hold the topic __consumer_offsets"
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		f.Level, f.Code, f.Text = doctor.Error, batch.CodeUnauthorized, "this user may not read and write the group's offsets"
		f.Remedy = fmt.Sprintf("grant the user Read on group %s, or switch the mirror off (group: off)", c.opts.Group)
	case errors.Is(err, kerr.InvalidGroupID):
		f.Level, f.Code, f.Text, f.Remedy = doctor.Error, batch.CodeConfiguration, "the brokers don't accept the name", "name another group (group: NAME)"
	case timedOut(err):
		f.Code, f.Text = batch.CodeTimeout, fmt.Sprintf("its coordinator doesn't answer within %s", checkTimeout)
	}
	return f
}

// members lists the client ids of the group's members.
func (c *checker) members(ctx context.Context) ([]string, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{c.opts.Group}
	resp, err := req.RequestWith(ctx, c.e.client)
	if err != nil {
		return nil, err
	}
	var members []string
	for _, g := range resp.Groups {
		switch err := kerr.ErrorForCode(g.ErrorCode); {
		case errors.Is(err, kerr.GroupIDNotFound):
		case err != nil:
			return nil, err
		}
		for _, m := range g.Members {
			members = append(members, m.ClientID)
		}
	}
	if len(members) == 0 {
		if members, err = c.newMembers(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(members)
	return slices.Compact(members), nil
}

// newMembers lists those who are in the group by the newer of the two protocols. Brokers that don't know it have none.
func (c *checker) newMembers(ctx context.Context) ([]string, error) {
	if !c.versions.HasKey(kmsg.ConsumerGroupDescribe.Int16()) {
		return nil, nil
	}
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{c.opts.Group}
	resp, err := req.RequestWith(ctx, c.e.client)
	if err != nil {
		return nil, err
	}
	var members []string
	for _, g := range resp.Groups {
		if errors.Is(kerr.ErrorForCode(g.ErrorCode), kerr.GroupAuthorizationFailed) {
			return nil, kerr.GroupAuthorizationFailed
		}
		for _, m := range g.Members {
			members = append(members, m.ClientID)
		}
	}
	return members, nil
}

// mayCommit asks for the right to commit offsets by a heartbeat of a member that doesn't exist: it needs the same right,
// and changes nothing.
func (c *checker) mayCommit(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID = c.opts.Group, nobody
	resp, err := req.RequestWith(ctx, c.e.client)
	if err != nil {
		return err
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.GroupIDNotFound):
		return nil
	default:
		return err
	}
}

// nobody is the name of a member that no group has.
const nobody = "tridentd-doctor-asks"

// transactions asks for the right to write by the transactional id, by ending a transaction of a producer that doesn't
// exist: nothing changes.
func (c *checker) transactions(ctx context.Context) doctor.Finding {
	f := doctor.Finding{Subject: "kafka transactional id " + c.opts.TransactionalID, Text: "may be used"}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = c.opts.TransactionalID
	req.ProducerID, req.ProducerEpoch = noProducer, 0
	err := patiently(ctx, func() error {
		resp, err := req.RequestWith(ctx, c.e.client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		f.Level, f.Code, f.Text = doctor.Error, batch.CodeUnauthorized, "this user may not use the transactional id"
		f.Remedy = "grant the user Write and Describe on the transactional id " + c.opts.TransactionalID
	case timedOut(err):
		f.Level, f.Code, f.Text = doctor.Warn, batch.CodeTimeout, fmt.Sprintf("its coordinator doesn't answer within %s", checkTimeout)
		f.Remedy = "see to the brokers that hold the topic __transaction_state"
	case errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.CoordinatorLoadInProgress), err != nil && !isKafka(err):
		f.Level, f.Code, f.Text = doctor.Warn, batch.CodeUnavailable, "can't be asked: "+plainText(err)
		f.Remedy = "see to the brokers that hold the topic __transaction_state"
	}
	return f
}

// noProducer is an id that no producer has.
const noProducer = 1<<63 - 1

func isKafka(err error) bool {
	_, ok := errors.AsType[*kerr.Error](err)
	return ok
}
