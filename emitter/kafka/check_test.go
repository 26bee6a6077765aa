package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/testenv"
)

// examine checks a cluster for source s, and makes sure of what holds for all findings.
func examine(t *testing.T, cfg Config, opts CheckOptions, positions ...batch.Position) []doctor.Finding {
	t.Helper()
	began := time.Now()
	all := Check(t.Context(), cfg, opts, doctor.Env{Pipeline: "p", Source: "s", Positions: positions})
	if took := time.Since(began); took > 3*checkTimeout {
		t.Errorf("the check took %s", took)
	}
	for _, f := range all {
		if f.Subject == "" || f.Text == "" {
			t.Errorf("a finding without subject or text: %+v", f)
		}
		if well := f.Level == doctor.OK; well != (f.Code == "") || well != (f.Remedy == "") {
			t.Errorf("what isn't ok has a code and a remedy, and nothing else has: %+v", f)
		}
	}
	return all
}

// wantFinding fails unless there is a finding as described, with text in it.
func wantFinding(t *testing.T, all []doctor.Finding, level doctor.Level, subject string, code batch.Code, text string) {
	t.Helper()
	for _, f := range all {
		if f.Level == level && f.Subject == subject && f.Code == code && strings.Contains(f.Text, text) {
			return
		}
	}
	t.Errorf("no finding %s %q %s with %q among:\n%s", level, subject, code, text, listed(all))
}

// wantNothingWrong fails if there is any finding but ok.
func wantNothingWrong(t *testing.T, all []doctor.Finding) {
	t.Helper()
	if !nothingWrong(all) {
		t.Errorf("something is wrong:\n%s", listed(all))
	}
}

func nothingWrong(all []doctor.Finding) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Level != doctor.OK })
}

func listed(all []doctor.Finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s %q %s %q → %s\n", f.Level, f.Subject, f.Code, f.Text, f.Remedy)
	}
	return b.String()
}

func saved(topic string, next int64) batch.Position {
	return batch.Position{Partition: batch.Partition{Source: "s", Topic: topic}, Next: next, LeaderEpoch: batch.NoEpoch}
}

func TestCheckWell(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t, kfake.NumBrokers(3))
	c.create("lines", 4, map[string]string{"retention.ms": "-1"})
	c.produce("lines", 0, "a", "b", "c")
	all := examine(t, Config{Brokers: c.addrs, Topics: []string{"lines"}}, CheckOptions{Group: "g", TransactionalID: "x"}, saved("lines", 1))
	wantNothingWrong(t, all)
	for _, a := range c.addrs {
		wantFinding(t, all, doctor.OK, "kafka "+a, "", "cluster of 3 brokers")
	}
	wantFinding(t, all, doctor.OK, "kafka topic lines", "", "4 partitions, all led, 2 records not processed yet")
	wantFinding(t, all, doctor.OK, "kafka clock", "", "")
	wantFinding(t, all, doctor.OK, "kafka group g", "", "")
	wantFinding(t, all, doctor.OK, "kafka transactional id x", "", "")

	one := examine(t, Config{Brokers: c.addrs[1:2], Topics: []string{"lines"}}, CheckOptions{})
	for _, a := range c.addrs {
		wantFinding(t, one, doctor.OK, "kafka "+a, "", "cluster of 3 brokers")
	}
	if slices.ContainsFunc(one, func(f doctor.Finding) bool { return strings.HasPrefix(f.Subject, "kafka group") }) {
		t.Errorf("a group was checked that there isn't:\n%s", listed(one))
	}
}

func TestCheckChangesNothing(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t, kfake.SeedTopics(1, "lines"))
	var changed []string
	for _, key := range []kmsg.Key{
		kmsg.Produce, kmsg.OffsetCommit, kmsg.JoinGroup, kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.InitProducerID, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit,
	} {
		c.fake.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			changed = append(changed, kmsg.NameForKey(r.Key()))
			return nil, nil, false
		})
	}
	wantNothingWrong(t, examine(t, Config{Brokers: c.addrs, Topics: []string{"lines"}}, CheckOptions{Group: "g", TransactionalID: "x"}))
	if len(changed) > 0 {
		t.Errorf("a check sent %v", changed)
	}
}

