// Command words counts the words of a Kafka topic, once each, whatever fails. It has all of tridentd's commands:
//
//	KAFKA_BROKERS=127.0.0.1:9092 go run ./examples/words run
//	go run ./examples/words query counts
//
// words.yaml beside this file declares the same pipeline.
package main

import (
	"strings"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/engine"
)

// Words counts the words of the topic "lines".
func Words(c *kafka.Cluster) *engine.Pipeline {
	p := engine.New("words")
	lines := engine.From(p, "lines", c.Topics("lines"), codec.String())
	words := engine.FlatMap(lines, func(s string) []string { return strings.Split(strings.ToLower(s), " ") }).
		Filter(func(w string) bool { return w != "" })
	byWord := engine.GroupBy(words, func(w string) string { return w }, "word")
	engine.Aggregate(byWord, "counts", agg.Count[string]("n"))
	return p
}

func main() { daemon.Main(Words(kafka.FromEnv())) }
