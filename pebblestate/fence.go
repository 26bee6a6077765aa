package pebblestate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errFenced is what a handle that was given up gets for every attempt to change its directory.
var errFenced = errors.New("the database handle has been given up")

// fence is the file system that Pebble works on.
//
// Once it is closed nothing can be changed through it any more: a handle whose outcome is unknown, and whose
// background work may not end, can't touch a directory in which a new handle already works.
//
// Pebble can't bear a failed write of its log or its MANIFEST: it panics with its mutexes in disorder, which ends
// the process on the spot, or calls Fatalf. Once the fence is armed it keeps such failures from Pebble: it reports
// them and parks the goroutine for good. The handle is done for, but the pipeline stops in order.
//
// The directory's lock is held by the DB, longer than Pebble's handles live; Lock gives Pebble an empty one.
type fence struct {
	vfs.FS
	dir    string      // Pebble's own; what is copied elsewhere isn't vital
	fail   func(error) // told of failures
	armed  atomic.Bool // Pebble has been opened
	down   atomic.Bool
	full   atomic.Pointer[string] // the first file whose write found no space
	once   sync.Once
	parked chan struct{} // closed when a goroutine is parked
	// copying is the directory that a checkpoint is being made in, which syncs it in the end rather than file by file.
	copying atomic.Pointer[string]
}

func newFence(fsys vfs.FS, dir string, fail func(error)) *fence {
	return &fence{FS: fsys, dir: dir, fail: fail, parked: make(chan struct{})}
}

type noLock struct{}

func (noLock) Close() error { return nil }

func (f *fence) close() { f.down.Store(true) }

func (f *fence) check(name string) error {
	if !f.down.Load() {
		return nil
	}
	if f.armed.Load() && f.vital(name) {
		select {} // as park, though nobody wants to know any more
	}
	return errFenced
}

// park reports err and doesn't return.
func (f *fence) park(err error) {
	f.fail(err)
	f.once.Do(func() { close(f.parked) })
	select {}
}

// note passes err on, if Pebble can bear it.
func (f *fence) note(name string, err error) error {
	if err == nil {
		return nil
	}
	if f.PathDir(name) != f.dir {
		return err
	}
	if isFull(err) {
		f.full.CompareAndSwap(nil, &name)
	}
	if f.armed.Load() && f.vital(name) {
		f.park(fmt.Errorf("%s: %w", name, err))
	}
	if isFull(err) {
		f.fail(err)
	}
	return err
}

// vital tells whether Pebble can't go on without a file.
func (f *fence) vital(path string) bool {
	if f.PathDir(path) != f.dir {
		return false
	}
	name := f.PathBase(path)
	return strings.HasSuffix(name, ".log") || strings.HasPrefix(name, "MANIFEST-") || isMarker(name)
}

// copied tells whether a file lies in what is being copied.
func (f *fence) copied(path string) bool {
	dir := f.copying.Load()
	return dir != nil && f.PathDir(path) == *dir
}

func isMarker(name string) bool { return strings.HasPrefix(name, "marker.") }

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func (f *fence) do(name string, op func() error) error {
	if err := f.check(name); err != nil {
		return err
	}
	return f.note(name, op())
}

func (f *fence) file(name string, op func() (vfs.File, error)) (vfs.File, error) {
	if err := f.check(name); err != nil {
		return nil, err
	}
	inner, err := op()
	if err != nil {
		return nil, f.note(name, err)
	}
	return &fencedFile{File: inner, fence: f, name: name}, nil
}

func (f *fence) Unwrap() vfs.FS { return f.FS }

func (f *fence) Lock(string) (io.Closer, error) { return noLock{}, nil }

// Create and Remove sync the directory before a marker changes. Pebble points a marker at a new MANIFEST, and
// removes the marker that it replaces, before the directory has been synced: a file system that doesn't keep the
// order of changes in a directory could lose the one and keep the other.
func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) {
		if isMarker(f.PathBase(name)) && !f.copied(name) {
			if err := syncDir(f.FS, f.PathDir(name)); err != nil {
				return nil, err
			}
		}
		return f.FS.Create(name, c)
	})
}

// OpenDir opens a directory, which is opened to be synced.
func (f *fence) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if dir := f.copying.Load(); err == nil && dir != nil && (name == *dir || name == f.PathDir(*dir)) {
		return unsynced{d}, nil
	}
	return d, err
}

// unsynced is a directory that is synced later.
type unsynced struct{ vfs.File }

func (unsynced) Sync() error { return nil }

func (f *fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

func (f *fence) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(newname, func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, c) })
}

func (f *fence) Link(oldname, newname string) error {
	return f.do(newname, func() error { return f.FS.Link(oldname, newname) })
}

func (f *fence) Remove(name string) error {
	if f.down.Load() {
		return errFenced
	}
	if isMarker(f.PathBase(name)) && !f.copied(name) {
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return err
		}
	}
	return f.FS.Remove(name)
}

func (f *fence) RemoveAll(name string) error {
	if f.down.Load() {
		return errFenced
	}
	return f.FS.RemoveAll(name)
}

func (f *fence) Rename(oldname, newname string) error {
	return f.do(newname, func() error { return f.FS.Rename(oldname, newname) })
}

func (f *fence) MkdirAll(dir string, perm os.FileMode) error {
	return f.do(dir, func() error { return f.FS.MkdirAll(dir, perm) })
}

// fencedFile is a file open for writing.
type fencedFile struct {
	vfs.File
	fence *fence
	name  string
}

func (f *fencedFile) Write(p []byte) (n int, err error) {
	err = f.fence.do(f.name, func() (err error) { n, err = f.File.Write(p); return err })
	return n, err
}

func (f *fencedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fence.do(f.name, func() (err error) { n, err = f.File.WriteAt(p, off); return err })
	return n, err
}

func (f *fencedFile) Sync() error {
	if f.fence.copied(f.name) {
		return nil
	}
	return f.fence.do(f.name, f.File.Sync)
}

func (f *fencedFile) SyncData() error {
	if f.fence.copied(f.name) {
		return nil
	}
	return f.fence.do(f.name, f.File.SyncData)
}

func (f *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = f.fence.do(f.name, func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}
