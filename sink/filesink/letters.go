package filesink

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/sink/deadletter"
)

// DeadLetters writes dead letters to files in a folder, a line of JSON for each, for engine.DeadLetters. Pipelines may share a folder.
func DeadLetters(dir string) Target[*deadletter.Letter] {
	return Target[*deadletter.Letter]{dir: dir, shared: true, form: "dead letters", encode: func(dst []byte, l *deadletter.Letter) ([]byte, error) {
		return l.AppendJSON(dst), nil
	}}
}

// ReadLetters passes on the dead letters that the target's folder holds of a pipeline.
func (t Target[T]) ReadLetters(ctx context.Context, env emitter.Env, pipeline string, yield func(*deadletter.Letter) error) error {
	return ReadLetters(ctx, t.place(env), pipeline, yield)
}

// sharedName begins the names of a sink's files in a folder that pipelines share.
func sharedName(pipeline, sink string) string { return pipeline + "." + sink }

// ReadLetters passes on the dead letters that a folder holds of a pipeline, batch by batch. A folder that doesn't exist holds none.
func ReadLetters(ctx context.Context, dir, pipeline string, yield func(*deadletter.Letter) error) error {
	names, err := filepath.Glob(filepath.Join(globEscape(dir), globEscape(sharedName(pipeline, deadletter.Sink))+"-*.jsonl"))
	if err != nil {
		return err
	}
	slices.Sort(names) // txids have leading zeros
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := readLetters(name, yield); err != nil {
			return err
		}
	}
	return nil
}

func readLetters(name string, yield func(*deadletter.Letter) error) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return batch.NewError(batch.Transient, batch.CodeUnavailable, "reading dead letters", err, "let this user read the folder")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return nil // files end behind a line
		}
		l, err := deadletter.ParseJSON(line)
		if err != nil {
			return batch.NewError(batch.Permanent, batch.CodeFileDamaged, "reading dead letters", fmt.Errorf("%s, line %d: %w", name, n, err), "move the file away, or restore it")
		}
		if err := yield(l); err != nil {
			return err
		}
	}
}
