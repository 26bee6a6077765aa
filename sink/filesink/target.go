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
	shared bool // files' names begin with the pipeline's
	form   string
	encode codec.Encode[T]
	err    error
}

// JSON writes values as lines of JSON, which codec.JSON reads back. A relative folder is relative to the pipeline's file where it has one,
// to the working directory otherwise.
func JSON[T any](dir string) Target[T] {
	enc, err := codec.EncodeJSON[T]()
	return Target[T]{dir: dir, form: "json", encode: enc, err: err}
}

// Describe names the form, and not the folder, which may move.
func (t Target[T]) Describe() string { return "files, " + t.form }

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
	cfg := Config{Pipeline: pipeline, Sink: name, Dir: t.place(env), Logger: env.Logger}
	if t.shared {
		cfg.Name = SharedName(pipeline, name)
	}
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// place is the folder, where the pipeline's file is taken into account.
func (t Target[T]) place(env emitter.Env) string {
	if t.dir == "" || filepath.IsAbs(t.dir) {
		return t.dir
	}
	return filepath.Join(env.Dir, t.dir)
}
