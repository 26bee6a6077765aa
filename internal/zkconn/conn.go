package zkconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
)

// maxCalls bounds the calls under way. It is below what the client library queues, so that a call never waits in the
// library for room.
const maxCalls = 12

// maxAnswer bounds an answer: a list of children can exceed what a request may have.
const maxAnswer = 64 << 20

// State is what a session is in.
type State uint8

const (
	// Connecting: there is no connection. The session may live on at the servers.
	Connecting State = iota
	Connected
	// Expired: a server has said that the session has ended. What hung on it is gone. A new one follows.
	Expired
	Closed
)

func (s State) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Connected:
		return "connected"
	case Expired:
		return "expired"
	case Closed:
	}
	return "closed"
}

// Session is what is known of the session at a moment.
type Session struct {
	// Number counts the sessions of a Conn: 0 before the first, then rising by one with each.
	Number  uint64
	ID      int64
	State   State
	Since   time.Time // of State
	Server  string    // the one that it is connected with, or was last
	Timeout time.Duration
	// LastHeard is when anything last came from a server.
	LastHeard time.Time
	// Confirmed is when the youngest request that has been answered was sent. The servers have counted the session's time-out
	// from no earlier moment.
	Confirmed time.Time
	// Lines counts the connections that the Conn has had.
	Lines uint64
}

// Deadline is the moment up to which the servers certainly keep the session, if they count time as we do. Zero before the
// first session.
func (s Session) Deadline() time.Time {
	if s.Number == 0 {
		return time.Time{}
	}
	return s.Confirmed.Add(s.Timeout)
}

// Conn is a session with an ensemble, and a new one after each that has expired. It is safe for use by several goroutines.
//
// One client of the library is one session: the library alone would go on with another session after an expiry, and send
// in it what was meant for the old one. Here it is closed instead, and another is opened.
type Conn struct {
	cfg    Config
	log    hclog.Logger
	now    func() time.Time
	ctx    context.Context //nolint:containedctx // the Conn's own life
	cancel context.CancelFunc
	places chan struct{} // one for each call under way
	wg     sync.WaitGroup

	mu       sync.Mutex
	gen      *generation
	line     *line // nil while not connected
	session  Session
	changed  chan struct{} // closed at each change of State or session
	watchers map[chan Session]struct{}
	failures map[string]*failure // of each server since the last connection
	aside    map[string]*failure // of servers that couldn't be used when the last connection was made, or whose name isn't known
	loss     *failure            // why the last line ended
	down     time.Time           // since when there has been no connection
	rootMade bool                // the chroot is there
	cuts     int                 // of lines in a row under a large request
	first    int                 // the server to begin with
	known    map[string]bool     // servers that have given us a session
}

// generation is one client of the library: one session.
type generation struct {
	zk     *zk.Conn
	ctx    context.Context //nolint:containedctx // the client's own life
	cancel context.CancelFunc
	hosts  *hosts
	number uint64        // of its session, 0 before it has one; under Conn.mu
	done   chan struct{} // closed when the library's goroutines have ended
}

// New checks the settings and begins to connect. It waits for nobody.
func New(cfg Config) (*Conn, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Conn{
		cfg:      cfg,
		log:      cfg.Logger,
		now:      time.Now,
		places:   make(chan struct{}, maxCalls),
		changed:  make(chan struct{}),
		watchers: make(map[chan Session]struct{}),
		failures: make(map[string]*failure),
		aside:    make(map[string]*failure),
		known:    make(map[string]bool),
		// Not all processes of a fleet begin with the same server.
		first: os.Getpid() % len(cfg.Servers),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.Since = c.now()
	c.down = c.session.Since
	c.open()
	c.wg.Go(c.resolve)
	return c, nil
}

// resolve looks all names up once, so that one that isn't known is noticed even if another server takes us.
func (c *Conn) resolve() {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ConnectTimeout)
	defer cancel()
	for _, server := range c.cfg.Servers {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			panic("zkconn: a server that was checked is not host:port: " + err.Error())
		}
		if net.ParseIP(host) != nil {
			continue
		}
		_, err = net.DefaultResolver.LookupHost(ctx, host)
		if err == nil || c.ctx.Err() != nil {
			continue
		}
		f := explainDial(err, c.cfg.ConnectTimeout)
		if f.code != batch.CodeZKUnresolved {
			continue
		}
		f.at = c.now()
		c.log.Warn("a ZooKeeper server's name can't be resolved; the others are used", "server", server, "code", string(f.code), "error", plain(err))
		c.mu.Lock()
		c.aside[server] = f
		c.mu.Unlock()
	}
}