func TestCheckTopics(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t)
	hour := map[string]string{"retention.ms": "3600000"}
	for name, configs := range map[string]map[string]string{
		"lines": nil, "compacted": {"cleanup.policy": "compact"}, "both": {"cleanup.policy": "compact,delete"}, "short": hour, "late": hour, "small": {"retention.bytes": "2000"},
		"future": nil, "appended": {"message.timestamp.type": "LogAppendTime"}, "cut": nil,
	} {
		c.create(name, 1, configs)
	}
	at := func(topic string, ago time.Duration, size int) {
		t.Helper()
		r := &kgo.Record{Topic: topic, Timestamp: time.Now().Add(-ago), Value: make([]byte, size)}
		if err := c.cl.ProduceSync(c.ctx(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	at("short", 52*time.Minute, 1)
	at("late", 2*time.Hour, 1)
	at("future", -time.Hour, 1)
	for range 4 {
		at("small", 0, 450)
	}
	c.produce("cut", 0, "a", "b", "c", "d")
	c.deleteBelow("cut", 0, 3)

	of := func(positions []batch.Position, topics ...string) []doctor.Finding {
		t.Helper()
		return examine(t, Config{Brokers: c.addrs, Topics: topics}, CheckOptions{}, positions...)
	}
	wantFinding(t, of(nil, "lins"), doctor.Error, "kafka topic lins", batch.CodeTopicMissing, "did you mean lines?")
	wantFinding(t, of(nil, "compacted"), doctor.Warn, "kafka topic compacted", doctor.CodeCompacted, "")
	wantFinding(t, of(nil, "both"), doctor.Warn, "kafka topic both", doctor.CodeCompacted, "")

	short := of([]batch.Position{saved("short", 0)}, "short")
	wantFinding(t, short, doctor.Warn, "kafka topic short", doctor.CodeRetention, "retention 1h, lag 52m")
	wantFinding(t, short, doctor.Warn, "kafka topic short", doctor.CodeRetention, "gone in 7m")
	wantFinding(t, of([]batch.Position{saved("late", 0)}, "late"), doctor.Warn, "kafka topic late", doctor.CodeRetention, "at any moment")
	wantNothingWrong(t, of([]batch.Position{saved("short", 1)}, "short")) // all is processed
	wantNothingWrong(t, of(nil, "short"))                                 // it has never run

	small := of([]batch.Position{saved("small", 0)}, "small")
	wantFinding(t, small, doctor.Warn, "kafka topic small", doctor.CodeRetention, "wait to be processed")
	wantNothingWrong(t, of([]batch.Position{saved("small", 4)}, "small"))

	wantFinding(t, of(nil, "future"), doctor.Warn, "kafka clock", doctor.CodeClock, "topic future is stamped 59m")

	wantFinding(t, of([]batch.Position{saved("cut", 1)}, "cut"), doctor.Error, "kafka topic cut", batch.CodeOutOfRange, "wanted 1, available [3,4), 2 lost")
	wantFinding(t, of([]batch.Position{saved("cut", 9)}, "cut"), doctor.Error, "kafka topic cut", batch.CodeLogTruncated, "had 9")
	other := saved("lines", 0)
	other.Identity = "AAAAAAAAAAAAAAAAAAAAAQ"
	wantFinding(t, of([]batch.Position{other}, "lines"), doctor.Error, "kafka topic lines", batch.CodeTopicChanged, "made again")
}

func TestCheckPattern(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t, kfake.SeedTopics(2, "a-1", "a-2", "b"))
	c.create("a-3", 1, map[string]string{"cleanup.policy": "compact"})
	of := func(pattern string) []doctor.Finding {
		return examine(t, Config{Brokers: c.addrs, Pattern: pattern}, CheckOptions{})
	}
	wantFinding(t, of("a-[12]"), doctor.OK, "kafka topics like a-[12]", "", "2 topics, 4 partitions, all led")
	wantFinding(t, of("nope.*"), doctor.Warn, "kafka topics like nope.*", doctor.CodeNoMatch, "")
	all := of("a-.*")
	wantFinding(t, all, doctor.OK, "kafka topics like a-.*", "", "something is to be said of 1 topic")
	wantFinding(t, all, doctor.Warn, "kafka topic a-3", doctor.CodeCompacted, "")
	if len(all) != 3 {
		t.Errorf("topics that are well have rows of their own:\n%s", listed(all))
	}
}

func TestCheckMembers(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t, kfake.SeedTopics(1, "lines"))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.ClientID("intruder"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("lines"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	c.produce("lines", 0, "a")
	if fs := cl.PollFetches(c.ctx()); fs.Err() != nil { // by now it is in the group
		t.Fatal(fs.Err())
	}
	all := examine(t, Config{Brokers: c.addrs, Topics: []string{"lines"}}, CheckOptions{Group: "g"})
	wantFinding(t, all, doctor.Warn, "kafka group g", batch.CodeGroupMembers, "has 1 member (intruder)")
}

func TestCheckVersions(t *testing.T) {
	t.Parallel()
	old := fakeCluster(t, kfake.SeedTopics(1, "lines"), kfake.MaxVersions(kversion.V2_7_0()))
	all := examine(t, Config{Brokers: old.addrs, Topics: []string{"lines"}}, CheckOptions{Group: "g"})
	wantFinding(t, all, doctor.Error, "kafka "+old.addrs[0], doctor.CodeVersion, "no topic ids")
	least := fakeCluster(t, kfake.SeedTopics(1, "lines"), kfake.MaxVersions(kversion.V2_8_0()))
	wantNothingWrong(t, examine(t, Config{Brokers: least.addrs, Topics: []string{"lines"}}, CheckOptions{Group: "g"}))
}

func TestCheckRights(t *testing.T) {
	t.Parallel()
	acl := func(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	read := acl(kmsg.ACLResourceTypeTopic, "lines", kmsg.ACLOperationRead)
	configs := acl(kmsg.ACLResourceTypeTopic, "lines", kmsg.ACLOperationDescribeConfigs)
	group := acl(kmsg.ACLResourceTypeGroup, "g", kmsg.ACLOperationRead)
	txn := acl(kmsg.ACLResourceTypeTransactionalId, "x", kmsg.ACLOperationWrite)
	users := map[string][]kfake.ACL{
		"all":      {read, configs, group, txn},
		"blind":    {group, txn},
		"unread":   {acl(kmsg.ACLResourceTypeTopic, "lines", kmsg.ACLOperationDescribe), configs, group, txn},
		"plain":    {read, group, txn},
		"ungroup":  {read, configs, txn},
		"untxn":    {read, configs, group},
		"describe": {read, configs, group, acl(kmsg.ACLResourceTypeTransactionalId, "x", kmsg.ACLOperationDescribe)},
	}
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "r"), kfake.SeedTopics(1, "lines")}
	for user, acls := range users {
		opts = append(opts, kfake.User("PLAIN", user, "secret", acls...))
	}
	fake, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	as := func(user, password string) []doctor.Finding {
		t.Helper()
		cfg := Config{Brokers: fake.ListenAddrs(), Topics: []string{"lines"}, SASL: SASL{Mechanism: "PLAIN", User: user, Password: password}}
		return examine(t, cfg, CheckOptions{Group: "g", TransactionalID: "x"})
	}
	broker := "kafka " + fake.ListenAddrs()[0]
	all := as("all", "secret")
	wantNothingWrong(t, all)
	wantFinding(t, all, doctor.OK, broker, "", "lets user all in (PLAIN)")

	wantFinding(t, as("blind", "secret"), doctor.Error, "kafka topic lines", batch.CodeUnauthorized, "may not see")
	wantFinding(t, as("unread", "secret"), doctor.Error, "kafka topic lines", batch.CodeUnauthorized, "not read it")
	wantFinding(t, as("plain", "secret"), doctor.Warn, "kafka topic lines", doctor.CodeNotSeen, "settings")
	wantFinding(t, as("ungroup", "secret"), doctor.Error, "kafka group g", batch.CodeUnauthorized, "")
	wantFinding(t, as("untxn", "secret"), doctor.Error, "kafka transactional id x", batch.CodeUnauthorized, "")
	wantFinding(t, as("describe", "secret"), doctor.Error, "kafka transactional id x", batch.CodeUnauthorized, "")

	wantFinding(t, as("all", "wrong"), doctor.Error, broker, batch.CodeUnauthorized, "user all")
	bare := Config{Brokers: fake.ListenAddrs(), Topics: []string{"lines"}}
	wantFinding(t, examine(t, bare, CheckOptions{}), doctor.Error, broker, batch.CodeUnauthorized, "isn't an authentication")
	bare.SASL = SASL{Mechanism: "SCRAM-SHA-256", User: "all", Password: "secret"}
	wantFinding(t, examine(t, bare, CheckOptions{}), doctor.Error, broker, batch.CodeUnauthorized, "SCRAM-SHA-256")
}

// listen answers each connection by f, until the test ends.
func listen(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f(conn)
			}()
			go func() { <-ended; conn.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestCheckAddresses(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t, kfake.SeedTopics(1, "lines"))
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	mute := listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	slams := listen(t, func(net.Conn) {})
	babble := listen(t, func(conn net.Conn) { io.WriteString(conn, "220 mail.example.org ready\r\n"); io.Copy(io.Discard, conn) })
	zookeeper := listen(t, func(conn net.Conn) {
		word := make([]byte, 4)
		if io.ReadFull(conn, word); string(word) == "srvr" {
			io.WriteString(conn, "Zookeeper version: 3.9.5\n")
		}
	})
	cert, ca := selfSigned(t)
	secure := fakeTLS(t, cert)
	closedPort := func() string {
		l := testenv.Listen(t)
		defer l.Close()
		return l.Addr().String()
	}()
	for _, tc := range []struct {
		name, addr string
		tls        TLS
		code       batch.Code
		text       string
	}{
		{"refused", closedPort, TLS{}, doctor.CodeRefused, "nothing listens"},
		{"unknown name", "no-such-host.invalid:9092", TLS{}, doctor.CodeUnresolved, "no-such-host.invalid"},
		{"mute", mute, TLS{}, batch.CodeTimeout, "doesn't answer"},
		{"mute, TLS", mute, TLS{Enabled: true}, batch.CodeTimeout, "no connection within"},
		{"slams the door", slams, TLS{}, doctor.CodeNotKafka, "closes the connection"},
		{"another protocol", babble, TLS{}, doctor.CodeNotKafka, "220 mail"},
		{"web server", web.Listener.Addr().String(), TLS{}, doctor.CodeNotKafka, "a web server answers"},
		{"ZooKeeper", zookeeper, TLS{}, doctor.CodeNotKafka, "ZooKeeper answers"},
		{"TLS, not asked for", secure, TLS{}, doctor.CodeTLS, "tls isn't set"},
		{"TLS, not there", c.addrs[0], TLS{Enabled: true}, doctor.CodeTLS, "doesn't speak TLS"},
		{"TLS, unknown authority", secure, TLS{Enabled: true}, doctor.CodeTLS, "isn't trusted"},
		{"TLS, another name", secure, TLS{CAFile: ca, ServerName: "other.example.org"}, doctor.CodeTLS, "another name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			alone := examine(t, Config{Brokers: []string{tc.addr}, Topics: []string{"lines"}, TLS: tc.tls}, CheckOptions{Group: "g"})
			wantFinding(t, alone, doctor.Error, "kafka "+tc.addr, tc.code, tc.text)
			if tc.tls.enabled() {
				return
			}
			// Beside a broker that answers it is no more than a warning.
			beside := examine(t, Config{Brokers: []string{tc.addr, c.addrs[0]}, Topics: []string{"lines"}}, CheckOptions{Group: "g"})
			wantFinding(t, beside, doctor.Warn, "kafka "+tc.addr, tc.code, tc.text)
			wantFinding(t, beside, doctor.OK, "kafka topic lines", "", "all led")
		})
	}
	t.Run("TLS, trusted", func(t *testing.T) {
		t.Parallel()
		all := examine(t, Config{Brokers: []string{secure}, Topics: []string{"lines"}, TLS: TLS{CAFile: ca}}, CheckOptions{})
		wantNothingWrong(t, all)
		wantFinding(t, all, doctor.OK, "kafka "+secure, "", "over TLS")
	})
}

