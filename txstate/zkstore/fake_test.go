package zkstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
)

// fake is an ensemble in memory: a tree of nodes with versions, and requests that are all or nothing.
type fake struct {
	mu    sync.Mutex
	nodes map[string]*fakeNode
	zxid  int64
	multi int // requests that were carried out
	bytes int // the largest of them

	down     error // what every call fails with
	warnings []*batch.Error
	// before is called with each request ahead of it, after behind it: an error of after is that of a lost reply.
	before, after func(ops []any) error
}

type fakeNode struct {
	data    []byte
	version int32
	mzxid   int64
}

func newFake() *fake { return &fake{nodes: map[string]*fakeNode{"/": {}}} }

var errDown = batch.NewError(batch.Transient, batch.CodeZKRefused, "zookeeper", errors.New("connection refused"), "start it")

func (f *fake) setDown(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
}

func (f *fake) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

func (f *fake) Warnings() []*batch.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.warnings
}

func (f *fake) Get(_ context.Context, p string) ([]byte, *zk.Stat, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, nil, f.down
	}
	n := f.nodes[p]
	if n == nil {
		return nil, nil, named(zk.ErrNoNode, p)
	}
	return slices.Clone(n.data), &zk.Stat{Version: n.version, Mzxid: n.mzxid}, nil
}

func (f *fake) Children(_ context.Context, p string) ([]string, *zk.Stat, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, nil, f.down
	}
	if f.nodes[p] == nil {
		return nil, nil, named(zk.ErrNoNode, p)
	}
	var all []string
	for q := range f.nodes {
		if q != "/" && path.Dir(q) == p {
			all = append(all, path.Base(q))
		}
	}
	return all, &zk.Stat{}, nil
}

func (f *fake) MakePath(_ context.Context, p string, _ []zk.ACL) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return f.down
	}
	for ; p != "/"; p = path.Dir(p) {
		if f.nodes[p] == nil {
			f.nodes[p] = &fakeNode{}
		}
	}
	return nil
}

func (f *fake) Multi(_ context.Context, ops ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return f.down
	}
	if f.before != nil {
		if err := f.before(ops); err != nil {
			return err
		}
	}
	nodes := maps.Clone(f.nodes)
	f.zxid++
	size := 0
	for _, op := range ops {
		var at string
		var err error
		switch op := op.(type) {
		case *zk.CreateRequest:
			at, size = op.Path, size+len(op.Path)+len(op.Data)
			switch {
			case nodes[at] != nil:
				err = zk.ErrNodeExists
			case nodes[path.Dir(at)] == nil:
				err = zk.ErrNoNode
			default:
				nodes[at] = &fakeNode{data: op.Data, mzxid: f.zxid}
			}
		case *zk.SetDataRequest:
			at, size = op.Path, size+len(op.Path)+len(op.Data)
			n := nodes[at]
			switch {
			case n == nil:
				err = zk.ErrNoNode
			case op.Version >= 0 && n.version != op.Version:
				err = zk.ErrBadVersion
			default:
				nodes[at] = &fakeNode{data: op.Data, version: n.version + 1, mzxid: f.zxid}
			}
		case *zk.DeleteRequest:
			at = op.Path
			n := nodes[at]
			switch {
			case n == nil:
				err = zk.ErrNoNode
			case n.version != op.Version:
				err = zk.ErrBadVersion
			default:
				delete(nodes, at)
			}
		case *zk.CheckVersionRequest:
			at = op.Path
			n := nodes[at]
			switch {
			case n == nil:
				err = zk.ErrNoNode
			case n.version != op.Version:
				err = zk.ErrBadVersion
			}
		default:
			panic(fmt.Sprintf("fake: %T", op))
		}
		if err != nil {
			return named(err, at)
		}
	}
	if size > 1<<20 {
		return batch.NewError(batch.Permanent, batch.CodeZKTooLarge, "zookeeper", fmt.Errorf("%d bytes", size), "")
	}
	f.nodes, f.multi, f.bytes = nodes, f.multi+1, max(f.bytes, size)
	if f.after != nil {
		return f.after(ops)
	}
	return nil
}

func named(err error, p string) error {
	return batch.NewError(batch.Transient, batch.CodeUnavailable, "zookeeper", fmt.Errorf("%s: %w", p, err), "")
}

// put sets a node by hand, with whatever lies above it.
func (f *fake) put(p, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for q := path.Dir(p); f.nodes[q] == nil; q = path.Dir(q) {
		f.nodes[q] = &fakeNode{}
	}
	version := int32(0)
	if n := f.nodes[p]; n != nil {
		version = n.version + 1
	}
	f.zxid++
	f.nodes[p] = &fakeNode{data: []byte(data), version: version, mzxid: f.zxid}
}

// remove deletes a node by hand, with whatever lies below it.
func (f *fake) remove(p string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.nodes, func(q string, _ *fakeNode) bool { return q == p || strings.HasPrefix(q, p+"/") })
}

func (f *fake) get(p string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[p]; n != nil {
		return string(n.data)
	}
	return ""
}

// paths lists the nodes below the base, by path below it.
func (f *fake) paths(base string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for p := range f.nodes {
		if rest, ok := strings.CutPrefix(p, base+"/"); ok {
			all = append(all, rest)
		}
	}
	slices.Sort(all)
	return all
}
