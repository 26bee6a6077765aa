// Package testenv gives tests the real servers that they need. A test that can't get its server fails with the
// reason: it never passes by being skipped.
//
// Kafka, ZooKeeper, Postgres and Redis hand out the server that scripts/test has started for the whole run (KafkaVar, ZooKeeperVar,
// PostgresVar, RedisVar), or start one. OwnKafka and the others of its kind always start one, for tests that stop, kill or pause it. What a test started
// ends with the test, by the pid files of scripts/servers; if the test process itself is killed, scripts/test ends it,
// as all of it lies in the temporary directory that the script has set. Proxy stands between a client and a server, and
// delays, swallows and cuts.
//
// Tests that need a real broker carry the build tag realkafka, those that need ZooKeeper (or both) realzk, those that
// kill processes crash; realsql and realredis are those with PostgreSQL and Redis.
package testenv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Environment variables that scripts/test sets.
const (
	// KafkaVar holds host:port of a broker that all tests of the run share.
	KafkaVar = "TRIDENTD_TEST_KAFKA"
	// ZooKeeperVar holds host:port of a ZooKeeper server that all tests of the run share.
	ZooKeeperVar = "TRIDENTD_TEST_ZOOKEEPER"
	// FullVar asks for the full number of rounds in tests that run a share of them otherwise.
	FullVar = "TRIDENTD_TEST_FULL"
)

// Full tells whether the tests are to run their full number of rounds.
func Full() bool { return os.Getenv(FullVar) == "1" }

const (
	startTimeout = 3 * time.Minute // the first start on a machine fetches the jars
	callTimeout  = time.Minute
)

// KafkaServer is a Kafka cluster of one broker, or of those that Options ask for.
type KafkaServer struct {
	// Addr is host:port of each broker, comma-separated.
	Addr string

	dir string // empty: shared, and not ours to stop
}

// Option sets up a server of one's own.
type Option func(*[]string)

// Brokers asks for a cluster of n brokers: 1 or 3.
func Brokers(n int) Option {
	return func(args *[]string) { *args = append(*args, "--brokers", fmt.Sprint(n)) }
}

// Set adds a line to each server's configuration: a broker's properties, zoo.cfg, redis.conf, a setting of PostgreSQL.
func Set(key, value string) Option {
	return func(args *[]string) { *args = append(*args, "--set", key+"="+value) }
}

// Kafka returns the broker that the tests of this run share, or one of the test's own where there is none. Tests
// keep apart by their topics: see Topic.
func Kafka(tb testing.TB) *KafkaServer {
	tb.Helper()
	if addr := os.Getenv(KafkaVar); addr != "" {
		return &KafkaServer{Addr: addr}
	}
	return OwnKafka(tb)
}

// OwnKafka starts a broker for this test alone.
func OwnKafka(tb testing.TB, opts ...Option) *KafkaServer {
	tb.Helper()
	dir, err := os.MkdirTemp("", "tridentd-kafka-") //nolint:usetesting // scripts/test knows what to end by this name
	if err != nil {
		tb.Fatalf("testenv: no directory for Kafka: %v", err)
	}
	k := &KafkaServer{dir: dir}
	tb.Cleanup(func() {
		// The test's own context has ended by now.
		if out, err := k.script(context.Background(), startTimeout, "clean"); err != nil {
			tb.Errorf("testenv: ending Kafka: %v\n%s", err, out)
		}
		os.RemoveAll(dir) //nolint:errcheck // what a failed start left; the script has removed the rest
	})
	args := []string{"--port", "auto"}
	for _, o := range opts {
		o(&args)
	}
	if out, err := k.script(tb.Context(), startTimeout, "start", args...); err != nil {
		tb.Fatalf("testenv: this test needs a real Kafka, which didn't start: %v\n%s", err, out)
	}
	out, err := k.script(tb.Context(), callTimeout, "address")
	if err != nil {
		tb.Fatalf("testenv: address of Kafka: %v\n%s", err, out)
	}
	k.Addr = strings.TrimSpace(out)
	return k
}

// Brokers lists the addresses.
func (k *KafkaServer) Brokers() []string { return strings.Split(k.Addr, ",") }

