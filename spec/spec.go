package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// Options are what a file is read with.
type Options struct {
	// Env looks up environment variables; nil means os.LookupEnv.
	Env func(name string) (string, bool)
	// Dir is what relative paths in the file are relative to; empty: the directory of the file that Load reads, the
	// working directory for Parse.
	Dir string
}

// Load reads and checks the pipeline in a file. The error is of type Problems where the file's content is wrong.
func Load(path string, opts Options) (*Pipeline, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		msg := err.Error()
		var pe *fs.PathError
		if errors.As(err, &pe) {
			msg = "can't be read: " + pe.Err.Error()
		}
		return nil, Problems{{File: path, Msg: msg}}
	}
	if opts.Dir == "" {
		opts.Dir = filepath.Dir(path)
	}
	return Parse(path, src, opts)
}

// Parse checks the pipeline in src. name stands for the file in messages.
func Parse(name string, src []byte, opts Options) (*Pipeline, error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	r := newReporter(name, src)
	if !utf8.Valid(src) {
		for i, line := range r.lines {
			if !utf8.ValidString(line) {
				r.add(pos{line: i + 1, column: 1}, "", "the line is not UTF-8 text")
			}
		}
		return nil, r.problems().asError()
	}
	tree := &treeParser{reporter: r, env: opts.Env}
	root := tree.parseTree(src, grammar())
	if root == nil || tree.swallowed {
		return nil, r.problems().asError()
	}
	return nil, r.problems().asError()
}

// Pipeline is a checked pipeline.
type Pipeline struct {
	name string
	dir  string
}
