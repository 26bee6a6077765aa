package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tridentd/tridentd/batch"
)

const (
	// SocketName is the socket's file in the pipeline's data directory.
	SocketName = "tridentd.sock"
	// socketPathName is the file that holds the socket's path where that can't be in the data directory.
	socketPathName = SocketName + ".path"

	// maxSocketPath is what a unix address holds on every system we run on (Linux 107 bytes, macOS and the BSDs 103).
	maxSocketPath = 103

	dialTimeout = 5 * time.Second
)

// socket is a listening unix socket and the files that go with it.
type socket struct {
	listener net.Listener
	files    []string // to be removed in the end, in this order
}

// listenSocket makes the socket of a data directory. The caller holds the directory's lock, so a socket that is
// there already is a dead one's, or belongs to somebody who works in the directory without the lock: that is
// an error.
func listenSocket(dir string) (*socket, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, socketError(err)
	}
	if path, err := socketPath(dir); err == nil {
		conn, err := dialSocket(context.Background(), path)
		switch {
		case err == nil:
			conn.Close() //nolint:errcheck // it was a question only
			return nil, batch.NewError(batch.Permanent, batch.CodeStoreInUse, "open socket",
				fmt.Errorf("another process answers on %s", path), "stop it, or give another directory with --data")
		case !isGone(err):
			return nil, socketError(err)
		}
		if err := removeStale(dir, path); err != nil {
			return nil, socketError(err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, socketError(err)
	}

	path := filepath.Join(dir, SocketName)
	s := &socket{files: []string{path}}
	if len(path) > maxSocketPath {
		short, err := os.MkdirTemp("", "tridentd-")
		if err != nil {
			return nil, socketError(err)
		}
		path = filepath.Join(short, SocketName)
		pointer := filepath.Join(dir, socketPathName)
		s.files = []string{pointer, path, short}
		if len(path) > maxSocketPath {
			os.Remove(short) //nolint:errcheck // an empty directory, and there is a failure to report already
			return nil, socketError(fmt.Errorf("both %s and the temporary directory %s have names too long for a socket", dir, short))
		}
		if err := os.WriteFile(pointer, []byte(path+"\n"), 0o600); err != nil {
			return nil, errors.Join(socketError(err), s.remove())
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, errors.Join(socketError(err), s.remove())
	}
	s.listener = l
	// Nothing is accepted yet: whoever came before the mode was set stands in the queue, and only the owner could.
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close() //nolint:errcheck // nothing has been served on it
		return nil, errors.Join(socketError(err), s.remove())
	}
	return s, nil
}

// remove deletes the files. The listener has been closed, which may have deleted its file already.
func (s *socket) remove() error {
	var errs []error
	for _, f := range s.files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeStale deletes what a process left that ended without Close.
func removeStale(dir, path string) error {
	s := &socket{files: []string{filepath.Join(dir, SocketName), filepath.Join(dir, socketPathName)}}
	if filepath.Dir(path) != filepath.Clean(dir) && filepath.Base(path) == SocketName {
		s.files = append(s.files, path, filepath.Dir(path))
	}
	return s.remove()
}

// socketPath tells where the socket of a data directory is; fs.ErrNotExist if there is none.
func socketPath(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, socketPathName))
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// One name for one place: a relative path could fit where the absolute one doesn't.
	path, err := filepath.Abs(filepath.Join(dir, SocketName))
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); err != nil {
		return "", err
	}
	return path, nil
}

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "unix", path)
}

// isGone tells whether a dial failed since nobody listens.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

func socketError(err error) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "open socket", err,
		"make sure that the data directory can be written, or give a shorter path with --data")
}
