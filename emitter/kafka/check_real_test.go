//go:build realkafka

package kafka

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/testenv"
)

func ownCluster(t *testing.T, opts ...testenv.Option) (*testenv.KafkaServer, *cluster) {
	t.Helper()
	k := testenv.OwnKafka(t, opts...)
	c := &cluster{t: t, addrs: k.Brokers()}
	c.connect()
	return k, c
}

// await checks until a finding appears.
func await(t *testing.T, cfg Config, opts CheckOptions, is func(doctor.Finding) bool) []doctor.Finding {
	t.Helper()
	return awaitAll(t, cfg, opts, func(all []doctor.Finding) bool { return slices.ContainsFunc(all, is) })
}

// awaitAll checks until the findings are what is waited for.
func awaitAll(t *testing.T, cfg Config, opts CheckOptions, are func([]doctor.Finding) bool) []doctor.Finding {
	t.Helper()
	var all []doctor.Finding
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		all = examine(t, cfg, opts)
		if are(all) {
			return all
		}
	}
	t.Fatalf("not found within a minute:\n%s", listed(all))
	return nil
}

// TestRealCheckBrokerDown: three brokers, one of which is killed: partitions that only it held have no leader, those that
// others hold as well are read on. A broker that was paused is named within the time.
func TestRealCheckBrokerDown(t *testing.T) {
	k, c := ownCluster(t, testenv.Brokers(3))
	admin := kadm.NewClient(c.cl)
	for topic, replicas := range map[string]int16{"safe": 3, "solo": 1} {
		if _, err := admin.CreateTopic(c.ctx(), 3, replicas, map[string]*string{"min.insync.replicas": new("1")}, topic); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Brokers: c.addrs, Topics: []string{"safe", "solo"}}
	opts := CheckOptions{Group: "g", TransactionalID: "x"}
	well := awaitAll(t, cfg, opts, nothingWrong) // not all brokers know of new topics at once
	for _, a := range c.addrs {
		wantFinding(t, well, doctor.OK, "kafka "+a, "", "version 4.4, id ")
	}
	wantFinding(t, well, doctor.OK, "kafka topic solo", "", "3 partitions, all led")

	k.Pause(t, 2)
	paused := examine(t, cfg, opts)
	wantFinding(t, paused, doctor.Error, "kafka "+c.addrs[1], batch.CodeTimeout, "doesn't answer")
	k.Resume(t, 2)
	k.Kill(t, 2)
	// The others notice in their time, and the killed one's connections may end before its listener does.
	down := awaitAll(t, cfg, opts, func(all []doctor.Finding) bool {
		has := func(code batch.Code) bool {
			return slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Code == code })
		}
		return has(doctor.CodeNoLeader) && has(doctor.CodeRefused)
	})
	wantFinding(t, down, doctor.Warn, "kafka "+c.addrs[1], doctor.CodeRefused, "nothing listens there")
	wantFinding(t, down, doctor.Error, "kafka topic solo", doctor.CodeNoLeader, "of 3 has no leader")
	wantFinding(t, down, doctor.OK, "kafka topic safe", "", "3 partitions, all led")
	wantFinding(t, down, doctor.Warn, "kafka topic safe", doctor.CodeReplicas, "not all replicas are in sync")

	if _, err := admin.AlterTopicConfigs(c.ctx(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: new("3")}}, "safe"); err != nil {
		t.Fatal(err)
	}
	await(t, cfg, opts, func(f doctor.Finding) bool {
		return f.Subject == "kafka topic safe" && f.Code == doctor.CodeReplicas && strings.Contains(f.Text, "than min.insync.replicas (3)")
	})
}

