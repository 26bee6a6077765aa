package savepoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/scratch"
)

// Bucket is a store of objects, flat but for what slashes in keys mean to people: S3 and its like. Package connect/blob has them.
//
// An error is a *batch.Error that says whether trying again can help, or one of io/fs's. Methods may be called at once.
type Bucket interface {
	// Objects lists the objects whose keys begin with prefix, in the order of keys.
	Objects(ctx context.Context, prefix string) ([]Object, error)
	// Folders lists what stands in keys between prefix and the next slash, in order.
	Folders(ctx context.Context, prefix string) ([]string, error)
	// Open reads an object; fs.ErrNotExist if there is none.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// Create writes an object, all of it or nothing; fs.ErrExist if there is one, where the bucket can tell.
	Create(ctx context.Context, key string, r io.Reader) error
	// Delete removes an object; none of that key is fine.
	Delete(ctx context.Context, key string) error
	// String names the bucket for people, as the URL up to its keys, without a slash in the end.
	String() string
	Close() error
}

// Object is one of a bucket's.
type Object struct {
	Key     string
	Size    int64
	Written time.Time
}

const (
	// atOnce is how many files go to or come from a place at the same time.
	atOnce = 4
	// tries bounds the attempts at one object, which take about half a minute in all; a driver tries again by itself, too.
	tries     = 7
	firstWait = 250 * time.Millisecond
	maxWait   = 15 * time.Second
)

// objects is a storage in a bucket: <prefix>/<pipeline>/<name>/savepoint.json, and the store's files below
// <prefix>/<pipeline>/<name>/store-<x>/, of which each making has one of its own.
type objects struct {
	bucket Bucket
	prefix string // with a slash in the end
	wait   time.Duration
}

func newObjects(b Bucket, prefix, pipeline string) *objects {
	return &objects{b, strings.TrimPrefix(path.Join(prefix, pipeline)+"/", "/"), firstWait}
}

func (o *objects) key(name, file string) string { return o.prefix + name + "/" + file }

func (o *objects) path(name, file string) string {
	return o.bucket.String() + "/" + strings.TrimSuffix(o.prefix+path.Join(name, file), "/")
}

func (o *objects) close() error      { return o.bucket.Close() }
func (o *objects) local(Info) string { return "" }

func (o *objects) scratch(string) (string, func() error, error) { return scratch.Make("", temporary) }

