package zkconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
)

// checkPath tells whether p is a path of a node, "/" or "/a/b".
func checkPath(p string) error {
	switch {
	case p == "/":
		return nil
	case !strings.HasPrefix(p, "/"):
		return fmt.Errorf("%q doesn't begin with a slash", p)
	case strings.HasSuffix(p, "/"):
		return fmt.Errorf("%q ends with a slash", p)
	}
	for part := range strings.SplitSeq(p[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%q has a part %q", p, part)
		}
		for _, r := range part {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0xd800 && r < 0xf900 || r >= 0xfff0 {
				return fmt.Errorf("%q has a character that ZooKeeper doesn't allow", p)
			}
		}
	}
	return nil
}

func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

// node is a node's data or children, with what ZooKeeper keeps about it.
type node struct {
	data     []byte
	children []string
	acl      []zk.ACL
	there    bool
	stat     *zk.Stat
	events   <-chan zk.Event
}

// A node that isn't there is reported as zk.ErrNoNode; if the chroot isn't there either, with CodeZKNoChroot around it.

// Get returns a node's data.
func (c *Conn) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	n, err := c.read(ctx, "get", path, func(z *zk.Conn, full string) (n node, err error) {
		n.data, n.stat, err = z.Get(full)
		return n, err
	})
	return n.data, n.stat, err
}

// GetW is Get with a watch: an event comes when the node changes, when the session ends (zk.EventNotWatching), or when the Conn is
// closed; then the channel is closed. The event's path is the whole one.
func (c *Conn) GetW(ctx context.Context, path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	n, err := c.read(ctx, "get", path, func(z *zk.Conn, full string) (n node, err error) {
		n.data, n.stat, n.events, err = z.GetW(full)
		return n, err
	})
	return n.data, n.stat, n.events, err
}

// Exists tells whether a node is there.
func (c *Conn) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	n, err := c.read(ctx, "exists", path, func(z *zk.Conn, full string) (n node, err error) {
		n.there, n.stat, err = z.Exists(full)
		return n, err
	})
	return n.there, n.stat, err
}

// ExistsW is Exists with a watch, as GetW is Get with one.
func (c *Conn) ExistsW(ctx context.Context, path string) (bool, *zk.Stat, <-chan zk.Event, error) {
	n, err := c.read(ctx, "exists", path, func(z *zk.Conn, full string) (n node, err error) {
		n.there, n.stat, n.events, err = z.ExistsW(full)
		return n, err
	})
	return n.there, n.stat, n.events, err
}

// Children returns the names of a node's children, in no order.
func (c *Conn) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	n, err := c.read(ctx, "children", path, func(z *zk.Conn, full string) (n node, err error) {
		n.children, n.stat, err = z.Children(full)
		return n, err
	})
	return n.children, n.stat, err
}

// ACL returns a node's access list.
func (c *Conn) ACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	n, err := c.read(ctx, "acl", path, func(z *zk.Conn, full string) (n node, err error) {
		n.acl, n.stat, err = z.GetACL(full)
		return n, err
	})
	return n.acl, n.stat, err
}

func (c *Conn) read(ctx context.Context, name, path string, get func(z *zk.Conn, full string) (node, error)) (node, error) {
	full := c.full(path)
	op := call{name: name, path: full, right: "read on " + full, size: len(full)}
	n, err := do(ctx, c, op, func(z *zk.Conn) (node, error) { return get(z, full) })
	if err != nil {
		return node{}, c.chrootMissing(ctx, err)
	}
	return n, nil
}

// Create makes a node, below the chroot, which is made if it isn't there, and returns its path, which ZooKeeper completes
// for a sequential one.
func (c *Conn) Create(ctx context.Context, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	full := c.full(path)
	op := call{name: "create", path: full, right: "create on " + parent(full), write: true, size: requestSize(full, data, acl)}
	made, err := withChroot(ctx, c, acl, func() (string, error) {
		return do(ctx, c, op, func(z *zk.Conn) (string, error) { return z.Create(full, data, flags, acl) })
	})
	return strings.TrimPrefix(made, c.cfg.Chroot), err
}

// MakePath makes a node without data, and those above it, where they aren't there.
func (c *Conn) MakePath(ctx context.Context, path string, acl []zk.ACL) error {
	if err := c.ensureChroot(ctx, acl); err != nil {
		return err
	}
	return c.makePath(ctx, c.full(path), acl)
}

