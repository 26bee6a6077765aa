package filesink

import (
	"path/filepath"

	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink"
)

// Target writes a stream's values to files in a folder, one value to a line and one file for each batch: an engine.Target.
type Target[T any] struct {
	dir    string
	encode codec.Encode[T]
	err    error
}

// JSON writes values as lines of JSON, which codec.JSON reads back. A relative folder is relative to the pipeline's file where it has one,
// to the working directory otherwise.
func JSON[T any](dir string) Target[T] {
	enc, err := codec.EncodeJSON[T]()
	return Target[T]{dir: dir, encode: enc, err: err}
}

// Describe names the form, and not the folder, which may move.
func (t Target[T]) Describe() string { return "files, json" }

// Encode makes a line of a value.
func (t Target[T]) Encode(v T, r *sink.Record) (err error) {
	if t.err != nil {
		return t.err
	}
	r.Value, err = t.encode(nil, v)
	return err
}

// Open returns the sink of one run. It touches nothing.
func (t Target[T]) Open(pipeline, name string, env emitter.Env) (sink.Sink, error) {
	if t.err != nil {
		return nil, t.err
	}
	dir := t.dir
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(env.Dir, dir)
	}
	s, err := New(Config{Pipeline: pipeline, Sink: name, Dir: dir, Logger: env.Logger})
	if err != nil {
		return nil, err
	}
	return s, nil
}