// complete checks the settings and fills in the defaults.
func (cfg *Config) complete() error {
	bad := func(format string, args ...any) error {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "zookeeper", fmt.Errorf(format, args...), "correct the setting")
	}
	if len(cfg.Servers) == 0 {
		return bad("no servers are given")
	}
	for _, s := range cfg.Servers {
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" || port == "" {
			return bad("server %q is not host:port", s)
		}
	}
	if cfg.Chroot == "/" {
		cfg.Chroot = ""
	}
	if err := checkPath(cfg.Chroot); cfg.Chroot != "" && err != nil {
		return bad("chroot: %w", err)
	}
	if cfg.User == "" && cfg.Password != "" {
		return bad("a password is given, and no user")
	}
	if strings.Contains(cfg.User, ":") {
		return bad("user %q has a colon", cfg.User)
	}
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, DefaultSessionTimeout)
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, DefaultConnectTimeout)
	cfg.CallTimeout = cmp.Or(cfg.CallTimeout, DefaultCallTimeout)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.quick = cmp.Or(cfg.quick, quickLine)
	for _, d := range []time.Duration{cfg.SessionTimeout, cfg.ConnectTimeout, cfg.CallTimeout} {
		if d < time.Millisecond {
			return bad("a time-out of %v is too short", d)
		}
	}
	if cfg.MaxBytes < 0 {
		return bad("%d bytes are not a limit", cfg.MaxBytes)
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Servers = slices.Clone(cfg.Servers)
	return nil
}

