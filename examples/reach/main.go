// Reach keeps who has tweeted a page and who follows whom, and answers how many people a page has reached: Trident's example of a
// distributed query.
package main

import (
	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
)

type Tweet struct{ URL, Person string }

type Follow struct{ Person, Follower string }

// Page is what the query is asked with, Reached what it answers.
type Page struct{ URL string }

type Reached struct{ People int64 }

func Reach() *engine.Pipeline {
	p := engine.New("reach")
	tweets := engine.From(p, "tweets", file.Paths("data/tweets.csv"), codec.CSV[Tweet]())
	tweeters := engine.Aggregate(engine.GroupBy(tweets, func(t Tweet) string { return t.URL }, "url"), "tweeters",
		agg.CollectOf("people", func(t Tweet) string { return t.Person }))
	follows := engine.From(p, "follows", file.Paths("data/follows.csv"), codec.CSV[Follow]())
	followers := engine.Aggregate(engine.GroupBy(follows, func(f Follow) string { return f.Person }, "person"), "followers",
		agg.CollectOf("people", func(f Follow) string { return f.Follower }))

	engine.Query(p, "reach", func(pages engine.Stream[Page]) engine.Stream[Reached] {
		tweeted := engine.StateQuery(pages, tweeters, func(p Page) string { return p.URL }, people)
		each := engine.FlatMap(tweeted, one)
		reached := engine.FlatMap(engine.StateQuery(each, followers, self, people), one)
		// Who follows several of them is counted once.
		once := engine.BatchAggregate[int64](engine.GroupBy(reached, self, "person"), "once", agg.Count[string]("n"))
		all := engine.BatchAggregateAll[int64](once, "reach", agg.Count[engine.Total[string, int64]]("n"))
		return engine.Map(all, func(n int64) Reached { return Reached{n} })
	})
	return p
}

// people are those that a state has for a value; nobody if it has no row.
func people[T any](_ T, row *[]string) []string {
	if row == nil {
		return nil
	}
	return *row
}

func one(people []string) []string { return people }

func self(person string) string { return person }

func main() { daemon.Main(Reach()) }
