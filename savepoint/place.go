package savepoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
)

// Place is where the savepoints of one pipeline lie: below a folder, or below a prefix of a bucket.
type Place struct {
	pipeline string
	storage  storage
}

// storage keeps the files of one pipeline's savepoints. A savepoint has a name once its savepoint.json is there, which comes last
// and goes first.
type storage interface {
	// scratch makes an empty directory for a store that put is to take over. remove gives it up.
	scratch(name string) (dir string, remove func() error, err error)
	// put takes over dir, a store that info describes. REQUIRES: info.Name was free. Of two that put one name at once, one fails.
	put(ctx context.Context, info Info, dir string) error
	// names are those of savepoints, in order.
	names(ctx context.Context) ([]string, error)
	// load reads savepoint.json; errNone if there is none.
	load(ctx context.Context, name string) ([]byte, error)
	// files lists what lies in a savepoint's store, by path, without checksums.
	files(ctx context.Context, info Info) ([]File, error)
	open(ctx context.Context, info Info, path string) (io.ReadCloser, error)
	remove(ctx context.Context, name string) error
	// sweep removes parts of savepoints that nobody has written to since a time.
	sweep(ctx context.Context, since time.Time) error
	// local is the directory that holds a savepoint's store as it was put; empty if it lies elsewhere.
	local(info Info) string
	// path names a file, or all of a savepoint, for people.
	path(name, file string) string
	close() error
}

// errNone is storage's answer for a savepoint that isn't there.
var errNone = errors.New("no such savepoint")

// At is the place of a pipeline's savepoints below a folder.
func At(root, pipeline string) Place { return Place{pipeline, folderOf(root, pipeline)} }

// In is the place of a pipeline's savepoints in a bucket, below prefix.
func In(b Bucket, prefix, pipeline string) Place {
	return Place{pipeline, newObjects(b, prefix, pipeline)}
}

// Open finds the place that a folder's path, or a bucket's URL such as s3://name/prefix?region=eu-west-1, names. What lies behind a
// bucket's name is its prefix. A bucket that isn't there, or refuses us, is an error.
func Open(ctx context.Context, where, pipeline string) (Place, error) {
	open, u, err := driverOf(where)
	switch {
	case err != nil:
		return Place{}, err
	case open == nil:
		return At(where, pipeline), outside(where)
	}
	b, prefix, err := open(ctx, u)
	if err != nil {
		return Place{}, err
	}
	return In(b, prefix, pipeline), nil
}

// outside refuses a folder in a store's directory: whatever happens to the store would happen to its savepoints.
func outside(folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	for dir := folder; ; dir = filepath.Dir(dir) {
		if pebblestate.Exists(dir) {
			return refuse("open", "name a folder that lies elsewhere", "%s lies in a pipeline's data directory, %s", folder, dir)
		}
		if filepath.Dir(dir) == dir {
			return nil
		}
	}
}

// CheckPlace tells whether where can name a place, without asking anybody.
func CheckPlace(where string) error {
	_, _, err := driverOf(where)
	return err
}

// driverOf finds the driver for a bucket's URL; none for the path of a folder.
func driverOf(where string) (Opener, *url.URL, error) {
	scheme, ok := Scheme(where)
	if !ok {
		return nil, nil, nil
	}
	drivers.Lock()
	open := drivers.open[scheme]
	known := sortedSchemes()
	drivers.Unlock()
	if open == nil {
		have := "none: a program that uses buckets imports github.com/tridentd/tridentd/connect/blob"
		if len(known) > 0 {
			have = strings.Join(known, ", ")
		}
		return nil, nil, refuse("open", "name a folder, or a bucket by a URL whose kind is known", "%s: buckets of kind %s:// aren't known (known: %s)", Redacted(where), scheme, have)
	}
	u, err := url.Parse(where)
	if err != nil {
		return nil, nil, refuse("open", "write it as "+scheme+"://bucket/prefix", "the URL of a bucket can't be read: %w", errors.Unwrap(err))
	}
	return open, u, nil
}

// Scheme is that of a bucket's URL; ok is false for the path of a folder.
func Scheme(where string) (scheme string, ok bool) {
	scheme, _, ok = strings.Cut(where, "://")
	if !ok || scheme == "" || strings.ContainsAny(scheme, `/\.`) {
		return "", false
	}
	return scheme, true
}

