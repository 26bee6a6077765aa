package zkstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

const (
	lockDirName = "lock"
	epochName   = "epoch"

	// lockFormat is the version of what the nodes hold. Readers accept later ones, which only add fields.
	lockFormat = 1

	// sequenceDigits are what ZooKeeper appends to the name of a sequential node.
	sequenceDigits = 10
	// cleanupLimit bounds the removal of a node that nobody waits for.
	cleanupLimit = time.Second
	// claims is how often in a row a claim may find the epoch changed.
	claims = 3
)

// Session is the one that a connection has now. The zero value: none yet.
type Session struct {
	ID      int64         // as ZooKeeper gives it, never that of an earlier one; NoSession once it has expired
	Timeout time.Duration // as negotiated
	Up      bool          // there is a connection
}

// NoSession is the ID between the end of a session and the beginning of the next.
const NoSession int64 = -1

// LockConn is what a lock needs of a connection besides.
type LockConn interface {
	Conn
	Create(ctx context.Context, path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Delete(ctx context.Context, path string, version int32) error
	ExistsW(ctx context.Context, path string) (bool, *zk.Stat, <-chan zk.Event, error)
	// Session asks nobody.
	Session() Session
}

// Lock says, by ephemeral sequential nodes in <path>/<id>/lock, which process may run a pipeline: the one with the lowest
// number. Each of the others watches the one before it. The node <path>/<id>/epoch holds the highest epoch that was
// claimed; it is written on condition that the claimer's node still exists.
type Lock struct {
	cfg     Config
	conn    LockConn
	release func(ctx context.Context) error
	name    string
	dir     string // of the nodes, below the chroot
	epoch   string // the node
	log     hclog.Logger
	now     func() time.Duration // a clock as sinceBoot
	process string               // sets this lock's nodes apart from all others

	mu       sync.Mutex
	holder   string
	queued   *queued // the node that waits or holds; nil: none
	attempts int     // nodes that were made, or may have been
	lease    *Lease
	watched  watched // the node before ours
}

// queued is a node of ours.
type queued struct {
	name    string // below dir
	session int64  // that it ends with
}

// watched is a node whose removal we are told of. Clients keep each watch that was asked for until it fires, so that a node is
// watched once.
type watched struct {
	name    string // below dir
	session int64  // that the watch ends with
	gone    <-chan zk.Event
}

var _ txstate.Lock = (*Lock)(nil)

// NewLock returns a lock that is held through conn. It asks nobody before Acquire. free is called at the end, to give the
// connection up; it may be nil.
func NewLock(cfg Config, conn LockConn, free func(ctx context.Context) error) (*Lock, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return &Lock{
		cfg: cfg, conn: conn, release: free,
		name:    "zookeeper lock " + cfg.Chroot + cfg.Base() + "/" + lockDirName,
		dir:     cfg.Base() + "/" + lockDirName,
		epoch:   cfg.Base() + "/" + epochName,
		log:     cfg.Logger.With("lock", cfg.Chroot+cfg.Base()+"/"+lockDirName),
		now:     sinceBoot,
		process: hex.EncodeToString(id[:]),
	}, nil
}

// Name implements txstate.Lock.
func (l *Lock) Name() string { return l.name }

// Holder implements txstate.Lock.
func (l *Lock) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// holderNode is the content of a lock's node.
type holderNode struct {
	Version int       `json:"tridentd"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"` // when it took the lock, or, while it waits, when it asked for it
	Holds   bool      `json:"holds"`
}

func (h holderNode) String() string {
	what := "waits"
	if h.Holds {
		what = "holds it"
	}
	return fmt.Sprintf("process %d on %s, which %s since %s", h.PID, h.Host, what, h.Since.UTC().Format(time.RFC3339))
}

func self(now time.Time, holds bool) holderNode {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return holderNode{Version: lockFormat, Host: host, PID: os.Getpid(), Since: now.UTC().Truncate(time.Millisecond), Holds: holds}
}

func encodeNode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("zkstore: plain fields don't encode: " + err.Error())
	}
	return b
}

// Acquire implements txstate.Lock. Failures of the connection are returned; the place in the queue is kept for the next call,
// for as long as the session lasts.
func (l *Lock) Acquire(ctx context.Context, wait bool) (txstate.Lease, error) {
	l.mu.Lock()
	leased := l.lease != nil
	l.mu.Unlock()
	if leased {
		panic("zkstore: Acquire while the lock is held")
	}
	if err := l.conn.MakePath(ctx, l.dir, l.cfg.ACL); err != nil {
		return nil, err
	}
	for {
		q, err := l.queue(ctx)
		switch {
		case err != nil:
			return nil, err
		case q == nil:
			continue
		}
		sent := l.now()
		first, before, err := l.place(ctx, q)
		switch {
		case err != nil:
			return nil, err
		case first == "":
			l.forget() // the node is gone: another one
			continue
		case first == q.name:
			lease, err := l.take(ctx, q, sent)
			if lease == nil && err == nil {
				continue
			}
			return lease, err
		}
		holder, err := l.ask(ctx, first)
		switch {
		case err != nil:
			return nil, err
		case !wait:
			l.withdraw(ctx)
			return nil, l.held(holder)
		}
		if err := l.await(ctx, before); err != nil {
			if ctx.Err() != nil {
				l.withdraw(ctx)
			}
			return nil, err
		}
	}
}