// open starts a client of the library. Conn.mu is held.
func (c *Conn) open() {
	g := &generation{hosts: &hosts{servers: c.cfg.Servers, now: c.now, soon: c.cfg.quick, next: c.first}, done: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(c.ctx)
	c.gen = g
	const bufferRoom = 64 << 10 // around a request of MaxBytes
	client, events, err := zk.Connect(c.cfg.Servers, c.cfg.SessionTimeout,
		zk.WithHostProvider(g.hosts),
		zk.WithDialer(func(_, server string, _ time.Duration) (net.Conn, error) { return c.dial(g, server) }),
		zk.WithLogger(libraryLog{c.log}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxAnswer),
		zk.WithMaxConnBufferSize(c.cfg.MaxBytes+bufferRoom),
	)
	if err != nil {
		panic(fmt.Sprintf("zkconn: settings that were checked are refused: %v", err))
	}
	g.zk = client
	c.wg.Go(func() {
		defer close(g.done)
		for range events { // it ends when the library's goroutines have
		}
	})
}

// dial makes a line for the client of a session.
func (c *Conn) dial(g *generation, server string) (net.Conn, error) {
	deadline := time.Now().Add(c.cfg.ConnectTimeout)
	ctx, cancel := context.WithDeadline(g.ctx, deadline)
	defer cancel()
	conn, f := connect(ctx, &c.cfg, server)
	if f != nil {
		c.failed(g, server, f)
		return nil, errors.New(f.text)
	}
	l := &line{Conn: conn, owner: c, gen: g, server: server, deadline: deadline}
	// A close of the Conn ends a handshake; the line that stands is ended by Close itself, behind the session.
	l.forget = context.AfterFunc(g.ctx, func() { l.end(&failure{code: batch.CodeZKCut, text: "the connection has been closed"}) })
	return l, nil
}

// failed notes why a server can't be reached.
func (c *Conn) failed(g *generation, server string, f *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g != c.gen || g.ctx.Err() != nil {
		return
	}
	f.at = c.now()
	if before := c.failures[server]; before == nil || before.code != f.code || before.text != f.text {
		c.log.Debug("a ZooKeeper server can't be used", "server", server, "code", string(f.code), "error", f.text)
	}
	c.failures[server] = f
}

// connected notes that a line has a session.
func (c *Conn) connected(l *line, id int64, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.gen != c.gen || c.session.State == Closed {
		return
	}
	now := c.now()
	if l.gen.number == 0 {
		c.session.Number++
		l.gen.number = c.session.Number
		c.session.Confirmed = time.Time{}
	}
	c.session.ID, c.session.Timeout, c.session.Server = id, timeout, l.server
	c.session.Lines++
	c.session.LastHeard = now
	c.confirm(l.handing)
	c.line = l
	maps.Copy(c.aside, c.failures)
	delete(c.aside, l.server)
	c.known[l.server] = true
	clear(c.failures)
	c.loss, c.down = nil, time.Time{}
	c.become(Connected)
	c.log.Debug("connected with ZooKeeper", "server", l.server, "session", fmt.Sprintf("%#x", id), "number", l.gen.number, "timeout", timeout)
}

// knows tells whether a server has ever given us a session.
func (c *Conn) knows(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[server]
}

func (c *Conn) confirm(t time.Time) {
	if t.After(c.session.Confirmed) {
		c.session.Confirmed = t
	}
}

// heard notes that a server has sent something, and when the youngest request that it answered was sent.
func (c *Conn) heard(l *line, now, confirmed time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l != c.line {
		return
	}
	c.session.LastHeard = now
	c.confirm(confirmed)
}

// lost notes that a line has ended.
func (c *Conn) lost(l *line, f *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.gen != c.gen || c.session.State == Closed || l.gen.ctx.Err() != nil {
		return
	}
	if l != c.line { // it never stood
		c.failures[l.server] = f
		return
	}
	c.line = nil
	c.loss, c.down = f, c.now()
	c.log.Debug("the connection with ZooKeeper was lost", "server", l.server, "code", string(f.code), "error", f.text)
	c.become(Connecting)
}

// expired replaces the client of a session that a server says has ended.
func (c *Conn) expired(g *generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g != c.gen || c.session.State == Closed {
		return
	}
	c.log.Debug("the ZooKeeper session has expired", "session", fmt.Sprintf("%#x", c.session.ID), "number", g.number)
	c.line = nil
	clear(c.failures) // of before a server could tell
	c.become(Expired)
	c.first = g.hosts.position()
	c.open()
	c.wg.Go(g.shut)
}

// shut ends a client and waits for its goroutines.
func (g *generation) shut() {
	g.hosts.close()
	g.cancel()
	g.zk.Close()
	<-g.done
}

// become changes the state and tells everybody. Conn.mu is held.
func (c *Conn) become(s State) {
	c.session.State, c.session.Since = s, c.now()
	close(c.changed)
	c.changed = make(chan struct{})
	for w := range c.watchers {
		select {
		case <-w:
		default:
		}
		w <- c.session
	}
}

// Session returns what is known of the session.
func (c *Conn) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Watch returns a channel of what the session becomes, beginning with what it is. A reader that is slow misses what lies
// between: the newest wins. stop ends it. The channel isn't closed.
func (c *Conn) Watch() (sessions <-chan Session, stop func()) {
	w := make(chan Session, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	w <- c.session
	c.watchers[w] = struct{}{}
	return w, func() {
		c.mu.Lock()
		delete(c.watchers, w)
		c.mu.Unlock()
	}
}

// Identity says as whom the servers know us: "digest user app", or "nobody in particular (world)".
func (c *Conn) Identity() string {
	if c.cfg.User != "" {
		return "digest user " + c.cfg.User
	}
	return "nobody in particular (world)"
}

// Close ends the session, so that what hangs on it goes at once, and everything that the Conn has started. If ctx ends first, the
// connection is cut, and the session expires at the servers. It takes no more than a moment longer than ctx.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.session.State == Closed {
		c.mu.Unlock()
		return nil
	}
	g, l := c.gen, c.line
	c.line = nil
	c.become(Closed)
	c.mu.Unlock()

	g.hosts.close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if l == nil {
			g.cancel() // nobody to take leave of
		}
		g.zk.Close()
		c.cancel()
		if l != nil {
			hangUp(l.Conn)
		}
		c.wg.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	c.cancel()
	if l != nil {
		hangUp(l.Conn)
	}
	// The library waits no longer than this for an answer to its leave.
	const leave = 4 * time.Second
	t := time.NewTimer(leave)
	defer t.Stop()
	select {
	case <-ended:
		return nil
	case <-t.C:
		return batch.NewError(batch.Transient, batch.CodeTimeout, "zookeeper", fmt.Errorf("closing the session: %w", ctx.Err()), "")
	}
}

// position is the index of the server that comes next.
func (h *hosts) position() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next % len(h.servers)
}

// libraryLog takes what the client library says. All that matters of it is said here, in other words.
type libraryLog struct{ log hclog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	if l.log.IsTrace() {
		l.log.Trace("zk: " + fmt.Sprintf(format, args...))
	}
}
