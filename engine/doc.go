// Package engine defines pipelines in Go and runs them.
//
// A pipeline reads sources in batches with transaction ids 1, 2, 3, … and keeps what its aggregates come to in
// states. Every record counts exactly once: a batch's results, the offsets it read and its txid reach the store in
// one atomic write, and after a crash at any instruction the pipeline goes on from what that store holds.
//
//	p := engine.New("words")
//	lines := engine.From(p, "lines", kafka.New("127.0.0.1:9092").Topics("lines"), codec.String())
//	words := engine.FlatMap(lines, strings.Fields)
//	engine.Aggregate(engine.GroupBy(words, func(w string) string { return w }, "word"), "counts", agg.Count[string]("n"))
//	err := engine.Run(ctx, p, engine.Options{})
//
// # The caller's duties
//
// A function given to a pipeline must be a function of its arguments: no clock, no random source, no order of a
// Go map may reach its result. [Batch] has a clock and random numbers that are recorded with the batch and come out
// the same when it is run again. Functions are called from several goroutines at once, for different partitions; one
// that keeps state of its own breaks the guarantee. A value that a function was given must not be kept or changed
// after it returned, unless it made the value itself.
//
// A function that panics, or a Try variant that returns an error, makes a bad record of its step: the pipeline
// stops with the record's place and the cause, or turns the record away into the state _rejected, as
// [OnBadRecord] says. [Transient] marks an error as worth another attempt of the whole batch.
//
// Mistakes in the construction of a pipeline (a name used twice, a type that can't be stored) are collected and
// reported together by Run, before anything starts.
package engine
