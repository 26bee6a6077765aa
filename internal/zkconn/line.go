package zkconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Numbers of ZooKeeper's protocol that the line itself has to do with.
const (
	xidEvent = -1 // a frame that answers no request
	xidAuth  = -4

	opGetData = 4
	opAuth    = 100
	opClose   = -11

	errAuthFailed = -115
	errNeedsAuth  = -124

	passwordBytes = 16
	// minHello and maxHello bound the server's answer to a request for a session: without and with the read-only flag, and
	// some room for what a later version may add.
	minHello = 4 + 4 + 8 + 4 + passwordBytes
	maxHello = 256
)

// line is one connection with one server. The client library reads and writes it as a net.Conn.
//
// The library limits its handshake by many times the session's time-out, sends credentials behind it while requests may be
// under way, and keeps what it learns to itself. So the line does the handshake: with the library's first Read it takes the
// server's answer, presents the credentials, and only then hands the answer on, all before one deadline. What the library
// gets is a line that is authenticated, or none.
//
// It also measures: the server answers in the order of the requests, so that each answer tells when its request was sent.
type line struct {
	net.Conn
	owner    *Conn
	gen      *generation
	server   string
	deadline time.Time // of the handshake

	// Of the library's goroutine that connects, before it starts the two that read and write.
	ready bool
	hello []byte // the server's answer, as far as the library hasn't read it

	// Of the goroutine that reads: the beginning of a frame, and how much of the frame is still to come.
	head [8]byte
	have int
	skip int

	// forget ends the watch over the generation's context. Set before the line is used.
	forget func() bool

	mu      sync.Mutex    // may be taken under Conn.mu, not the other way round
	sent    []time.Time   // of the requests that wait for an answer, oldest first
	heard   time.Time     // when the last bytes came
	last    time.Duration // what the last answer took
	reason  *failure      // why the line ended, once it has
	handing time.Time     // when the session was asked for
}

// failure is a cause with its code, of one server or one line.
type failure struct {
	code batch.Code
	text string // begins in lower case, names no server
	at   time.Time
}

func (l *line) Read(b []byte) (int, error) {
	if !l.ready {
		if f := l.handshake(); f != nil {
			l.end(f)
			return 0, errors.New(f.text)
		}
		l.ready = true
		_ = l.Conn.SetDeadline(time.Time{})
	}
	if len(l.hello) > 0 {
		n := copy(b, l.hello)
		l.hello = l.hello[n:]
		return n, nil
	}
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.scan(b[:n])
	}
	if err != nil {
		l.end(l.explain(err))
	}
	return n, err
}

// Write is called with one whole frame. The first asks for a session.
func (l *line) Write(b []byte) (int, error) {
	now := l.owner.now()
	l.mu.Lock()
	if l.ready {
		l.sent = append(l.sent, now)
	} else {
		l.handing = now
	}
	l.mu.Unlock()
	n, err := l.Conn.Write(b)
	if err != nil {
		l.end(l.explain(err))
	}
	return n, err
}

// Close ends the line as the library wants it.
func (l *line) Close() error {
	l.end(&failure{code: batch.CodeZKCut, text: "the connection has been closed"})
	return nil
}

// The deadline of the handshake is the line's own.

func (l *line) SetDeadline(t time.Time) error {
	if !l.ready {
		return nil
	}
	return l.Conn.SetDeadline(t)
}

func (l *line) SetReadDeadline(t time.Time) error {
	if !l.ready {
		return nil
	}
	return l.Conn.SetReadDeadline(t)
}

func (l *line) SetWriteDeadline(t time.Time) error {
	if !l.ready {
		return nil
	}
	return l.Conn.SetWriteDeadline(t)
}

// end closes the line, once; the first cause stays.
func (l *line) end(f *failure) {
	l.mu.Lock()
	first := l.reason == nil
	if first {
		f.at = l.owner.now()
		l.reason = f
	}
	l.mu.Unlock()
	if first {
		l.forget()
		hangUp(l.Conn)
		l.owner.lost(l, f)
	}
}

// explain names the cause of a failed read or write on a line that stood.
func (l *line) explain(err error) *failure {
	if isTimeout(err) {
		l.mu.Lock()
		quiet := l.owner.now().Sub(l.heard)
		l.mu.Unlock()
		return &failure{code: batch.CodeZKNoAnswer, text: "no answer for " + rounded(quiet)}
	}
	if errors.Is(err, io.EOF) {
		return &failure{code: batch.CodeZKCut, text: "the server, or something on the way, has closed the connection"}
	}
	return &failure{code: batch.CodeZKCut, text: "the connection was lost: " + plain(err)}
}

// closedEarly says that the other side closed the connection instead of answering.
const closedEarly = "takes connections, and closes them without an answer (as does a server with more connections from here than its maxClientCnxns)"

// handshake takes the server's answer and presents the credentials.
func (l *line) handshake() *failure {
	_ = l.Conn.SetDeadline(l.deadline)
	hello, s, f := l.greet()
	if f != nil {
		return f
	}
	if s.id == 0 {
		l.owner.expired(l.gen)
		return &failure{code: batch.CodeZKExpired, text: "says that the session has expired"}
	}
	if f := l.authenticate(); f != nil {
		return f
	}
	l.hello = hello
	l.mu.Lock()
	l.heard = l.owner.now()
	l.last = l.heard.Sub(l.handing)
	l.mu.Unlock()
	l.owner.connected(l, s.id, s.timeout)
	return nil
}

