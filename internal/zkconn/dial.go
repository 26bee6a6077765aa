package zkconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// A line that ended before quickLine counts as another failure in a row, so that a server, or something before it, that
// takes connections and drops them isn't asked again at once for ever.
const quickLine = time.Second

// probeLimit bounds each question by which a server that isn't understood is recognised.
const probeLimit = time.Second

// hosts tells the client library which server is next. Names stay names: each is looked up when it is dialled, so that one
// that isn't known keeps nobody from the others.
type hosts struct {
	servers []string
	now     func() time.Time
	soon    time.Duration // quickLine

	mu    sync.Mutex
	next  int
	tries int // in a row without a session
	quick int // lines in a row that ended soon
	since time.Time
	shut  bool
}

// Init implements zk.HostProvider. The library has shuffled its argument.
func (*hosts) Init([]string) error { return nil }

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider. With true the library gives up the requests that it hasn't sent, and pauses for a second.
func (h *hosts) Next() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server := h.servers[h.next%len(h.servers)]
	h.next++
	if h.shut {
		return server, true
	}
	if !h.since.IsZero() { // a line stood, and has ended
		if h.now().Sub(h.since) < h.soon {
			h.quick++
		} else {
			h.quick = 0
		}
		h.since = time.Time{}
		h.tries = 1
		return server, h.quick > 1
	}
	if h.tries++; h.tries > len(h.servers) {
		h.tries = 1
		return server, true
	}
	return server, false
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	h.tries, h.since = 0, h.now()
	h.mu.Unlock()
}

func (h *hosts) close() {
	h.mu.Lock()
	h.shut = true
	h.mu.Unlock()
}

// connect makes a connection, with TLS where that is set. It ends with ctx.
func connect(ctx context.Context, cfg *Config, server string) (net.Conn, *failure) {
	dial := cfg.Dial
	if dial == nil {
		var d net.Dialer
		dial = d.DialContext
	}
	conn, err := dial(ctx, "tcp", server)
	if err != nil {
		return nil, explainDial(err, cfg.ConnectTimeout)
	}
	if cfg.TLS == nil {
		return conn, nil
	}
	t := cfg.TLS.Clone()
	if t.ServerName == "" {
		t.ServerName, _, _ = net.SplitHostPort(server)
	}
	secured := tls.Client(conn, t)
	if err := secured.HandshakeContext(ctx); err != nil {
		hangUp(conn)
		return nil, explainTLS(err, cfg.ConnectTimeout)
	}
	return secured, nil
}

// hangUp closes a connection. What that says matters to nobody: a request counts only once it has been answered.
func hangUp(conn net.Conn) { _ = conn.Close() }

func explainDial(err error, limit time.Duration) *failure {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return &failure{code: batch.CodeZKUnresolved, text: "the name can't be resolved: " + plain(err)}
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &failure{code: batch.CodeZKRefused, text: "connection refused: nothing listens there"}
	case isTimeout(err):
		return &failure{code: batch.CodeZKCut, text: fmt.Sprintf("no connection within %v: packets get no answer", limit)}
	}
	return &failure{code: batch.CodeZKCut, text: "no connection: " + plain(err)}
}

func explainTLS(err error, limit time.Duration) *failure {
	if head, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return &failure{code: batch.CodeZKNotZK, text: "doesn't speak TLS there: it answers " + sample(head.RecordHeader[:])}
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &failure{code: batch.CodeZKNoAuth, text: "its certificate isn't valid for us: " + plain(err)}
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return &failure{code: batch.CodeZKNoAuth, text: "its certificate isn't valid for us: " + plain(err)}
	}
	if isAlert(err) {
		return refusedTLS(err)
	}
	switch {
	case isTimeout(err):
		return &failure{code: batch.CodeZKNoAnswer, text: fmt.Sprintf("takes connections, and has not begun TLS within %v", limit)}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return &failure{code: batch.CodeZKNotZK, text: "closes the connection when TLS begins: the port may be one without TLS"}
	}
	return &failure{code: batch.CodeZKNoAuth, text: "TLS fails: " + plain(err)}
}

// isAlert tells whether the other side has ended TLS with a reason: it wants a certificate, or another one.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

func refusedTLS(err error) *failure {
	return &failure{code: batch.CodeZKNoAuth, text: "refuses us in TLS: " + plain(err)}
}

