// Command flights is the pipeline of flights.yaml, beside this file, in Go. It has all of tridentd's commands; run it in
// this folder:
//
//	go run . run --until caught-up
//	go run . query by_carrier
package main

import (
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/window"
)

// Flight is one line of the data; what isn't named here isn't decoded.
type Flight struct {
	Carrier, Origin, Dest string
	DepDelay, DepTime     codec.Null[int64]
	Distance              int64
	TimeHour              time.Time
}

// Airline is a line of the static table.
type Airline struct{ Carrier, Name string }

// Carrier is a row of the state by_carrier.
type Carrier struct {
	Flights, Late agg.Counter
	Distance      agg.Sum[int64]
	Worst         agg.Max[int64]
	MeanDelay     agg.Mean[int64]
}

// Day is a row of the state daily.
type Day struct{ Flights, Cancelled agg.Counter }

// Route is a key of the state routes.
type Route struct{ Airline, Dest string }

// Flights keeps three states of the flights of January 2013.
func Flights() *engine.Pipeline {
	p := engine.New("flights")
	flights := engine.From(p, "flights", file.Paths("data/flights-2013-01.csv.gz"), codec.CSV[Flight]("NA", "")).
		EventTime(func(f Flight) time.Time { return f.TimeHour }, 24*time.Hour)
	airlines := engine.Static(p, "airlines", file.Paths("data/airlines.csv"), codec.CSV[Airline](),
		func(a Airline) string { return a.Carrier })

	flown := flights.Filter(func(f Flight) bool { return f.DepDelay.Valid })
	engine.Aggregate(engine.GroupBy(flown, func(f Flight) string { return f.Carrier }, "carrier"), "by_carrier",
		agg.Fields(func(a *Carrier, f Flight) {
			a.Flights.Inc()
			a.Late.If(f.DepDelay.V > 15)
			a.Distance.Add(f.Distance)
			a.Worst.Add(f.DepDelay.V)
			a.MeanDelay.Add(f.DepDelay.V)
		}))

	daily := engine.GroupByWindow(flights, window.Tumbling(24*time.Hour), func(f Flight) string { return f.Origin }, "origin")
	engine.Aggregate(daily, "daily", agg.Fields(func(a *Day, f Flight) { a.Flights.Inc(); a.Cancelled.If(!f.DepTime.Valid) }))

	routes := engine.Lookup(flights, airlines, func(f Flight) string { return f.Carrier },
		func(f Flight, a *Airline) Route { // no airline of that carrier: a is nil
			if a == nil {
				return Route{Dest: f.Dest}
			}
			return Route{a.Name, f.Dest}
		})
	engine.Aggregate(engine.GroupBy(routes, func(r Route) Route { return r }), "routes", agg.Count[Route]("flights"))
	return p
}

func main() { daemon.Main(Flights()) }
