package savepoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/scratch"
)

// copyPrefix begins the names of directories for copies.
const copyPrefix = "copy-"

// MakeCopies makes a directory for copies of a store in the store's own, where they cost nothing but links. remove removes it with
// all that is in it.
func MakeCopies(dir string) (tmp string, remove func() error, err error) {
	tmp, remove, err = scratch.Make(dir, copyPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("a copy of the store: %w", err)
	}
	return tmp, remove, nil
}

// SweepCopies removes the copies of processes that have gone without doing so: their links would keep files on the disk that the
// store doesn't need any more.
func SweepCopies(dir string) {
	scratch.Sweep(dir, copyPrefix)
	found, _ := filepath.Glob(filepath.Join(dir, copyPrefix+"*"))
	for _, path := range found {
		// The lock of one in use is there before it and goes after it.
		if strings.HasSuffix(path, scratch.LockSuffix) {
			continue
		}
		if _, err := os.Lstat(path + scratch.LockSuffix); errors.Is(err, fs.ErrNotExist) {
			os.RemoveAll(path) //nolint:errcheck // the next one tries again
		}
	}
}

// markName is the file beside a copy that is to become a savepoint. It is empty until the copy's txid is known.
const markName = "savepoint"

// Making is a savepoint that is being made: it isn't in its place yet, which may take hours, but will need of the store's ledger what
// lies behind its txid.
type Making struct {
	Name  string     `json:"name"`
	Txid  batch.Txid `json:"txid"`
	Chain string     `json:"chain"` // as in Info
	Made  Reason     `json:"made,omitempty"`
	// Begun is set while the copy isn't whole: all else is empty. The copy will be of the txid that has committed by now, or of a later one.
	Begun bool `json:"-"`
	copy  string
}

// Same tells whether two are one, at different times.
func (m Making) Same(o Making) bool { return m.copy == o.copy }

// InMaking lists the savepoints that are being made of the store in dir, by whatever process. One that has left the list is in its
// place, or has failed.
func InMaking(dir string) ([]Making, error) {
	copies, err := scratch.InUse(dir, copyPrefix)
	if err != nil {
		return nil, err
	}
	var all []Making
	for _, c := range copies {
		b, err := os.ReadFile(filepath.Join(c, markName))
		switch {
		case errors.Is(err, fs.ErrNotExist): // a copy for something else, or one of which nothing has been copied yet
			continue
		case err != nil:
			return nil, err
		}
		m := Making{Begun: len(b) == 0, copy: c}
		if !m.Begun {
			if err := json.Unmarshal(b, &m); err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(c, markName), err)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// mark says that the copy in tmp is to become a savepoint; nil before the copy is made.
func mark(tmp string, info *Info) error {
	path := filepath.Join(tmp, markName)
	if info == nil {
		return os.WriteFile(path, nil, 0o600)
	}
	b, err := json.Marshal(Making{Name: info.Name, Txid: info.Txid, Chain: info.Chain, Made: info.Made})
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+partial, b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+partial, path)
}