// Start starts the brokers that don't run, and waits until they answer. nodes limits it to some, from 1.
func (k *KafkaServer) Start(tb testing.TB, nodes ...int) {
	tb.Helper()
	k.control(tb, "start", nodes)
}

// Stop ends brokers in an orderly way; their data stay.
func (k *KafkaServer) Stop(tb testing.TB, nodes ...int) {
	tb.Helper()
	k.control(tb, "stop", nodes)
}

// Kill ends brokers by SIGKILL: a crash.
func (k *KafkaServer) Kill(tb testing.TB, nodes ...int) {
	tb.Helper()
	k.control(tb, "kill", nodes)
}

// Pause stops brokers with SIGSTOP: connections stay open, and nothing answers.
func (k *KafkaServer) Pause(tb testing.TB, nodes ...int) {
	tb.Helper()
	k.control(tb, "pause", nodes)
}

// Resume lets paused brokers go on.
func (k *KafkaServer) Resume(tb testing.TB, nodes ...int) {
	tb.Helper()
	k.control(tb, "resume", nodes)
}

// Tool runs one of Kafka's own tools ("topics", "consumer-groups", "transactions", …) and returns what it printed.
func (k *KafkaServer) Tool(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	if k.dir == "" {
		// The script finds a broker by its directory or its port; the shared one is known by its address alone.
		_, port, ok := strings.Cut(k.Brokers()[0], ":")
		if !ok {
			tb.Fatalf("testenv: %s=%q is not host:port", KafkaVar, k.Addr)
		}
		out, err := run(tb.Context(), startTimeout, kafkaScript, append([]string{"tool", name, "--port", port, "--"}, args...)...)
		if err != nil {
			tb.Fatalf("testenv: kafka tool %s: %v\n%s", name, err, out)
		}
		return out
	}
	out, err := run(tb.Context(), startTimeout, kafkaScript, append([]string{"tool", name, "--dir", k.dir, "--"}, args...)...)
	if err != nil {
		tb.Fatalf("testenv: kafka tool %s: %v\n%s", name, err, out)
	}
	return out
}

// Topic makes a topic with a name of its own, which begins with prefix, and returns the name. configs holds settings
// by Kafka's names. The topic is removed with the test.
func (k *KafkaServer) Topic(tb testing.TB, prefix string, partitions int32, configs map[string]string) string {
	tb.Helper()
	name := Unique(prefix)
	k.TopicNamed(tb, name, partitions, configs)
	return name
}

// TopicNamed makes a topic of the given name; it is removed with the test.
func (k *KafkaServer) TopicNamed(tb testing.TB, name string, partitions int32, configs map[string]string) {
	tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(tb.Context(), callTimeout)
	defer cancel()
	set := make(map[string]*string, len(configs))
	for key, v := range configs {
		set[key] = &v
	}
	const replicas = -1 // the broker's default
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, replicas, set, name); err != nil {
		tb.Fatalf("testenv: making topic %s on %s: %v", name, k.Addr, err)
	}
	if k.dir != "" {
		return // it goes with the broker
	}
	tb.Cleanup(func() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...))
		if err != nil {
			tb.Errorf("testenv: %v", err)
			return
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		// A test may have removed it already: what counts is that it is gone, so the answer doesn't matter.
		_, _ = kadm.NewClient(cl).DeleteTopics(ctx, name)
	})
}

// Unique returns a name that no other test of this or an earlier run has: prefix and random digits. Topics and
// groups on a shared broker need it.
func Unique(prefix string) string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // it never fails
	return prefix + "-" + hex.EncodeToString(b[:])
}

func (k *KafkaServer) control(tb testing.TB, command string, nodes []int) {
	tb.Helper()
	if k.dir == "" {
		tb.Fatalf("testenv: %s on the shared broker would break other tests; use OwnKafka", command)
	}
	control(tb, kafkaScript, k.dir, command, nodes)
}

func (k *KafkaServer) script(ctx context.Context, limit time.Duration, command string, args ...string) (string, error) {
	return run(ctx, limit, kafkaScript, append([]string{command, "--dir", k.dir}, args...)...)
}
