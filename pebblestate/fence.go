package pebblestate

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errFenced is what a handle that was given up gets for every attempt to change its directory.
var errFenced = errors.New("the database handle has been given up")

// fence is the file system that Pebble works on. Once it is closed nothing can be changed through it any more: a
// handle whose outcome is unknown, and whose background work may not end, can't touch a directory in which a new
// handle already works. It notes the first write that found the device full, so that whatever error Pebble makes
// of it the cause is known.
//
// The directory's lock is held by the DB, longer than Pebble's handles live; Lock gives Pebble an empty one.
type fence struct {
	vfs.FS
	down   atomic.Bool
	full   atomic.Pointer[string] // the file whose write found no space
	onFull func()                 // called once, then; may be nil
}

type noLock struct{}

func (noLock) Close() error { return nil }

func (f *fence) close() { f.down.Store(true) }

func (f *fence) check() error {
	if f.down.Load() {
		return errFenced
	}
	return nil
}

// note passes err on.
func (f *fence) note(name string, err error) error {
	if err != nil && isFull(err) && f.full.CompareAndSwap(nil, &name) && f.onFull != nil {
		f.onFull()
	}
	return err
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func (f *fence) do(name string, op func() error) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.note(name, op())
}

func (f *fence) file(name string, op func() (vfs.File, error)) (vfs.File, error) {
	if err := f.check(); err != nil {
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

func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return f.FS.Create(name, c) })
}

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
	return f.do(name, func() error { return f.FS.Remove(name) })
}

func (f *fence) RemoveAll(name string) error {
	return f.do(name, func() error { return f.FS.RemoveAll(name) })
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

func (f *fencedFile) Sync() error { return f.fence.do(f.name, f.File.Sync) }

func (f *fencedFile) SyncData() error { return f.fence.do(f.name, f.File.SyncData) }

func (f *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = f.fence.do(f.name, func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}
