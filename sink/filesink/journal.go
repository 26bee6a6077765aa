package filesink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// step is one step of a journal: what the target holds since then.
type step struct {
	Version  int         `json:"tridentd"`
	Pipeline string      `json:"pipeline"`
	Sink     string      `json:"sink"`
	Number   uint64      `json:"step"`
	Epoch    batch.Epoch `json:"epoch"`
	Txid     batch.Txid  `json:"txid"`
	Chain    string      `json:"chain"` // 16 hexadecimal digits
	// PartEpoch is the epoch under which the file of Txid was written.
	PartEpoch batch.Epoch `json:"part_epoch"`
	// Files are the names of Txid's files, relative to the folder and with slashes. The i-th was written aside as part i.
	Files []string `json:"files,omitempty"`
}

// stepVersion is the version of the form. Readers accept later ones, which only add fields.
const stepVersion = 1

func hex(chain uint64) string { return fmt.Sprintf("%016x", chain) }

func (st *step) progress() (sink.Progress, error) {
	if st.Number == 0 {
		return sink.Progress{}, nil
	}
	chain, err := strconv.ParseUint(st.Chain, 16, 64)
	if err != nil {
		return sink.Progress{}, damaged(st.Number, fmt.Errorf("its digest is %q", st.Chain))
	}
	return sink.Progress{Txid: st.Txid, Epoch: st.Epoch, Chain: chain}, nil
}

func damaged(number uint64, err error) error {
	return batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "progress", fmt.Errorf("step %d of the journal: %w", number, err),
		"restore the folder, or start over with an empty one and --fresh")
}

// journal is a folder of steps, numbered from 1 without a gap, of which the latest are kept.
type journal struct {
	dir string
}

// kept is how many steps stay.
const kept = 16

var errTaken = errors.New("the next step of its journal is taken")

func (j *journal) path(number uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%020d.json", number))
}

// numbers lists the steps that are there, in order.
func (j *journal) numbers() ([]uint64, error) {
	entries, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(name, 10, 64); err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// last returns the latest step; the zero step if there is none.
func (j *journal) last() (step, error) {
	for {
		all, err := j.numbers()
		if err != nil || len(all) == 0 {
			return step{}, err
		}
		n := all[len(all)-1]
		b, err := os.ReadFile(j.path(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue // many have come since
		}
		if err != nil {
			return step{}, err
		}
		var st step
		if err := json.Unmarshal(b, &st); err != nil {
			return step{}, damaged(n, err)
		}
		if st.Version < 1 || st.Number != n {
			return step{}, damaged(n, fmt.Errorf("it says that it is step %d of version %d", st.Number, st.Version))
		}
		return st, nil
	}
}

// take makes st the step after the given one, if nobody has taken that.
func (j *journal) take(after uint64, st *step) error {
	st.Version, st.Number = stepVersion, after+1
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	aside := filepath.Join(j.dir, fmt.Sprintf("%020d.%d.step", st.Number, st.Epoch))
	if err := writeFile(aside, b); err != nil {
		return err
	}
	err = os.Link(aside, j.path(st.Number)) // fails if it is there
	if rerr := os.Remove(aside); err == nil {
		err = rerr
	}
	if errors.Is(err, fs.ErrExist) {
		return errTaken
	}
	if err == nil {
		err = syncDir(j.dir)
	}
	if err != nil {
		return err
	}
	// Whoever slept for long may have found its step trimmed.
	all, err := j.numbers()
	if err != nil {
		return err
	}
	if all[len(all)-1] != st.Number {
		return errors.Join(errTaken, os.Remove(j.path(st.Number)))
	}
	return nil
}

func writeFile(name string, b []byte) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666) //nolint:gosec // readers are others; umask says who
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// trim removes steps that nobody needs. Whoever is so far behind finds later ones.
func (j *journal) trim() {
	all, err := j.numbers()
	if err != nil {
		return
	}
	for _, n := range all[:max(0, len(all)-kept)] {
		os.Remove(j.path(n)) //nolint:errcheck // the next one tries again
	}
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func makeDirs(dir, inner string) error {
	if err := os.MkdirAll(inner, 0o777); err != nil { //nolint:gosec // readers are others; umask says who
		return err
	}
	for d := inner; ; d = filepath.Dir(d) {
		if err := syncDir(d); err != nil {
			return err
		}
		if d == filepath.Dir(dir) || d == filepath.Dir(d) {
			return nil
		}
	}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
