// Command trending is the pipeline of trending.yaml, beside this file, in Go. It has all of tridentd's commands; run it in
// this folder:
//
//	go run . run --until caught-up
//	go run . query best
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

// Post is one line of the data.
type Post struct {
	At  time.Time
	Tag string
}

// Count is how many posts a tag has in a window.
type Count = engine.Result[string, int64]

// Best is a row of the state best.
type Best struct {
	Until agg.Max[time.Time]
	Top   agg.TopBy[string, int64] `trident:",k=3"`
	Posts agg.Sum[int64]
}

// Trending keeps, for each five minutes, the three tags with the most posts of the last ten.
func Trending() *engine.Pipeline {
	p := engine.New("trending")
	posts := engine.From(p, "posts", file.Paths("data/posts.jsonl"), codec.JSON[Post]()).
		EventTime(func(p Post) time.Time { return p.At }, time.Minute)
	byTag := engine.GroupByWindow(posts, window.Sliding(10*time.Minute, 5*time.Minute), func(p Post) string { return p.Tag }, "tag")
	counts := engine.Aggregate(byTag, "counts", agg.Count[Post]("n"))

	// The time of a window's rows is the last nanosecond of it, so that each five minutes have the rows of one window: of the one
	// that ends with them.
	closed := engine.Closed[int64](counts)
	engine.Aggregate(engine.GroupByWindow(closed, window.Tumbling(5*time.Minute), everything[Count], "all"), "best",
		agg.Fields(func(t *Best, c Count) {
			t.Until.Add(c.Window.End)
			t.Top.Add(c.Key, c.Value)
			t.Posts.Add(c.Value)
		}))
	return p
}

func everything[T any](T) bool { return true }

func main() { daemon.Main(Trending()) }
