// Command readings is the pipeline of readings.yaml, beside this file, in Go: readings of sensors into Parquet files, in a folder for each
// hour. It has all of tridentd's commands; run it in this folder:
//
//	go run . run --until caught-up
//	duckdb -c "select day, hour, sensor, avg(celsius) from read_parquet('out/*/*/*.parquet', hive_partitioning = true) group by all order by all"
package main

import (
	"time"

	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/sink/filesink"
)

// Reading is one line of the data, and one row of a file.
type Reading struct {
	Sensor  string
	At      time.Time
	Celsius codec.Null[decimal.Decimal]
	Battery int
}

// Readings writes what the sensors say, but for that in the shed, which is being repaired, to files in dir.
func Readings(dir string) *engine.Pipeline {
	p := engine.New("readings", engine.WithBatching(engine.Batching{MaxRecords: 50}))
	readings := engine.From(p, "readings", file.Paths("data/readings.jsonl"), codec.JSON[Reading]())
	known := readings.Filter(func(r Reading) bool { return r.Sensor != "shed" })
	engine.To(known, "hours", filesink.Parquet[Reading](dir).
		By(filesink.Hour, func(r Reading) time.Time { return r.At }).
		Compression("zstd").
		Scale(2))
	return p
}

func main() { daemon.Main(Readings("out")) }