// again calls f until it succeeds or trying again can't help.
func again[T any](ctx context.Context, wait time.Duration, f func() (T, error)) (T, error) {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = wait, maxWait
	return backoff.Retry(ctx, func() (T, error) {
		v, err := f()
		// What no bucket has said (a full disk here) isn't mended by trying again.
		if e, ok := errors.AsType[*batch.Error](err); err != nil && (!ok || e.Kind != batch.Transient || ctx.Err() != nil) {
			err = backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithBackOff(b), backoff.WithMaxTries(tries), backoff.WithMaxElapsedTime(0))
}

func (o *objects) put(ctx context.Context, info Info, dir string) error {
	b := make([]byte, 4)
	if _, err := rand.Read(b); err != nil {
		return err
	}
	info.Store = storeName + "-" + hex.EncodeToString(b)
	meta, err := encode(info)
	if err != nil {
		return err
	}
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, f := range info.Files {
		g.Go(func() error {
			_, err := again(each, o.wait, func() (struct{}, error) {
				return struct{}{}, o.upload(each, o.key(info.Name, info.Store+"/"+f.Path), filepath.Join(dir, filepath.FromSlash(f.Path)))
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return errors.Join(err, o.discard(ctx, o.key(info.Name, info.Store+"/")))
	}
	_, err = again(ctx, o.wait, func() (struct{}, error) {
		return struct{}{}, o.bucket.Create(ctx, o.key(info.Name, infoName), bytes.NewReader(meta))
	})
	if errors.Is(err, fs.ErrExist) {
		// Somebody else's, or our own if the answer to an earlier attempt was lost: the store's name tells.
		found, lerr := o.load(ctx, info.Name)
		if bytes.Equal(found, meta) {
			return nil
		}
		return errors.Join(taken(info.Name), lerr, o.discard(ctx, o.key(info.Name, info.Store+"/")))
	}
	return err // what was written may be there or not, so it isn't deleted: sweep does it
}

func (o *objects) upload(ctx context.Context, key, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	// Nobody else writes below this key: an object that is there was written by an attempt whose answer was lost.
	if err := o.bucket.Create(ctx, key, f); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// discard deletes what can be deleted of a part, even if ctx has ended.
func (o *objects) discard(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
	defer cancel()
	return o.deleteAll(ctx, prefix)
}

func (o *objects) deleteAll(ctx context.Context, prefix string) error {
	all, err := again(ctx, o.wait, func() ([]Object, error) { return o.bucket.Objects(ctx, prefix) })
	if err != nil {
		return err
	}
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, b := range all {
		g.Go(func() error {
			_, err := again(each, o.wait, func() (struct{}, error) { return struct{}{}, o.bucket.Delete(each, b.Key) })
			return err
		})
	}
	return g.Wait()
}

// names takes one request per page of names, and one more for each that has no savepoint.json.
func (o *objects) names(ctx context.Context) ([]string, error) {
	all, err := o.folders(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		switch found, err := o.whole(ctx, name); {
		case err != nil:
			return nil, err
		case found:
			names = append(names, name)
		}
	}
	return names, nil
}

func (o *objects) folders(ctx context.Context) ([]string, error) {
	all, err := again(ctx, o.wait, func() ([]string, error) { return o.bucket.Folders(ctx, o.prefix) })
	return slices.DeleteFunc(all, func(name string) bool { return CheckName(name) != nil }), err
}

// whole tells whether a name has a savepoint.json.
func (o *objects) whole(ctx context.Context, name string) (bool, error) {
	key := o.key(name, infoName)
	found, err := again(ctx, o.wait, func() ([]Object, error) { return o.bucket.Objects(ctx, key) })
	return len(found) > 0 && found[0].Key == key, err
}

func (o *objects) load(ctx context.Context, name string) ([]byte, error) {
	key := o.key(name, infoName)
	b, err := again(ctx, o.wait, func() ([]byte, error) {
		r, err := o.bucket.Open(ctx, key)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(io.LimitReader(r, maxInfo+1))
		return b, errors.Join(err, r.Close())
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNone
	}
	return b, err
}

func (o *objects) files(ctx context.Context, info Info) ([]File, error) {
	prefix := o.key(info.Name, info.store()+"/")
	all, err := again(ctx, o.wait, func() ([]Object, error) { return o.bucket.Objects(ctx, prefix) })
	var files []File
	for _, b := range all {
		files = append(files, File{Path: strings.TrimPrefix(b.Key, prefix), Size: b.Size})
	}
	return files, err
}

func (o *objects) open(ctx context.Context, info Info, file string) (io.ReadCloser, error) {
	return o.bucket.Open(ctx, o.key(info.Name, info.store()+"/"+file))
}

func (o *objects) remove(ctx context.Context, name string) error {
	found, err := o.whole(ctx, name)
	switch {
	case err != nil:
		return err
	case !found:
		return errNone
	}
	key := o.key(name, infoName)
	if _, err := again(ctx, o.wait, func() (struct{}, error) { return struct{}{}, o.bucket.Delete(ctx, key) }); err != nil {
		return err
	}
	return o.deleteAll(ctx, o.key(name, ""))
}

// sweep looks below every name, as a savepoint may lie beside the part that another making of its name has left.
func (o *objects) sweep(ctx context.Context, since time.Time) error {
	names, err := o.folders(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := o.sweepName(ctx, name, since); err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) sweepName(ctx context.Context, name string, since time.Time) error {
	prefix := o.key(name, "")
	all, err := again(ctx, o.wait, func() ([]Object, error) { return o.bucket.Objects(ctx, prefix) })
	if err != nil {
		return err
	}
	parts := map[string]time.Time{} // when something was last written to each folder
	for _, b := range all {
		if part, _, ok := strings.Cut(strings.TrimPrefix(b.Key, prefix), "/"); ok {
			if b.Written.After(parts[part]) {
				parts[part] = b.Written
			}
		}
	}
	b, err := o.load(ctx, name)
	switch info, derr := decode(b); {
	case err == nil && derr != nil:
		return nil // a damaged savepoint is somebody's to look at
	case err == nil:
		delete(parts, info.store())
	case !errors.Is(err, errNone):
		return err
	}
	for part, last := range parts { // order: what is deleted is the same in any
		if last.Before(since) {
			if err := o.deleteAll(ctx, prefix+part+"/"); err != nil {
				return err
			}
		}
	}
	return nil
}

// temporary begins the names of directories for what doesn't stay on this machine.
const temporary = "tridentd-savepoint-"

func encode(info Info) ([]byte, error) {
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("describing savepoint %s: %w", info.Name, err)
	}
	return append(b, '\n'), nil
}
