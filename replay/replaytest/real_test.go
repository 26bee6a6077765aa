//go:build realkafka

package replaytest_test

import (
	"testing"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestLiveReal asserts determinism over a topic of a real Kafka, live and recorded.
func TestLiveReal(t *testing.T) {
	k := testenv.Kafka(t)
	n := 6000
	if testenv.Full() {
		n = 200_000
	}
	live(t, k.Brokers(), k.Topic(t, "events", 3, nil), n)
}
