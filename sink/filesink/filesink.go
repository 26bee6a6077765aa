package filesink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
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
	Name   string
	Format Format
	Logger hclog.Logger
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
	if err := cfg.Format.Check(); err != nil {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "file sink", err, "")
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
		if err := s.publish(&last, false); err != nil {
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
		if err := s.sweep(epoch); err != nil {
			return sink.Progress{}, err
		}
		return next.progress()
	}
}

// partName is where file i of a batch lies until it counts.
func (s *Sink) partName(st *step, i int) string {
	name := fmt.Sprintf("%020d.%d", st.Txid, st.PartEpoch)
	if i > 0 {
		name += fmt.Sprintf(".%d", i)
	}
	return filepath.Join(s.journal.dir, name+partExt)
}

const partExt = ".part"

// partEpoch is the epoch under which a file aside was written.
func partEpoch(name string) (batch.Epoch, bool) {
	fields := strings.Split(filepath.Base(name), ".")
	if len(fields) < 3 {
		return 0, false
	}
	epoch, err := strconv.ParseUint(fields[1], 10, 64)
	return batch.Epoch(epoch), err == nil
}

// fileName is the name of a batch's file in a folder, relative and with slashes.
func (s *Sink) fileName(folder string, txid batch.Txid) string {
	return path.Join(folder, fmt.Sprintf("%s-%020d%s", s.cfg.Name, txid, s.cfg.Format.extension()))
}

// files lists the names of a step's files.
func (s *Sink) files(st *step) []string {
	if len(st.Files) > 0 || st.Txid == 0 {
		return st.Files
	}
	return []string{fmt.Sprintf("%s-%020d.jsonl", s.cfg.Name, st.Txid)} // of a step from before files had folders and forms
}

// publish gives the files of a decided batch their names, if they haven't them yet. After a claim nothing is missing of what isn't there
// any more: readers may take files away. must: this process has just written them.
func (s *Sink) publish(st *step, must bool) error {
	touched := map[string]bool{}
	for i, name := range s.files(st) {
		part, final := s.partName(st, i), filepath.Join(s.cfg.Dir, filepath.FromSlash(name))
		dir := filepath.Dir(final)
		if _, err := os.Lstat(part); errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Lstat(final); must && err != nil {
				return fmt.Errorf("the file of txid %d that was written aside is gone: %w", st.Txid, err)
			}
			continue // that is done already
		}
		if !touched[dir] && dir != filepath.Clean(s.cfg.Dir) {
			if err := makeDirs(s.cfg.Dir, dir); err != nil {
				return err
			}
		}
		if err := os.Rename(part, final); err != nil && !(errors.Is(err, fs.ErrNotExist) && !must) {
			return err
		}
		touched[dir] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(touched)) {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what was written and never counted, up to our epoch: what a process of a higher one writes, which has taken over from us
// meanwhile, is its own.
func (s *Sink) sweep(epoch batch.Epoch) error {
	var names []string
	for _, pattern := range []string{"*" + partExt, "*.step"} {
		found, err := filepath.Glob(filepath.Join(globEscape(s.journal.dir), pattern))
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	for _, name := range names {
		if e, ok := partEpoch(name); ok && e > epoch {
			continue
		}
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
	folders := byFolder(out)
	for i, folder := range slices.Sorted(maps.Keys(folders)) {
		if err := s.write(s.partName(st, i), folder, folders[folder]); err != nil {
			return s.failure("writing the batch", err)
		}
		st.Files = append(st.Files, s.fileName(folder, out.Txid))
	}
	s.part = st
	return nil
}

// placed is a record with the partition that it is of.
type placed struct {
	partition batch.Partition
	*sink.Record
}

// byFolder sorts a batch's records by the folder that each goes to, which its topic names.
func byFolder(out *sink.Output) map[string][]placed {
	all := map[string][]placed{}
	for p, r := range out.All() {
		all[r.Topic] = append(all[r.Topic], placed{p, r})
	}
	return all
}

func (s *Sink) write(name, folder string, records []placed) (err error) {
	if folder != "" && !isFolder(folder) {
		return batch.NewError(batch.Permanent, batch.CodeBadRecord, "write", fmt.Errorf("%q names no folder below the sink's", folder), "name folders by words with slashes between, none of which begins with a dot").
			At(records[0].partition, records[0].Offset)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666) //nolint:gosec // readers are others; umask says who
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := s.cfg.Format.begin(f)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := w.add(r.Record); err != nil {
			if e, ok := errors.AsType[*batch.Error](err); ok {
				return e.At(r.partition, r.Offset)
			}
			return err
		}
	}
	if err := w.end(); err != nil {
		return err
	}
	return f.Sync()
}

// isFolder tells whether a name with slashes is one of a folder within another, none of it hidden.
func isFolder(name string) bool {
	return filepath.IsLocal(filepath.FromSlash(name)) && path.Clean(name) == name && !strings.HasPrefix(name, ".") && !strings.Contains(name, "/.")
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
	if err := s.publish(st, true); err != nil {
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
	var errs []error
	for i := range s.part.Files {
		errs = append(errs, os.Remove(s.partName(s.part, i)))
	}
	s.part = nil
	return s.failure("abort", errors.Join(errs...))
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
