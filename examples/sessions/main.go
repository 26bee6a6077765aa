// Command sessions is the pipeline of sessions.yaml, beside this file, in Go. It has all of tridentd's commands; run it in
// this folder:
//
//	go run . run --until caught-up
//	go run . query visits
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

// View is one line of the data.
type View struct {
	At         time.Time
	User, Page string
}

// Visit is what a state keeps of a visit.
type Visit struct {
	Pages agg.Counter
	Entry agg.First[string]
	Exit  agg.Last[string]
}

// Ended is a visit that has ended.
type Ended = engine.Result[string, Visit]

// Day is a row of the state daily.
type Day struct {
	Visits, Bounces agg.Counter
	Pages           agg.Sum[int64]
	Longest         agg.Max[int64]
}

const gap = 30 * time.Minute

// Sessions keeps the visits to a web site, views of one user less than half an hour apart, and the figures of each day.
func Sessions() *engine.Pipeline {
	p := engine.New("sessions")
	views := engine.From(p, "views", file.Paths("data/views.jsonl"), codec.JSON[View]()).
		EventTime(func(v View) time.Time { return v.At }, 5*time.Minute)
	byUser := engine.GroupByWindow(views, window.Session(gap), func(v View) string { return v.User }, "user")
	visits := engine.Aggregate(byUser, "visits", agg.Fields(func(a *Visit, v View) {
		a.Pages.Inc()
		a.Entry.Add(v.Page)
		a.Exit.Add(v.Page)
	}))

	// A visit belongs to the day on which it ends, by clocks in Berlin.
	days := engine.GroupByWindow(engine.Closed[Visit](visits), window.Tumbling(24*time.Hour).Zone("Europe/Berlin"), everything[Ended], "all")
	engine.Aggregate(days, "daily", agg.Fields(func(d *Day, v Ended) {
		pages := v.Value.Pages.Value()
		d.Visits.Inc()
		d.Bounces.If(pages == 1)
		d.Pages.Add(pages)
		d.Longest.Add(int64((v.Window.End.Sub(v.Window.Start) - gap) / time.Second))
	}))
	return p
}

func everything[T any](T) bool { return true }

func main() { daemon.Main(Sessions()) }
