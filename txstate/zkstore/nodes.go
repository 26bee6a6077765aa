package zkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// Conn is a session with an ensemble; *zkconn.Conn is one. Its calls end in time, its errors are *batch.Error around
// those of package zk. Paths are below the chroot.
type Conn interface {
	Get(ctx context.Context, path string) ([]byte, *zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, *zk.Stat, error)
	MakePath(ctx context.Context, path string, acl []zk.ACL) error
	Multi(ctx context.Context, ops ...any) error
	// Err is what is wrong right now, nil if calls may succeed. It asks nobody.
	Err() error
	// Warnings tell what doesn't keep calls from succeeding, and may one day.
	Warnings() []*batch.Error
}

// held is a node as it is in ZooKeeper, as far as known. The data of a node that only has children are nil.
type held struct {
	data    []byte
	version int32
	mzxid   int64
}

// mark is what this run knows of a node that it writes: what the node held when it was last written, judged by then, and
// what was to be written over it, which may have happened or not.
type mark struct{ last, tried []byte }

func (m mark) is(data []byte) bool {
	return m.last != nil && bytes.Equal(m.last, data) || m.tried != nil && bytes.Equal(m.tried, data)
}

// errChanged says that a node wasn't as it was when it was last read.
var errChanged = errors.New("a node has been changed by somebody else")

func isConflict(err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNotEmpty)
}

func names[V any](nodes map[string]V) []string { return slices.Sorted(maps.Keys(nodes)) }

var pagePattern = regexp.MustCompile(`^sources/([^/]+)/[0-9]{4,}$`)

func isPage(name string) bool { return pagePattern.MatchString(name) }

func isDir(name string) bool { return name != recordName && !isPage(name) }

func sourceDir(source string) string { return sourcesName + "/" + source }

func pagePath(source string, page int) string { return sourceDir(source) + "/" + pageName(page) }

// full is a node's path from the root, for messages.
func (r *Record) full(name string) string { return r.cfg.Chroot + r.base + "/" + name }

// read fetches everything below the base, by path below it. What can't be one of the record's nodes is left out.
func (r *Record) read(ctx context.Context) (map[string]held, error) {
	there := map[string]held{}
	get := func(name string) error {
		data, stat, err := r.conn.Get(ctx, r.base+"/"+name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err != nil:
			return err
		}
		if data == nil {
			data = []byte{}
		}
		there[name] = held{data: data, version: stat.Version, mzxid: stat.Mzxid}
		return nil
	}
	// The record first: what is written meanwhile shows as positions ahead of it, never behind.
	if err := get(recordName); err != nil {
		return nil, err
	}
	children := func(name string) ([]string, error) {
		all, _, err := r.conn.Children(ctx, r.base+"/"+name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil, nil
		case err != nil:
			return nil, err
		}
		there[name] = held{}
		slices.Sort(all)
		return all, nil
	}
	sources, err := children(sourcesName)
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		pages, err := children(sourceDir(source))
		if err != nil {
			return nil, err
		}
		for _, page := range pages {
			if name := sourceDir(source) + "/" + page; isPage(name) {
				if err := get(name); err != nil {
					return nil, err
				}
			}
		}
	}
	return there, nil
}

// position is what a page holds of a partition, and who wrote it.
type position struct {
	txstate.Carried
	pipeline string
}

// positions lists what the pages hold that can be read, in batch.Partition order. A partition that is on two pages, as it has
// just moved from one to the other, counts with its later txid.
func positions(there map[string]held) []position {
	var epoch batch.Epoch
	if rec, err := parseRecord(there[recordName].data); err == nil {
		epoch = rec.Epoch
	}
	at := map[batch.Partition]position{}
	for name, node := range there { // order: the later txid wins, and what is left is sorted
		if !isPage(name) {
			continue
		}
		page, err := parsePage(node.data)
		if err != nil {
			continue
		}
		for _, p := range page.Positions {
			part := batch.Partition{Source: page.Source, Topic: p.Topic, Number: p.Partition}
			if was, ok := at[part]; ok && (was.Txid > p.Txid || was.Txid == p.Txid && was.Next > p.Next) {
				continue
			}
			at[part] = position{txstate.Carried{Partition: part, Next: p.Next, Txid: p.Txid, Epoch: epoch}, page.Pipeline}
		}
	}
	return slices.SortedFunc(maps.Values(at), func(a, b position) int { return a.Compare(b.Partition) })
}

// carried lists the pipeline's own positions.
func (r *Record) carried(there map[string]held) []txstate.Carried {
	var all []txstate.Carried
	for _, p := range positions(there) {
		if p.pipeline == r.cfg.Pipeline {
			all = append(all, p.Carried)
		}
	}
	return all
}