// Redacted is what names a place, without what might be secret in it.
func Redacted(where string) string {
	where, _, _ = strings.Cut(where, "?")
	if u, err := url.Parse(where); err == nil {
		return u.Redacted()
	}
	return where
}

// Opener opens the bucket that a URL names, and tells what part of the URL's path is a prefix of keys.
type Opener func(ctx context.Context, u *url.URL) (b Bucket, prefix string, err error)

var drivers struct {
	sync.Mutex
	open map[string]Opener
}

// Register has URLs of a scheme opened by open. A scheme has one driver: registering it again panics.
func Register(scheme string, open Opener) {
	drivers.Lock()
	defer drivers.Unlock()
	if drivers.open[scheme] != nil {
		panic("savepoint: two drivers for " + scheme + "://")
	}
	if drivers.open == nil {
		drivers.open = map[string]Opener{}
	}
	drivers.open[scheme] = open
}

// sortedSchemes lists the schemes that have a driver. REQUIRES: drivers is locked.
func sortedSchemes() []string {
	var all []string
	for s := range drivers.open { // order: sorted below
		all = append(all, s+"://")
	}
	slices.Sort(all)
	return all
}

// Close gives up the connection to a bucket.
func (p Place) Close() error { return p.storage.close() }

// String names the place for people.
func (p Place) String() string { return p.storage.path("", "") }

// free fails if there is a savepoint of that name.
func (p Place) free(ctx context.Context, name string) error {
	switch _, err := p.storage.load(ctx, name); {
	case err == nil:
		return taken(name)
	case !errors.Is(err, errNone):
		return err
	}
	return nil
}

func taken(name string) error {
	return refuse("write", "choose another name (--name), or remove it first", "savepoint %s exists", name)
}

// List describes the savepoints of the place, the oldest first. What can't be read is an error beside the others.
func (p Place) List(ctx context.Context) ([]Info, error) {
	names, err := p.storage.names(ctx)
	if err != nil {
		return nil, err
	}
	var all []Info
	for _, name := range names {
		info, lerr := p.load(ctx, name)
		switch {
		case errors.Is(lerr, errNone): // removed meanwhile
		case lerr != nil:
			err = errors.Join(err, lerr)
		default:
			all = append(all, info)
		}
	}
	slices.SortStableFunc(all, func(a, b Info) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return int(int64(a.Txid) - int64(b.Txid))
	})
	return all, err
}

// Load reads what a savepoint says of itself.
func (p Place) Load(ctx context.Context, name string) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	info, err := p.load(ctx, name)
	if errors.Is(err, errNone) {
		return info, p.missing(ctx, name)
	}
	return info, err
}

func (p Place) load(ctx context.Context, name string) (Info, error) {
	b, err := p.storage.load(ctx, name)
	if err != nil {
		return Info{}, err
	}
	path := p.storage.path(name, infoName)
	info, err := decode(b)
	switch {
	case err != nil:
		return Info{}, damagedFile(path, err)
	case info.Name != name:
		return Info{}, damagedFile(path, fmt.Errorf("it is that of savepoint %s", info.Name))
	}
	return info, p.ours(info, path)
}

func (p Place) missing(ctx context.Context, name string) error {
	what := "there is none"
	if have, err := p.storage.names(ctx); err == nil && len(have) > 0 {
		what = "there is " + strings.Join(have, ", ")
	}
	return refuse("load", "name one that is there", "no savepoint %s in %s; %s", name, p, what)
}

func (p Place) ours(info Info, path string) error {
	if info.Pipeline != p.pipeline {
		return batch.NewError(batch.Permanent, batch.CodeStoreForeign, "savepoint", fmt.Errorf("%s is of pipeline %s, not of %s", path, info.Pipeline, p.pipeline), "name the right pipeline")
	}
	return nil
}

// Remove deletes a savepoint. It stops being one before anything of it goes.
func (p Place) Remove(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := p.storage.remove(ctx, name)
	if errors.Is(err, errNone) {
		return p.missing(ctx, name)
	}
	return err
}

// LeftBehind is for how long nobody may have written to a part of a savepoint before it counts as left behind.
const LeftBehind = 24 * time.Hour

// Sweep removes what was left of savepoints whose making, or removal, was interrupted, if nobody has written to it since a time.
// That should lie further back than any savepoint takes to be made.
func (p Place) Sweep(ctx context.Context, since time.Time) error { return p.storage.sweep(ctx, since) }
