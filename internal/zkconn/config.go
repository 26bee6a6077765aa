// Package zkconn is a session with a ZooKeeper ensemble in which every call ends in time, and every failure is named as
// what it is: no quorum, refused, cut, no answer, overloaded, something else at the address, a name not known, a chroot
// missing, not authenticated, no permission, a session expired, too large, a version known for a fault.
package zkconn

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Defaults of Config.
const (
	DefaultSessionTimeout = 10 * time.Second
	DefaultConnectTimeout = 5 * time.Second
	DefaultCallTimeout    = 10 * time.Second
	// DefaultMaxBytes keeps a request below ZooKeeper's own limit (jute.maxbuffer, 1 MiB less a byte).
	DefaultMaxBytes = 1000 << 10
)

// Config is how an ensemble is reached. Only Servers has no default.
type Config struct {
	Servers []string // host:port
	// Chroot is the path below which everything lies; empty, or "/a/b". It is made if it is missing and may be made.
	Chroot         string
	SessionTimeout time.Duration // asked for; the server has the last word
	ConnectTimeout time.Duration // of one connection, with its handshake
	// CallTimeout bounds each call, waiting for a connection included.
	CallTimeout time.Duration
	MaxBytes    int // of one request: what is larger is refused here with CodeZKTooLarge, before the server cuts the line
	// User and Password are a digest identity, sent on each new connection.
	User, Password string
	TLS            *tls.Config
	Logger         hclog.Logger
	// Dial replaces the dialer beneath TLS, in tests. May be nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	quick time.Duration // replaces quickLine, in tests
}
