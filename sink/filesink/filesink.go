package filesink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// Config says where to write. Pipeline, Sink and Dir have no defaults.
type Config struct {
	Pipeline, Sink string
	Dir            string // is made if it doesn't exist
	// Name begins the files' names; empty: Sink. Sinks of one folder need different ones.
	Name string
	// Extension of the files' names; empty: .jsonl.
	Extension string
	Logger    hclog.Logger
}

// Sink writes files. See the package's documentation for what it guarantees.
type Sink struct {
	cfg Config
	log hclog.Logger

	mu      sync.Mutex
	journal journal
	claimed bool
	at      uint64 // our latest step; valid if claimed
	part    *step  // of what is prepared
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink. It touches nothing.
func New(cfg Config) (*Sink, error) {
	if cfg.Dir == "" {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "file sink", errors.New("dir: none is given"), "name the folder to write to")
	}
	if cfg.Name == "" {
		cfg.Name = cfg.Sink
	}
	if cfg.Extension == "" {
		cfg.Extension = ".jsonl"
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &Sink{cfg: cfg, log: cfg.Logger, journal: journal{dir: filepath.Join(cfg.Dir, ".tridentd", cfg.Pipeline+"."+cfg.Sink)}}, nil
}

// failure names what the file system says as what it is.
func (s *Sink) failure(op string, err error) error {
	if _, ok := errors.AsType[*batch.Error](err); ok || err == nil {
		return err
	}
	code, remedy := batch.CodeUnavailable, "see to the folder "+s.cfg.Dir
	switch {
	case errors.Is(err, fs.ErrPermission):
		code, remedy = batch.CodeUnauthorized, "let this user write in the folder "+s.cfg.Dir
	case isFull(err):
		code, remedy = batch.CodeStoreFull, "make room in the folder "+s.cfg.Dir
	}
	return batch.NewError(batch.Transient, code, op, err, remedy)
}

// Progress implements sink.Sink.
func (s *Sink) Progress(context.Context) (sink.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, err := s.journal.last()
	if err != nil {
		return sink.Progress{}, s.failure("reading the progress", err)
	}
	return last.progress()
}

// Claim implements sink.Sink.
func (s *Sink) Claim(_ context.Context, epoch batch.Epoch) (sink.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed, s.part = false, nil
	p, err := s.claim(epoch)
	if err != nil {
		return sink.Progress{}, s.failure("claim", err)
	}
	s.claimed = true
	return p, nil
}

func (s *Sink) claim(epoch batch.Epoch) (sink.Progress, error) {
	if err := makeDirs(s.cfg.Dir, s.journal.dir); err != nil {
		return sink.Progress{}, err
	}
	for {
		last, err := s.journal.last()
		if err != nil {
			return sink.Progress{}, err
		}
		if last.Epoch > epoch {
			return sink.Progress{}, sink.Deposed("folder "+s.cfg.Dir, last.Epoch, epoch)
		}
		// What the last step decided is finished before anything else may be.
		if err := s.publish(&last); err != nil {
			return sink.Progress{}, err
		}
		next := last
		next.Pipeline, next.Sink, next.Epoch = s.cfg.Pipeline, s.cfg.Sink, epoch
		if last.Number == 0 {
			next.Chain = hex(0)
		}
		switch err := s.journal.take(last.Number, &next); {
		case errors.Is(err, errTaken):
			continue
		case err != nil:
			return sink.Progress{}, err
		}
		s.at = next.Number
		s.journal.trim()
		if err := s.sweep(); err != nil {
			return sink.Progress{}, err
		}
		return next.progress()
	}
}

// partName is where a batch lies until it counts.
func (s *Sink) partName(st *step) string {
	return filepath.Join(s.journal.dir, fmt.Sprintf("%020d.%d.part", st.Txid, st.PartEpoch))
}

func (s *Sink) finalName(st *step) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%s-%020d%s", s.cfg.Name, st.Txid, s.cfg.Extension))
}

// publish gives the file of a decided batch its name, if it hasn't it yet.
func (s *Sink) publish(st *step) error {
	if st.Txid == 0 {
		return nil
	}
	err := os.Rename(s.partName(st), s.finalName(st))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // that is done already
	}
	if err == nil {
		err = syncDir(s.cfg.Dir)
	}
	return err
}

// sweep removes what was written and never counted.
func (s *Sink) sweep() error {
	names, err := filepath.Glob(filepath.Join(globEscape(s.journal.dir), "*.part"))
	if err != nil {
		return err
	}
	steps, err := filepath.Glob(filepath.Join(globEscape(s.journal.dir), "*.step"))
	if err != nil {
		return err
	}
	names = append(names, steps...)
	for _, name := range names {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

var errUnclaimed = errors.New("the sink isn't claimed")

// Prepare implements sink.Sink.
func (s *Sink) Prepare(_ context.Context, out *sink.Output) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimed {
		return s.failure("prepare", errUnclaimed)
	}
	st := &step{Pipeline: s.cfg.Pipeline, Sink: s.cfg.Sink, Epoch: out.Epoch, Txid: out.Txid, Chain: hex(out.Chain), PartEpoch: out.Epoch}
	if err := s.write(s.partName(st), out); err != nil {
		return s.failure("writing the batch", err)
	}
	s.part = st
	return nil
}

func (s *Sink) write(name string, out *sink.Output) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666) //nolint:gosec // readers are others; umask says who
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 64<<10)
	for p, r := range out.All() {
		line := r.Value
		if line == nil {
			line = []byte("null")
		}
		if bytes.IndexByte(line, '\n') >= 0 {
			return batch.NewError(batch.Permanent, batch.CodeBadRecord, "write", errors.New("the value holds a line break, which ends a record in the file"), "write it as JSON").At(p, r.Offset)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		if err := w.WriteByte('\n'); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// Commit implements sink.Sink.
func (s *Sink) Commit(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.part
	if !s.claimed || st == nil {
		return s.failure("commit", errUnclaimed)
	}
	s.part, s.claimed = nil, false // unless it succeeds
	if err := s.journal.take(s.at, st); err != nil {
		if errors.Is(err, errTaken) {
			err = fmt.Errorf("somebody else has claimed the folder %s: %w", s.cfg.Dir, err)
		}
		return s.failure("commit", err)
	}
	if err := s.publish(st); err != nil {
		return s.failure("naming the file", err)
	}
	s.claimed, s.at = true, st.Number
	s.journal.trim()
	return nil
}

// Abort implements sink.Sink.
func (s *Sink) Abort(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.part == nil {
		return s.failure("abort", errUnclaimed)
	}
	err := os.Remove(s.partName(s.part))
	s.part = nil
	return s.failure("abort", err)
}

// Forget implements sink.Sink.
func (s *Sink) Forget(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimed {
		return s.failure("forget", errUnclaimed)
	}
	s.claimed = false // unless it succeeds
	last, err := s.journal.last()
	if err != nil {
		return s.failure("forget", err)
	}
	st := &step{Pipeline: s.cfg.Pipeline, Sink: s.cfg.Sink, Epoch: last.Epoch, Chain: hex(0)}
	if err := s.journal.take(s.at, st); err != nil {
		return s.failure("forget", err)
	}
	s.claimed, s.at = true, st.Number
	return nil
}

// Close implements sink.Sink.
func (s *Sink) Close(context.Context) error { return nil }

func globEscape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