func (l *Lock) held(holder string) error {
	e := batch.NewError(batch.Permanent, batch.CodeLockHeld, "lock", fmt.Errorf("%s is held by %s", l.name, holder),
		"stop that process first, or start this one with --standby: it takes over when the other ends")
	e.Pipeline = l.cfg.Pipeline
	return e
}

// queue returns the node that stands in the queue for us, made if there is none. Neither a node nor an error: it was gone at once.
func (l *Lock) queue(ctx context.Context) (*queued, error) {
	l.mu.Lock()
	q := l.queued
	l.mu.Unlock()
	if q != nil && q.session == l.conn.Session().ID {
		return q, nil
	}
	// What earlier attempts left would stand before us for as long as our own session lasts.
	mine, err := l.mine(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range mine {
		if err := l.conn.Delete(ctx, l.dir+"/"+name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
	}
	l.mu.Lock()
	l.queued = nil
	l.attempts++
	prefix := fmt.Sprintf("%s-%d-", l.process, l.attempts)
	l.mu.Unlock()
	path, err := l.conn.Create(ctx, l.dir+"/"+prefix, encodeNode(self(l.cfg.Now(), false)), zk.FlagEphemeral|zk.FlagSequence, l.cfg.ACL)
	name := path[strings.LastIndexByte(path, '/')+1:]
	if err != nil {
		// The reply may have been lost: our prefix tells our node.
		all, lerr := l.mine(ctx)
		if lerr != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(n string) bool { return strings.HasPrefix(n, prefix) })
		if i < 0 {
			return nil, err
		}
		name = all[i]
	}
	// Which session it hangs on is what the server says, not what we believe to have.
	_, stat, err := l.conn.Get(ctx, l.dir+"/"+name)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil //nolint:nilnil // gone already, by its session's end or by hand
	case err != nil:
		return nil, err
	}
	q = &queued{name: name, session: stat.EphemeralOwner}
	l.mu.Lock()
	l.queued = q
	l.mu.Unlock()
	return q, nil
}

// mine lists the nodes that this process has made.
func (l *Lock) mine(ctx context.Context) ([]string, error) {
	all, _, err := l.conn.Children(ctx, l.dir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, l.process+"-") }), nil
}

// place returns the first node of the queue and the one before ours; first is empty if ours is gone.
func (l *Lock) place(ctx context.Context, q *queued) (first, before string, err error) {
	all, _, err := l.conn.Children(ctx, l.dir)
	if err != nil {
		return "", "", err
	}
	all = slices.DeleteFunc(all, func(name string) bool { return sequence(name) < 0 })
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(sequence(a), sequence(b)), cmp.Compare(a, b)) })
	i := slices.Index(all, q.name)
	switch {
	case i < 0 || q.session != l.conn.Session().ID:
		return "", "", nil
	case i > 0:
		before = all[i-1]
	}
	return all[0], before, nil
}

// sequence is the number of a node in the queue; -1 if it can't be one.
func sequence(name string) int64 {
	if len(name) <= sequenceDigits {
		return -1
	}
	n, err := strconv.ParseUint(name[len(name)-sequenceDigits:], 10, 63)
	if err != nil {
		return -1
	}
	return int64(n)
}

// ask finds out who holds the lock.
func (l *Lock) ask(ctx context.Context, first string) (string, error) {
	data, _, err := l.conn.Get(ctx, l.dir+"/"+first)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", err
	}
	holder := "somebody (node " + first + ")"
	var h holderNode
	if err == nil && json.Unmarshal(data, &h) == nil && h.Version >= 1 {
		holder = h.String()
	}
	l.mu.Lock()
	changed := l.holder != holder
	l.holder = holder
	l.mu.Unlock()
	if changed {
		l.log.Info("another process has the lock", "holder", holder)
	}
	return holder, nil
}