// change is one operation of a write, with what it leaves.
type change struct {
	op   any
	name string
	data []byte // what the node holds afterwards; nil if it is removed or only has children
	gone bool
	next int32 // the version afterwards
}

func (c *change) size() int { return len(c.data) + len(c.name) + opSize }

// opSize is what an operation takes besides its path and data, with its ACL.
const opSize = 512

// changes says what turns what is there into what is wanted. Pages come from the last to the first: when partitions move to
// later pages, each is on some page at any time. The record, and what is removed, come last.
func (r *Record) changes(there map[string]held, want *content, over bool) []change {
	var all []change
	create := func(name string, data []byte) {
		all = append(all, change{op: &zk.CreateRequest{Path: r.base + "/" + name, Data: data, Acl: r.cfg.ACL}, name: name, data: data})
	}
	set := func(name string, data []byte) {
		was, ok := there[name]
		switch {
		case !ok:
			create(name, data)
		case string(was.data) != string(data):
			all = append(all, change{
				op:   &zk.SetDataRequest{Path: r.base + "/" + name, Data: data, Version: was.version},
				name: name, data: data, next: was.version + 1,
			})
		}
	}
	made := map[string]bool{}
	dir := func(name string) {
		if _, ok := there[name]; !ok && !made[name] {
			made[name] = true
			create(name, nil)
		}
	}
	wanted := map[string]bool{}
	for _, p := range slices.Backward(want.pages) {
		dir(sourcesName)
		dir(sourceDir(p.source))
		name := pagePath(p.source, p.page)
		wanted[name] = true
		set(name, p.data)
	}
	text := want.record.encode()
	if was, ok := there[recordName]; !ok || !sameButWritten(was.data, text) {
		set(recordName, text)
	}
	for _, name := range names(there) {
		if !isPage(name) || wanted[name] {
			continue
		}
		page, err := parsePage(there[name].data)
		// What can't be read has been kept beside it.
		if over || err != nil || page.Pipeline == r.cfg.Pipeline {
			all = append(all, change{op: &zk.DeleteRequest{Path: r.base + "/" + name, Version: there[name].version}, name: name, gone: true})
		}
	}
	return all
}

// apply writes changes, in as few requests as their size allows, and keeps there and mine up to date.
func (r *Record) apply(ctx context.Context, there map[string]held, mine map[string]mark, all []change) error {
	if len(all) == 0 {
		return nil
	}
	if _, ok := there[recordName]; !ok {
		if err := r.conn.MakePath(ctx, r.base, r.cfg.ACL); err != nil {
			return err
		}
	}
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && (n == 0 || size+all[n].size() <= maxRequest) {
			size += all[n].size()
			n++
		}
		ops := r.guard()
		for _, c := range all[:n] {
			ops = append(ops, c.op)
			// Whatever becomes of the request: what it would leave is ours.
			switch {
			case c.gone:
				delete(mine, c.name)
			case c.data != nil:
				mine[c.name] = mark{last: there[c.name].data, tried: c.data}
			}
		}
		if err := r.conn.Multi(ctx, ops...); err != nil {
			return changedOr(err)
		}
		for _, c := range all[:n] {
			if c.gone {
				delete(there, c.name)
				continue
			}
			there[c.name] = held{data: c.data, version: c.next}
			if c.data != nil {
				mine[c.name] = mark{last: c.data}
			}
		}
		all = all[n:]
	}
	return nil
}

// guard is what each request begins with that writes.
func (r *Record) guard() []any {
	if r.cfg.Guard == nil {
		return nil
	}
	return r.cfg.Guard()
}

// changedOr tells a request that found something else than was read from one that failed.
func changedOr(err error) error {
	if isConflict(err) {
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}

// keepGarbled keeps beside each node that is about to be written over what couldn't be read of it. REQUIRES: r.work is held.
func (r *Record) keepGarbled(ctx context.Context) error {
	if len(r.garbled) == 0 {
		return nil
	}
	for _, name := range names(r.garbled) {
		node := r.garbled[name]
		if len(node.data) == 0 {
			continue
		}
		beside := garbledName(name, node.mzxid)
		err := r.conn.Multi(ctx, append(r.guard(), &zk.CreateRequest{Path: r.base + "/" + beside, Data: node.data, Acl: r.cfg.ACL})...)
		if err != nil && !errors.Is(err, zk.ErrNodeExists) { // kept before
			return changedOr(err)
		}
		r.log.Warn("what a node in ZooKeeper holds can't be read; it is kept beside it, and the node is written anew",
			"node", r.full(name), "kept", r.full(beside), "code", string(batch.CodeRecordGarbled))
	}
	r.garbled = nil
	r.count(batch.CodeRecordGarbled)
	return nil
}

// trimmed joins a few names for a message.
func trimmed(all []string) string {
	const shown = 3
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}
