package testenv

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// fourLetters sends one of ZooKeeper's four-letter words and returns the answer.
func fourLetters(ctx context.Context, addr, word string) (string, error) {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer hangUp(c)
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// hangUp closes what nobody waits for any more.
func hangUp(c io.Closer) { _ = c.Close() }

// Proxy stands between clients and one server: it forwards bytes, counts connections, and can delay, swallow and cut.
// It listens on 127.0.0.1 and ends with the test.
type Proxy struct {
	// Addr is host:port for the clients.
	Addr string

	target string
	wg     sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // of what the pumps wait for: mode, delay, cut
	listener net.Listener
	links    map[*link]struct{}
	accepted int
	closed   bool
	requests mode // what becomes of bytes to the server
	replies  mode // what becomes of bytes from the server
	delay    time.Duration
	cutAfter func(ZooKeeperRequest) CutPoint
}

// mode is what a proxy does with bytes of one direction.
type mode uint8

const (
	forward mode = iota
	swallow      // taken and dropped
)

// link is one client's connection with its counterpart.
type link struct {
	client, server net.Conn

	// Under Proxy.mu:
	cut       bool
	dropReply map[int32]bool // xids whose reply is dropped and followed by a cut
}

func (l *link) close() {
	hangUp(l.client)
	hangUp(l.server)
}

// ZooKeeperRequest is a request that a proxy has seen pass. Ping, authentication and watch requests have xids below zero, and
// so has the first frame of a connection, which asks for a session (XidConnect).
type ZooKeeperRequest struct {
	Xid  int32
	Op   int32  // as in the protocol: 1 create, 2 delete, 5 setData, 14 multi, 100 auth
	Body []byte // what follows the operation
}

// XidConnect stands in for the xid of the frame that asks for a session, which has none.
const XidConnect = -1000

// CutPoint is where a request's connection is cut.
type CutPoint uint8

const (
	NoCut     CutPoint = iota
	CutBefore          // the server doesn't get the request
	CutReply           // the server gets the request, and answers it; the client doesn't get the answer
)

// NewProxy starts a proxy for the server at target, host:port.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{target: target, links: make(map[*link]struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.listens(Listen(tb))
	tb.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		hangUp(p.listener)
		p.mu.Unlock()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

func (p *Proxy) listens(l net.Listener) {
	p.mu.Lock()
	p.listener, p.Addr = l, l.Addr().String()
	p.mu.Unlock()
	p.wg.Add(1)
	go p.accept(l)
}

// Refuse stops listening and cuts all connections: the next ones are refused. Accept listens again.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	hangUp(p.listener)
	p.mu.Unlock()
	p.Cut()
}

// Accept listens again after Refuse, at the same address.
func (p *Proxy) Accept(tb testing.TB) {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(tb.Context(), "tcp", p.Addr)
	if err != nil {
		tb.Fatalf("testenv: proxy for %s: %v", p.target, err)
	}
	p.listens(l)
}

// Cut closes all connections. New ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	for l := range p.links {
		l.cut = true
		l.close()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
}

// SwallowReplies takes what the server sends and drops it, or stops doing so. Connections that lost something stay
// useless.
func (p *Proxy) SwallowReplies(on bool) { p.set(func() { p.replies = modeOf(on) }) }

// SwallowRequests takes what clients send and drops it, or stops doing so.
func (p *Proxy) SwallowRequests(on bool) { p.set(func() { p.requests = modeOf(on) }) }

// Delay holds everything that the server sends for d.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// CutAfter asks match about each request that passes to ZooKeeper, and cuts the connection where it says. match is called
// by several goroutines, and not at once.
func (p *Proxy) CutAfter(match func(ZooKeeperRequest) CutPoint) {
	p.set(func() { p.cutAfter = match })
}

// Open returns how many connections there are now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted returns how many connections there have been.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func modeOf(swallowing bool) mode {
	if swallowing {
		return swallow
	}
	return forward
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	change()
	p.changed.Broadcast()
	p.mu.Unlock()
}

func (p *Proxy) accept(listener net.Listener) {
	defer p.wg.Done()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	const limit = 5 * time.Second
	p.mu.Lock()
	p.accepted++
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", p.target, limit)
	if err != nil {
		hangUp(client)
		return
	}
	l := &link{client: client, server: server, dropReply: make(map[int32]bool)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.close()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pumpRequests(l); l.close() })
	pumps.Go(func() { p.pumpReplies(l); l.close() })
	pumps.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pumpRequests forwards what the client sends, bytes as they come.
func (p *Proxy) pumpRequests(l *link) {
	f := framer{first: XidConnect}
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if n > 0 && !p.passRequests(l, f.push(buf[:n]), buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// passRequests forwards chunk, which completes the given frames. It returns false where the connection is to be cut.
func (p *Proxy) passRequests(l *link, frames []frame, chunk []byte) bool {
	p.mu.Lock()
	m, match := p.requests, p.cutAfter
	p.mu.Unlock()
	if m == swallow {
		return true
	}
	for _, fr := range frames {
		if match == nil {
			break
		}
		r := ZooKeeperRequest{Xid: fr.id, Op: -1, Body: fr.body}
		if fr.id != XidConnect && len(fr.body) >= 4 {
			r.Op, r.Body = int32(binary.BigEndian.Uint32(fr.body)), fr.body[4:]
		}
		switch match(r) {
		case NoCut:
		case CutBefore:
			return false
		case CutReply:
			p.mu.Lock()
			l.dropReply[r.Xid] = true
			p.mu.Unlock()
		}
	}
	_, err := l.server.Write(chunk)
	return err == nil
}

func (p *Proxy) pumpReplies(l *link) {
	f := framer{first: XidConnect}
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 && !p.passReplies(l, f.push(buf[:n]), buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// passReplies forwards chunk, which completes the given frames. It returns false where the connection is to be cut.
func (p *Proxy) passReplies(l *link, frames []frame, chunk []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay > 0 {
		until := time.Now().Add(p.delay)
		t := time.AfterFunc(p.delay, func() { p.set(func() {}) })
		for !l.cut && p.delay > 0 && time.Now().Before(until) {
			p.changed.Wait()
		}
		t.Stop()
	}
	if p.replies == swallow {
		return true
	}
	for _, fr := range frames {
		if l.dropReply[fr.id] {
			return false
		}
	}
	p.mu.Unlock()
	_, err := l.client.Write(chunk)
	p.mu.Lock()
	return err == nil
}

// frame is what ZooKeeper's protocol sends: a length of four bytes, then that many, which begin with an xid.
type frame struct {
	id   int32
	body []byte // behind the xid
}

// framer finds the frames in a stream of bytes. The first has no xid.
type framer struct {
	first int32 // what stands in for the xid of the first frame; zero later
	rest  []byte
}

// push returns the frames that chunk completes.
func (f *framer) push(chunk []byte) []frame {
	const xidBytes = 4
	f.rest = append(f.rest, chunk...)
	var out []frame
	for len(f.rest) >= 4 {
		n := int(binary.BigEndian.Uint32(f.rest))
		if n < xidBytes || len(f.rest) < 4+n {
			break
		}
		body := append([]byte(nil), f.rest[4:4+n]...)
		f.rest = f.rest[4+n:]
		if f.first != 0 {
			out = append(out, frame{f.first, body})
			f.first = 0
			continue
		}
		out = append(out, frame{int32(binary.BigEndian.Uint32(body)), body[xidBytes:]})
	}
	return out
}