// granted is a session as a server gives it.
type granted struct {
	id      int64 // 0: the one that was asked for has expired
	timeout time.Duration
}

// greet takes the server's answer to the request for a session, and returns it also as it came.
func (l *line) greet() (hello []byte, s granted, f *failure) {
	const after = "asked for a session"
	hello = make([]byte, 4, 4+maxHello)
	if f := l.take(hello, after); f != nil {
		return nil, s, f
	}
	n := int(binary.BigEndian.Uint32(hello))
	if n < minHello || n > maxHello {
		return nil, s, l.stranger(hello)
	}
	hello = hello[:4+n]
	body := hello[4:]
	if f := l.take(body, after); f != nil {
		return nil, s, f
	}
	if binary.BigEndian.Uint32(body) != 0 || binary.BigEndian.Uint32(body[16:]) != passwordBytes {
		return nil, s, l.stranger(hello)
	}
	s.timeout = time.Duration(int32(binary.BigEndian.Uint32(body[4:]))) * time.Millisecond
	s.id = int64(binary.BigEndian.Uint64(body[8:]))
	return hello, s, nil
}

// authenticate presents the credentials, if there are any.
func (l *line) authenticate() *failure {
	cfg := &l.owner.cfg
	if cfg.User == "" {
		return nil
	}
	const scheme = "digest"
	auth := cfg.User + ":" + cfg.Password
	body := binary.BigEndian.AppendUint32(nil, 0)
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(scheme))), scheme...)
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(auth))), auth...)
	if _, err := l.Conn.Write(request(xidAuth, opAuth, body)); err != nil {
		return l.explainHandshake(err, "sent credentials")
	}
	// An answer is a header of xid (4 bytes), zxid (8) and error (4).
	var head [4 + 16]byte
	if f := l.take(head[:], "sent credentials"); f != nil {
		return f
	}
	if xid := int32(binary.BigEndian.Uint32(head[4:])); xid != xidAuth {
		return l.stranger(head[:])
	}
	if more := int(binary.BigEndian.Uint32(head[:])) - 16; more > 0 && more <= maxHello {
		if f := l.take(make([]byte, more), "sent credentials"); f != nil {
			return f
		}
	}
	switch code := int32(binary.BigEndian.Uint32(head[16:])); code {
	case 0:
		return nil
	case errAuthFailed:
		return &failure{code: batch.CodeZKNoAuth, text: fmt.Sprintf("has refused the credentials of digest user %s", cfg.User)}
	default:
		return &failure{code: batch.CodeZKNoAuth, text: fmt.Sprintf("has answered the credentials of digest user %s with error %d", cfg.User, code)}
	}
}

func (l *line) take(b []byte, after string) *failure {
	if _, err := io.ReadFull(l.Conn, b); err != nil {
		return l.explainHandshake(err, after)
	}
	return nil
}

func (l *line) explainHandshake(err error, after string) *failure {
	switch {
	case isTimeout(err):
		// A web server waits for the end of a line that never comes.
		if !l.owner.knows(l.server) && isWeb(l.gen.ctx, &l.owner.cfg, l.server) {
			return &failure{code: batch.CodeZKNotZK, text: "something else answers there: a web server (HTTP)"}
		}
		return &failure{
			code: batch.CodeZKNoAnswer,
			text: fmt.Sprintf("takes connections, and has not answered for %v when we %s", l.owner.cfg.ConnectTimeout, after),
		}
	case isAlert(err): // TLS 1.3 tells only now
		return refusedTLS(err)
	case l.gen.ctx.Err() != nil:
		return &failure{code: batch.CodeZKCut, text: "the connection has been closed"}
	}
	return explainSilent(l.gen.ctx, &l.owner.cfg, l.server)
}

// stranger names what isn't ZooKeeper by its first bytes.
func (*line) stranger(first []byte) *failure {
	return &failure{code: batch.CodeZKNotZK, text: "something else answers there: " + sample(first)}
}

// scan follows the frames in what comes from the server.
func (l *line) scan(b []byte) {
	now := l.owner.now()
	var confirmed time.Time
	l.mu.Lock()
	l.heard = now
	for len(b) > 0 {
		if l.skip > 0 {
			n := min(l.skip, len(b))
			l.skip -= n
			b = b[n:]
			continue
		}
		n := copy(l.head[l.have:], b)
		l.have += n
		b = b[n:]
		if l.have < len(l.head) {
			break
		}
		l.have = 0
		l.skip = max(0, int(int32(binary.BigEndian.Uint32(l.head[:])))-4)
		if xid := int32(binary.BigEndian.Uint32(l.head[4:])); xid == xidEvent || len(l.sent) == 0 {
			continue
		}
		confirmed = l.sent[0]
		l.last = now.Sub(confirmed)
		l.sent = l.sent[1:]
	}
	l.mu.Unlock()
	l.owner.heard(l, now, confirmed)
}

// waiting returns how long the oldest request has waited for its answer, and whether anything has come since it was sent.
func (l *line) waiting() (how time.Duration, answering bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sent) == 0 {
		return 0, true
	}
	return l.owner.now().Sub(l.sent[0]), l.heard.After(l.sent[0])
}

// answered returns how long the last answer took.
func (l *line) answered() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// request is a frame of the protocol.
func request(xid, op int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, uint32(op))
	return append(b, body...)
}