// makePath looks before it makes: to make a node that is there can be forbidden.
func (c *Conn) makePath(ctx context.Context, full string, acl []zk.ACL) error {
	var missing []string
	for p := full; p != "/"; p = parent(p) {
		there, err := do(ctx, c, call{name: "exists", path: p, right: "read on " + p}, func(z *zk.Conn) (bool, error) {
			there, _, err := z.Exists(p)
			return there, err
		})
		if err != nil {
			return err
		}
		if there {
			break
		}
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		op := call{name: "create", path: p, right: "create on " + parent(p), write: true, size: requestSize(p, nil, acl)}
		_, err := do(ctx, c, op, func(z *zk.Conn) (string, error) { return z.Create(p, nil, 0, acl) })
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// Set writes a node's data if it has this version; -1 for any.
func (c *Conn) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	full := c.full(path)
	op := call{name: "set", path: full, right: "write on " + full, write: true, size: requestSize(full, data, nil)}
	stat, err := do(ctx, c, op, func(z *zk.Conn) (*zk.Stat, error) { return z.Set(full, data, version) })
	if err != nil {
		return nil, c.chrootMissing(ctx, err)
	}
	return stat, nil
}

// Delete removes a node if it has this version; -1 for any.
func (c *Conn) Delete(ctx context.Context, path string, version int32) error {
	full := c.full(path)
	op := call{name: "delete", path: full, right: "delete on " + parent(full), write: true, size: requestSize(full, nil, nil)}
	_, err := do(ctx, c, op, func(z *zk.Conn) (struct{}, error) { return struct{}{}, z.Delete(full, version) })
	if err != nil {
		return c.chrootMissing(ctx, err)
	}
	return nil
}

// Multi does all of the operations (*zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest, *zk.CheckVersionRequest, which
// it doesn't change) or none. Its error is that of the first operation that can't be done, and names its node.
func (c *Conn) Multi(ctx context.Context, ops ...any) error {
	const head = 9 // of each operation
	acl := zk.WorldACL(zk.PermAll)
	whole := make([]any, len(ops))
	paths, rights := make([]string, len(ops)), make([]string, len(ops))
	op := call{name: "multi", write: true, size: head}
	for i, o := range ops {
		switch o := o.(type) {
		case *zk.CreateRequest:
			r := *o
			r.Path = c.full(o.Path)
			whole[i], paths[i], rights[i] = &r, r.Path, "create on "+parent(r.Path)
			op.size += head + requestSize(r.Path, r.Data, r.Acl)
			acl = r.Acl
		case *zk.SetDataRequest:
			r := *o
			r.Path = c.full(o.Path)
			whole[i], paths[i], rights[i] = &r, r.Path, "write on "+r.Path
			op.size += head + requestSize(r.Path, r.Data, nil)
		case *zk.DeleteRequest:
			r := *o
			r.Path = c.full(o.Path)
			whole[i], paths[i], rights[i] = &r, r.Path, "delete on "+parent(r.Path)
			op.size += head + requestSize(r.Path, nil, nil)
		case *zk.CheckVersionRequest:
			r := *o
			r.Path = c.full(o.Path)
			whole[i], paths[i], rights[i] = &r, r.Path, "read on "+r.Path
			op.size += head + requestSize(r.Path, nil, nil)
		default:
			panic(fmt.Sprintf("zkconn: %T in a Multi", o))
		}
	}
	if len(ops) == 0 {
		return nil
	}
	op.path, op.right = paths[0], rights[0]
	if len(ops) > 1 {
		op.right = "to do all of the operations"
	}
	_, err := withChroot(ctx, c, acl, func() (struct{}, error) {
		_, err := do(ctx, c, op, func(z *zk.Conn) (struct{}, error) {
			answers, err := z.Multi(whole...)
			// Of a Multi that failed, the operations before the culprit have no error, and those behind it one that says nothing.
			for i, a := range answers {
				if err != nil && a.Error != nil && i < len(ops) {
					return struct{}{}, &culprit{paths[i], rights[i], err}
				}
			}
			return struct{}{}, err
		})
		return struct{}{}, err
	})
	return err
}

// culprit is the operation that made a Multi fail.
type culprit struct {
	path, right string
	err         error
}

func (e *culprit) Error() string { return e.path + ": " + e.err.Error() }

func (e *culprit) Unwrap() error { return e.err }

// requestSize is about what a request takes on the wire, rather more than less.
func requestSize(path string, data []byte, acl []zk.ACL) int {
	const head = 32
	n := head + len(path) + len(data)
	for _, a := range acl {
		n += 12 + len(a.Scheme) + len(a.ID)
	}
	return n
}

// withChroot makes the chroot if it isn't there, before a request that needs it, and again if that finds it gone.
func withChroot[T any](ctx context.Context, c *Conn, acl []zk.ACL, request func() (T, error)) (T, error) {
	var none T
	if err := c.ensureChroot(ctx, acl); err != nil {
		return none, err
	}
	v, err := request()
	if c.cfg.Chroot == "" || !errors.Is(err, zk.ErrNoNode) {
		return v, err
	}
	missing := c.chrootMissing(ctx, err)
	if batch.CodeOf(missing) != batch.CodeZKNoChroot {
		return v, missing
	}
	if err := c.ensureChroot(ctx, acl); err != nil {
		return none, err
	}
	return request()
}

// ensureChroot makes the chroot if it isn't known to be there.
func (c *Conn) ensureChroot(ctx context.Context, acl []zk.ACL) error {
	if c.cfg.Chroot == "" {
		return nil
	}
	c.mu.Lock()
	made := c.rootMade
	c.mu.Unlock()
	if made {
		return nil
	}
	err := c.makePath(ctx, c.cfg.Chroot, acl)
	if batch.CodeOf(err) == batch.CodeZKNoRights {
		return newError(batch.Transient, batch.CodeZKNoChroot, fmt.Errorf("the chroot %s isn't there, and can't be made: %w", c.cfg.Chroot, cause(err)))
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.rootMade = true
	c.mu.Unlock()
	return nil
}

// chrootMissing says that the chroot is missing, where that is what a missing node comes from.
func (c *Conn) chrootMissing(ctx context.Context, err error) error {
	if c.cfg.Chroot == "" || !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	there, asked := do(ctx, c, call{name: "exists", path: c.cfg.Chroot}, func(z *zk.Conn) (bool, error) {
		there, _, err := z.Exists(c.cfg.Chroot)
		return there, err
	})
	if asked != nil || there {
		return err
	}
	c.mu.Lock()
	c.rootMade = false
	c.mu.Unlock()
	return newError(batch.Transient, batch.CodeZKNoChroot, fmt.Errorf("the chroot %s isn't there: %w", c.cfg.Chroot, err))
}

// cause is what an error says without its remedy.
func cause(err error) error {
	if e, ok := errors.AsType[*batch.Error](err); ok && e.Err != nil {
		return e.Err
	}
	return err
}
