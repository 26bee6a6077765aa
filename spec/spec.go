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
	// Functions are those of Go that expressions may call, besides the built-in ones.
	Functions []Func
}

func (o *Options) env() func(string) (string, bool) {
	if o.Env == nil {
		return os.LookupEnv
	}
	return o.Env
}

// Load reads and checks the pipeline in a file. The error is of type Problems where the file's content is wrong.
func Load(path string, opts Options) (*Pipeline, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if opts.Dir == "" {
		opts.Dir = filepath.Dir(path)
	}
	return Parse(path, src, opts)
}

func readFile(path string) ([]byte, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		msg := err.Error()
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			msg = "can't be read: " + pe.Err.Error()
		}
		return nil, Problems{{File: path, Msg: msg}}
	}
	return src, nil
}

// reportOn begins to report on a file's content, which must be text.
func reportOn(name string, src []byte) (*reporter, error) {
	r := newReporter(name, src)
	if !utf8.Valid(src) {
		for i, line := range r.lines {
			if !utf8.ValidString(line) {
				r.add(pos{line: i + 1, column: 1}, "", "the line is not UTF-8 text")
			}
		}
		return nil, r.problems().asError()
	}
	return r, nil
}

// Parse checks the pipeline in src. name stands for the file in messages.
func Parse(name string, src []byte, opts Options) (*Pipeline, error) {
	r, err := reportOn(name, src)
	if err != nil {
		return nil, err
	}
	functions, wrong := opts.functions(name)
	if len(wrong) > 0 {
		return nil, wrong
	}
	tree := &treeParser{reporter: r, env: opts.env()}
	root := tree.parseTree(src, grammar())
	if root == nil || tree.swallowed {
		return nil, r.problems().asError()
	}
	b := &modeler{reporter: r, functions: functions}
	m := b.build(root)
	b.readSchemas(opts.Dir)
	m.readHeaders(opts.Dir)
	c := &checker{reporter: r, m: m, mirrored: map[string]string{}}
	c.check()
	c.checkQueries()
	p := &Pipeline{name: m.name, dir: opts.Dir, m: m, c: c}
	for _, s := range c.sources {
		p.connectors = append(p.connectors, c.connect(s.decl))
	}
	for _, s := range c.statics {
		p.tables = append(p.tables, c.connectStatic(s.decl))
	}
	for _, s := range m.sinks {
		c.targets = append(c.targets, c.sinkTarget(s))
	}
	if m.dead != nil {
		c.dead = c.sinkTarget(m.dead.target)
	}
	p.keeper = c.keeper(m.keeper)
	if len(r.list) > 0 {
		return nil, r.problems().asError()
	}
	for _, q := range c.queries {
		q.c.finish()
	}
	c.finish()
	if c.resolvePeeks(); len(r.list) > 0 {
		return nil, r.problems().asError()
	}
	m.noteOutside()
	p.notes = m.notes
	return p, nil
}
