//go:build realkafka

package kafka

import (
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/emittertest"
)

// realCluster is the broker at TRIDENTD_TEST_KAFKA. Topics of earlier runs are deleted.
func realCluster(t *testing.T) *cluster {
	t.Helper()
	addr := os.Getenv("TRIDENTD_TEST_KAFKA")
	if addr == "" {
		t.Fatal("TRIDENTD_TEST_KAFKA is not set: it names the broker that these tests use, host:port")
	}
	c := &cluster{t: t, addrs: []string{addr}}
	c.connect()
	return c
}

// clear deletes topics, and waits until the names are free again.
func (c *cluster) clear(topics ...string) {
	c.t.Helper()
	adm := kadm.NewClient(c.cl)
	there, err := adm.ListTopics(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range topics {
		if there.Has(name) {
			c.remove(name)
		}
	}
}

func TestRealScenarios(t *testing.T) {
	realCluster(t).clear("g02", "g02r", "g06", "aborts", "g07", "grows", "again", "again2", "lines", "ev-a", "ev-b", "other-ev-a", "starts", "kept")
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, realCluster(t)) })
	}
}

func TestRealConformance(t *testing.T) {
	emittertest.Run(t, func(t *testing.T) *emittertest.Source {
		c := realCluster(t)
		c.clear("conformance")
		c.createSoon("conformance")
		c.grow("conformance", 3)
		return &emittertest.Source{
			Open:       func(t *testing.T) emitter.Emitter { return newEmitter(t, c.config("conformance")) },
			Partitions: 3,
			Append: func(_ *testing.T, p int, values []string) {
				c.produce("conformance", int32(p), values...)
			},
			AddPartition: func(*testing.T) { c.grow("conformance", 4) },
		}
	})
}
