// Command relay takes large payments from one Kafka topic to another, each exactly once for whoever reads committed records:
//
//	KAFKA_BROKERS=127.0.0.1:9092 go run ./examples/relay run
//	kafka-console-consumer --bootstrap-server 127.0.0.1:9092 --topic large-payments --from-beginning --isolation-level read_committed
//
// Kill it, cut it off, start it again: no payment is missing, and none is there twice. relay.yaml beside this file declares the same
// pipeline.
package main

import (
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/engine"
)

// Payment is a record of both topics.
type Payment struct {
	Account string
	Amount  decimal.Decimal
	ID      string
}

var limit = decimal.FromInt(1000)

// Relay sends payments of at least 1000 from the topic "payments" to "large-payments", by account.
func Relay(c *kafka.Cluster) *engine.Pipeline {
	p := engine.New("relay")
	payments := engine.From(p, "payments", c.Topics("payments"), codec.JSON[Payment]())
	large := payments.Filter(func(x Payment) bool { return x.Amount.Cmp(limit) >= 0 })
	engine.To(large, "large", kafka.JSON(c, "large-payments", func(x Payment) string { return x.Account }))
	return p
}

func main() { daemon.Main(Relay(kafka.FromEnv())) }