// A broker that the cluster tells, and that can't be reached at the address it tells, is an error if it leads what is to be
// read.
func TestCheckAdvertised(t *testing.T) {
	t.Parallel()
	c := fakeCluster(t, kfake.SeedTopics(1, "lines"))
	c.fake.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		r := req.(*kmsg.MetadataRequest)
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		for id, addr := range map[int32]string{0: c.addrs[0], 7: "127.0.0.1:1"} {
			host, port, _ := net.SplitHostPort(addr)
			b := kmsg.NewMetadataResponseBroker()
			b.NodeID, b.Host = id, host
			fmt.Sscan(port, &b.Port)
			resp.Brokers = append(resp.Brokers, b)
		}
		for _, rt := range r.Topics {
			mt := kmsg.NewMetadataResponseTopic()
			mt.Topic, mt.TopicID = rt.Topic, topicID{1}
			for i, leader := range []int32{0, 7, -1} {
				p := kmsg.NewMetadataResponseTopicPartition()
				p.Partition, p.Leader, p.Replicas, p.ISR = int32(i), leader, []int32{0, 7}, []int32{leader}
				mt.Partitions = append(mt.Partitions, p)
			}
			resp.Topics = append(resp.Topics, mt)
		}
		return resp, nil, true
	})
	all := examine(t, Config{Brokers: c.addrs, Topics: []string{"lines"}}, CheckOptions{})
	wantFinding(t, all, doctor.OK, "kafka "+c.addrs[0], "", "cluster of 2 brokers")
	wantFinding(t, all, doctor.Error, "kafka 127.0.0.1:1", doctor.CodeRefused, "broker 7 is told to be at this address: nothing listens there; it leads 1 partition")
	wantFinding(t, all, doctor.Error, "kafka topic lines", doctor.CodeNoLeader, "partition 2 of 3 has no leader")
	wantFinding(t, all, doctor.Error, "kafka topic lines", batch.CodeUnavailable, "partition 1 can't be asked")
	wantFinding(t, all, doctor.Warn, "kafka topic lines", doctor.CodeReplicas, "not all replicas are in sync")
}

func TestCheckSettings(t *testing.T) {
	t.Parallel()
	all := examine(t, Config{Brokers: []string{"nowhere"}, Topics: []string{"lines"}}, CheckOptions{})
	wantFinding(t, all, doctor.Error, "kafka", batch.CodeConfiguration, "host:port")
}

// selfSigned makes a certificate for 127.0.0.1 that signs itself, and a file with it.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func fakeTLS(t *testing.T, cert tls.Certificate) string {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "lines"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake.ListenAddrs()[0]
}