// What a server says to a four-letter word.
const (
	saysNotServing = "not currently serving requests"
	saysNotAllowed = "is not executed because it is not in the whitelist"
	saysVersion    = "Zookeeper version:"
)

// explainSilent finds out why a server closes connections without an answer. A server of ZooKeeper does that while it has
// no quorum.
func explainSilent(ctx context.Context, cfg *Config, server string) *failure {
	answer, f := word(ctx, cfg, server, "srvr")
	switch {
	case (f != nil || answer == "") && isTLS(ctx, cfg, server):
		return &failure{code: batch.CodeZKNotZK, text: "speaks TLS there, and TLS isn't set"}
	case f != nil && f.code != batch.CodeZKCut:
		return f
	case strings.Contains(answer, saysNotServing):
		return &failure{code: batch.CodeZKNoQuorum, text: "runs, and serves nobody: too few servers of its ensemble are up"}
	case strings.Contains(answer, saysNotAllowed):
		return &failure{code: batch.CodeZKNoQuorum, text: "runs, and closes connections: too few servers of its ensemble may be up"}
	case strings.HasPrefix(answer, saysVersion):
		return &failure{code: batch.CodeZKOverloaded, text: "serves others, and closes our connections: it may have as many as maxClientCnxns allows"}
	case answer != "":
		return &failure{code: batch.CodeZKNotZK, text: "something else answers there: " + sample([]byte(answer))}
	case isKafka(ctx, cfg, server):
		return &failure{code: batch.CodeZKNotZK, text: "something else answers there: a Kafka broker"}
	}
	return &failure{code: batch.CodeZKCut, text: closedEarly}
}

// word sends a four-letter word. The answer is empty if the server closes the connection without one.
func word(ctx context.Context, cfg *Config, server, word string) (string, *failure) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	conn, f := connect(ctx, cfg, server)
	if f != nil {
		return "", f
	}
	defer hangUp(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", &failure{code: batch.CodeZKCut, text: closedEarly}
	}
	const limit = 1 << 20
	answer, err := io.ReadAll(io.LimitReader(conn, limit))
	if len(answer) == 0 && isTimeout(err) {
		return "", &failure{code: batch.CodeZKNoAnswer, text: fmt.Sprintf("takes connections, and does not answer %q", word)}
	}
	return string(answer), nil
}

// isKafka asks for the versions that a Kafka broker speaks.
func isKafka(ctx context.Context, cfg *Config, server string) bool {
	conn, f := connect(ctx, cfg, server)
	if f != nil {
		return false
	}
	defer hangUp(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	const apiVersions, correlation = 18, 0x7a6b
	body := binary.BigEndian.AppendUint16(nil, apiVersions)
	body = binary.BigEndian.AppendUint16(body, 0) // version
	body = binary.BigEndian.AppendUint32(body, correlation)
	body = binary.BigEndian.AppendUint16(body, 0xffff) // no client id
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		return false
	}
	var head [8]byte
	_, err := io.ReadFull(conn, head[:])
	return err == nil && binary.BigEndian.Uint32(head[4:]) == correlation
}

// isTLS tries whether a server that we have spoken to in plain text wants TLS.
func isTLS(ctx context.Context, cfg *Config, server string) bool {
	if cfg.TLS != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	conn, f := connect(ctx, cfg, server)
	if f != nil {
		return false
	}
	defer hangUp(conn)
	err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent or believed
	return err == nil || isAlert(err)
}

// isWeb asks for a page. A server of ZooKeeper takes that for a frame that is too large.
func isWeb(ctx context.Context, cfg *Config, server string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	conn, f := connect(ctx, cfg, server)
	if f != nil {
		return false
	}
	defer hangUp(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, "HEAD / HTTP/1.0\r\n\r\n"); err != nil {
		return false
	}
	var head [5]byte
	_, err := io.ReadFull(conn, head[:])
	return err == nil && string(head[:]) == "HTTP/"
}

func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// plain is an error's innermost text: what the operating system said, without the addresses that the message has anyway.
func plain(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}

// sample shows the beginning of an answer.
func sample(b []byte) string {
	const most = 24
	more := ""
	if len(b) > most {
		b, more = b[:most], "…"
	}
	return fmt.Sprintf("%q%s", b, more)
}

func rounded(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
