package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/engine/enginetest"
)

// exampleTB lets examples use the test kit.
type exampleTB struct {
	testing.TB
	cleanup []func()
}

func (t *exampleTB) Helper()                         {}
func (t *exampleTB) Context() context.Context        { return context.Background() }
func (t *exampleTB) Cleanup(f func())                { t.cleanup = append(t.cleanup, f) }
func (t *exampleTB) Error(args ...any)               { fmt.Println(args...) }
func (t *exampleTB) Errorf(text string, args ...any) { fmt.Printf(text+"\n", args...) }
func (t *exampleTB) Fatal(args ...any)               { panic(fmt.Sprint(args...)) }
func (t *exampleTB) Fatalf(text string, args ...any) { panic(fmt.Sprintf(text, args...)) }

// source is a source of lines for an example.
func source(p *engine.Pipeline, name string) engine.Stream[string] {
	return engine.From(p, name, nowhere{}, codec.String())
}

// show runs a pipeline on batches, and prints what each of them sends along the stream that build returns.
func show[T any](build func(p *engine.Pipeline) engine.Stream[T], in ...enginetest.Input) {
	t := &exampleTB{}
	p := engine.New("example")
	enginetest.Watch(build(p), "shown")
	r := enginetest.Run(t, p, in...)
	for _, e := range r.Entries {
		for _, v := range enginetest.Rows[T](r, "shown", e.Txid) {
			fmt.Printf("%d: %+v\n", e.Txid, v)
		}
	}
	for _, f := range t.cleanup {
		f()
	}
}

// keep runs a pipeline on batches, and prints the rows of one of its states. fmt prints maps by their keys.
func keep[K comparable, V any](state string, build func(p *engine.Pipeline), in ...enginetest.Input) {
	t := &exampleTB{}
	p := engine.New("example")
	build(p)
	fmt.Println(enginetest.State[K, V](enginetest.Run(t, p, in...), state))
	for _, f := range t.cleanup {
		f()
	}
}
