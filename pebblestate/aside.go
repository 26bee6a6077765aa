package pebblestate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tridentd/tridentd/batch"
)

// What lies beside a data directory while another database takes its place, and afterwards: the directory's name with one
// of these behind it.
const (
	// SuffixRestoring is of a copy that isn't whole yet, whatever follows. Nobody needs it.
	SuffixRestoring = ".restoring"
	// SuffixRestored is of a whole copy that is about to take the directory's place, and then of what it has replaced.
	SuffixRestored = ".restored"
	// SuffixReplaced is of what was replaced; the time follows.
	SuffixReplaced = ".replaced-"
)

// Aside lists the directories that lie beside dir because a database took its place, or was about to, in the order of their names.
func Aside(dir string) ([]string, error) {
	parent, base := filepath.Dir(dir), filepath.Base(dir)
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []string
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), base); ok && e.IsDir() &&
			(strings.HasPrefix(rest, SuffixRestoring) || rest == SuffixRestored || strings.HasPrefix(rest, SuffixReplaced)) {
			found = append(found, filepath.Join(parent, e.Name()))
		}
	}
	return found, err
}

// CheckAside refuses, with batch.CodeStoreMissing, a directory that holds no database while others lie beside it: a pipeline
// that began anew there would count everything twice that one of them holds.
func CheckAside(dir string) error {
	if Exists(dir) {
		return nil
	}
	found, err := Aside(dir)
	if err != nil || len(found) == 0 {
		return err
	}
	remedy := "restore the savepoint again"
	for _, f := range found {
		if !strings.HasPrefix(f, dir+SuffixRestoring) {
			remedy = fmt.Sprintf("move the one that the pipeline is to go on from to %s, or restore a savepoint again", dir)
		}
	}
	return batch.NewError(batch.Permanent, batch.CodeStoreMissing, "open",
		fmt.Errorf("%s holds no data, but a restore has left %s: it was interrupted, or the directory was removed since", dir, strings.Join(found, ", ")),
		remedy+"; to begin anew on purpose, move what lies beside it elsewhere")
}

// Lock is held on a data directory by one process at a time.
type Lock struct{ held io.Closer }

// LockDir takes the lock that Open takes, whatever is in dir. It is in use where Open says so.
func LockDir(ctx context.Context, dir string) (*Lock, error) {
	held, err := lockDir(ctx, &Options{Dir: dir, FS: vfs.Default})
	if err != nil {
		return nil, err
	}
	return &Lock{held}, nil
}

// Close gives it up.
func (l *Lock) Close() error { return l.held.Close() }