// TestRealCheckRights: each right that a run needs, denied by itself, is named; nothing was written by asking.
func TestRealCheckRights(t *testing.T) {
	_, c := ownCluster(t, testenv.Set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
		testenv.Set("allow.everyone.if.no.acl.found", "true"), testenv.Set("super.users", "User:nobody"))
	c.create("lines", 1, map[string]string{"retention.ms": "-1"})
	admin := kadm.NewClient(c.cl)
	cfg := Config{Brokers: c.addrs, Topics: []string{"lines"}}
	opts := CheckOptions{Group: "g", TransactionalID: "x"}
	wantNothingWrong(t, examine(t, cfg, opts))

	// Where a resource has an ACL, what none allows is denied.
	allow := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Topics("lines").Groups("g").TransactionalIDs("x").Allow("User:ANONYMOUS").AllowHosts("*").
			Operations(kmsg.ACLOperationAll).ResourcePatternType(kadm.ACLPatternLiteral)
	}
	if _, err := admin.CreateACLs(c.ctx(), allow()); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		acl     *kadm.ACLBuilder
		op      kadm.ACLOperation
		level   doctor.Level
		subject string
		code    batch.Code
		text    string
	}{
		{"read topic", kadm.NewACLs().Topics("lines"), kmsg.ACLOperationRead, doctor.Error, "kafka topic lines", batch.CodeUnauthorized, "not read it"},
		{"describe topic", kadm.NewACLs().Topics("lines"), kmsg.ACLOperationDescribe, doctor.Error, "kafka topic lines", batch.CodeUnauthorized, "may not see"},
		{"configs", kadm.NewACLs().Topics("lines"), kmsg.ACLOperationDescribeConfigs, doctor.Warn, "kafka topic lines", doctor.CodeNotSeen, "settings can't be seen"},
		{"read group", kadm.NewACLs().Groups("g"), kmsg.ACLOperationRead, doctor.Error, "kafka group g", batch.CodeUnauthorized, ""},
		{"describe group", kadm.NewACLs().Groups("g"), kmsg.ACLOperationDescribe, doctor.Error, "kafka group g", batch.CodeUnauthorized, ""},
		{"write transaction", kadm.NewACLs().TransactionalIDs("x"), kmsg.ACLOperationWrite, doctor.Error, "kafka transactional id x", batch.CodeUnauthorized, ""},
		{"describe transaction", kadm.NewACLs().TransactionalIDs("x"), kmsg.ACLOperationDescribe, doctor.Error, "kafka transactional id x", batch.CodeUnauthorized, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.acl.Deny("User:ANONYMOUS").DenyHosts("*").Operations(tc.op).ResourcePatternType(kadm.ACLPatternLiteral)
			made, err := admin.CreateACLs(c.ctx(), b)
			if err != nil || made[0].Err != nil {
				t.Fatal(err, made)
			}
			all := await(t, cfg, opts, func(f doctor.Finding) bool { return f.Level != doctor.OK })
			wantFinding(t, all, tc.level, tc.subject, tc.code, tc.text)
			if _, err := admin.DeleteACLs(c.ctx(), b); err != nil {
				t.Fatal(err)
			}
			await(t, cfg, opts, func(f doctor.Finding) bool { return f.Subject == tc.subject && f.Level == doctor.OK })
		})
	}
	groups, err := admin.ListGroups(c.ctx())
	if err != nil || len(groups) > 0 {
		t.Errorf("asking made groups: %v %v", groups, err)
	}
	txns, err := admin.ListTransactions(c.ctx(), nil, nil)
	if err != nil || len(txns) > 0 {
		t.Errorf("asking made transactions: %v %v", txns, err)
	}
}

// TestRealCheckRetention: a topic that is bounded by bytes, with nothing processed.
func TestRealCheckRetention(t *testing.T) {
	c := realCluster(t)
	topic := testenv.Unique("doctor")
	c.create(topic, 1, map[string]string{"retention.ms": "-1", "retention.bytes": "3000"})
	t.Cleanup(func() { c.remove(topic) })
	c.produce(topic, 0, strings.Repeat("x", 1000), strings.Repeat("y", 1000))
	cfg := Config{Brokers: c.addrs, Topics: []string{topic}}
	all := examine(t, cfg, CheckOptions{}, saved(topic, 0))
	wantFinding(t, all, doctor.Warn, "kafka topic "+topic, doctor.CodeRetention, "wait to be processed")
	wantNothingWrong(t, examine(t, cfg, CheckOptions{}, saved(topic, 2)))
}
