//go:build realkafka

package daemon_test

import (
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestDoctorKafkaForZooKeeper: the brokers' address is given for ZooKeeper's.
func TestDoctorKafkaForZooKeeper(t *testing.T) {
	k := testenv.Kafka(t)
	w := newGroupWorld(t, k.Brokers(), 3, "")
	all := w.doctor(0)
	w.finds(all, "ok", "kafka "+k.Brokers()[0], "", "version 4.4")
	w.finds(all, "ok", "kafka topic "+w.topic, "", "3 partitions, all led")
	w.write(strings.Replace(w.read(), "sources:", "zookeeper: {servers: \""+k.Brokers()[0]+"\"}\nsources:", 1))
	all = w.doctor(1)
	w.finds(all, "error", "zookeeper "+k.Brokers()[0], "zk_not_zookeeper", "")
	w.finds(all, "ok", "kafka topic "+w.topic, "", "3 partitions, all led")
}