// await returns when the node before ours has gone, or when it is time to look again.
func (l *Lock) await(ctx context.Context, before string) error {
	gone, err := l.watch(ctx, before)
	if err != nil || gone == nil {
		return err
	}
	// A watch may die with its session, and our own node may be removed by hand.
	t := time.NewTimer(max(l.conn.Session().Timeout, time.Second) / 2)
	defer t.Stop()
	select {
	case <-gone:
		l.unwatch()
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// watch returns a channel that something comes from when the node before ours is removed or changed, or when the session ends; nil if
// it is gone.
func (l *Lock) watch(ctx context.Context, before string) (<-chan zk.Event, error) {
	session := l.conn.Session().ID // before the request: at worst it is watched once more
	l.mu.Lock()
	w := l.watched
	l.mu.Unlock()
	if w.gone != nil && w.name == before && w.session == session {
		return w.gone, nil
	}
	ok, _, gone, err := l.conn.ExistsW(ctx, l.dir+"/"+before)
	if err != nil || !ok {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = watched{name: before, session: session, gone: gone}
	return gone, nil
}

func (l *Lock) unwatch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = watched{}
}

// take makes us the holder. The write goes through the leader, so that it succeeds only if the node, and with it the session,
// still is; sent is when the queue was asked for. Neither a lease nor an error: the place in the queue is lost.
func (l *Lock) take(ctx context.Context, q *queued, sent time.Duration) (txstate.Lease, error) {
	node := l.dir + "/" + q.name
	text := encodeNode(self(l.cfg.Now(), true))
	err := l.conn.Multi(ctx, &zk.SetDataRequest{Path: node, Data: text, Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		l.forget()
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	_, stat, err := l.conn.Get(ctx, node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		l.forget()
		return nil, nil //nolint:nilnil // see above
	case err != nil:
		return nil, err
	}
	epoch, _, err := l.readEpoch(ctx)
	if err != nil {
		return nil, err
	}
	s := l.conn.Session()
	if s.ID != q.session {
		l.forget()
		return nil, nil //nolint:nilnil // see above
	}
	lease := newLease(l, node, stat.Version, s, epoch, sent)
	l.mu.Lock()
	l.lease, l.holder = lease, ""
	l.mu.Unlock()
	l.log.Info("the lock is held", "node", q.name, "session_timeout", s.Timeout, "epoch", uint64(epoch))
	return lease, nil
}

func (l *Lock) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = nil
}

// withdraw gives the place in the queue up, as far as that can be done at once: otherwise the session's end does it, or the next
// Acquire.
func (l *Lock) withdraw(ctx context.Context) {
	l.mu.Lock()
	q := l.queued
	l.queued = nil
	l.mu.Unlock()
	if q == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	if err := l.conn.Delete(ctx, l.dir+"/"+q.name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		l.log.Debug("a place in the queue for the lock couldn't be given up; it ends with the session", "node", q.name, "error", err)
	}
}

// Close implements txstate.Lock.
func (l *Lock) Close(ctx context.Context) error {
	l.mu.Lock()
	lease := l.lease
	l.mu.Unlock()
	var err error
	if lease != nil {
		err = lease.Release(ctx)
	} else {
		l.withdraw(ctx)
	}
	if l.release != nil {
		err = errors.Join(err, l.release(ctx))
	}
	return err
}

// epochNode is the content of the node that holds the epoch.
type epochNode struct {
	Version  int         `json:"tridentd"`
	Pipeline string      `json:"pipeline"`
	Epoch    batch.Epoch `json:"epoch"`
	Host     string      `json:"host"`
	PID      int         `json:"pid"`
	Claimed  time.Time   `json:"claimed"`
}

// readEpoch returns the highest epoch that was claimed, and the node's version, -1 if there is none.
func (l *Lock) readEpoch(ctx context.Context) (batch.Epoch, int32, error) {
	data, stat, err := l.conn.Get(ctx, l.epoch)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return 0, -1, nil
	case err != nil:
		return 0, 0, err
	}
	var n epochNode
	if err := json.Unmarshal(data, &n); err != nil || n.Version < 1 || n.Epoch < 1 {
		e := batch.NewError(batch.Permanent, batch.CodeRecordGarbled, "lock", fmt.Errorf("the node %s can't be read: %w", l.cfg.Chroot+l.epoch, readable(data, cmp.Or(err, errNoEpoch))),
			"remove the node once no process of this pipeline runs: the epoch then goes on from the store's")
		e.Pipeline = l.cfg.Pipeline
		return 0, 0, e
	}
	if n.Pipeline != l.cfg.Pipeline {
		return 0, 0, foreign(l.cfg.Chroot+l.epoch, l.cfg.Pipeline, "it holds the epoch of pipeline "+n.Pipeline,
			"give each pipeline a node of its own (zookeeper.id, zookeeper.path); if the other is gone, remove the node")
	}
	return n.Epoch, stat.Version, nil
}

var errNoEpoch = errors.New("it holds no epoch")
