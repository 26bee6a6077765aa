// Package server shows a running pipeline to the outside: over HTTP for people, probes and Prometheus, and over a
// unix socket in the data directory for the commands.
//
// It never waits for a server of the pipeline's: /healthz answers as long as the process lives, and everything
// about the pipeline comes from memory or from a snapshot of the local store. What it shows of states has
// committed and is synced. It can't change the pipeline, with one exception: who may open the socket (the
// data directory's owner) may ask for an orderly stop.
//
// The caller implements Backend, calls Start once its data directory is locked, and Close in the end. HTTP is
// served on loopback addresses only, and only to requests that name one as their host, so that no web page can
// reach it through a browser by way of a name of its own.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tridentd/tridentd/batch"
)

const (
	// DefaultListen is where HTTP is served unless told otherwise. If it is taken, the next free port is used.
	DefaultListen = "127.0.0.1:8642"
	// ListenOff is the Config.Listen that serves the socket alone.
	ListenOff = "off"

	defaultPortTries = 100
)

// Time limits of one connection. A reader that takes nothing for writeTimeout is cut off: it holds a snapshot.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = time.Minute

	maxHeaderBytes = 64 << 10
)

// Config is what a server is started with.
type Config struct {
	Backend Backend
	// Metrics, if not nil, is shown at /metrics along with figures of the Go runtime and the process, which it must not hold.
	Metrics prometheus.Gatherer
	// Listen is host:port on a loopback address, empty for DefaultListen, or ListenOff. Unlike the default, an
	// address given here that is taken is an error. Port 0 takes a free one.
	Listen string
	// Dir is the pipeline's data directory, where the socket is made; empty: no socket.
	Dir    string
	Logger hclog.Logger
}

// Server serves one pipeline until Close.
type Server struct {
	backend Backend
	log     hclog.Logger
	metrics prometheus.Gatherer
	addr    string  // empty: no HTTP
	tcp     *served // nil: no HTTP

	mu     sync.Mutex
	sock   *socket // nil: no socket
	onSock *served // of sock
	// What is read from the store ends with it; see EndReads.
	reads    context.Context
	endReads context.CancelCauseFunc
}

// served is a listener that is served.
type served struct {
	http *http.Server
	done chan struct{} // closed when it has ended
}

// end lets running requests end, until ctx is done, then cuts off what is left.
func (s *served) end(ctx context.Context) error {
	var err error
	if serr := s.http.Shutdown(ctx); serr != nil {
		err = fmt.Errorf("server: requests were still running: %w", serr)
		s.http.Close() //nolint:errcheck // it cuts connections off; the failure has been noted
	}
	<-s.done
	return err
}

// Start binds HTTP and the socket and serves both in the background.
func Start(cfg Config) (*Server, error) {
	if cfg.Backend == nil {
		panic("server: no Backend")
	}
	s := &Server{backend: cfg.Backend, log: cfg.Logger}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	s.reads, s.endReads = context.WithCancelCause(context.Background())
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = process
	if cfg.Metrics != nil {
		s.metrics = prometheus.Gatherers{process, cfg.Metrics}
	}

	var tcp net.Listener
	if cfg.Listen != ListenOff {
		var err error
		if tcp, err = listen(cfg.Listen); err != nil {
			return nil, err
		}
		s.addr = tcp.Addr().String()
	}
	if cfg.Dir != "" {
		if err := s.OpenSocket(cfg.Dir); err != nil {
			if tcp != nil {
				tcp.Close() //nolint:errcheck // nothing has been served on it
			}
			return nil, err
		}
	}
	if tcp != nil {
		s.tcp = s.serve(tcp, loopbackHostOnly(s.handler(false)))
	}
	return s, nil
}

// OpenSocket makes the socket of a data directory, which the caller holds the lock of, and serves it. There must be none.
func (s *Server) OpenSocket(dir string) error {
	sock, err := listenSocket(dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sock != nil {
		panic("server: OpenSocket with a socket open")
	}
	s.sock, s.onSock = sock, s.serve(sock.listener, s.handler(true))
	return nil
}

// CloseSocket ends what OpenSocket began, if anything, within ctx.
func (s *Server) CloseSocket(ctx context.Context) error {
	s.mu.Lock()
	sock, on := s.sock, s.onSock
	s.sock, s.onSock = nil, nil
	s.mu.Unlock()
	if sock == nil {
		return nil
	}
	return errors.Join(on.end(ctx), sock.remove())
}

// Addr is host:port of HTTP, or empty if it is off.
func (s *Server) Addr() string { return s.addr }

// EndReads cuts off the queries and ledgers that are being read, and refuses others: the store is about to be closed. A
// reader is told so, or finds its connection broken off.
func (s *Server) EndReads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endReads(errEnding)
}

// BeginReads takes EndReads back: a store has been opened again.
func (s *Server) BeginReads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reads.Err() != nil {
		s.reads, s.endReads = context.WithCancelCause(context.Background())
	}
}

// untilClosed is the context of what is read from the store.
func (s *Server) untilClosed() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

var errEnding = batch.NewError(batch.Transient, batch.CodeUnavailable, "ask", errors.New("the pipeline is ending"), "ask again when it has ended, or has been started again")

// Close lets running requests end, until ctx is done, then cuts off what is left, and removes the socket.
func (s *Server) Close(ctx context.Context) error {
	err := s.CloseSocket(ctx)
	if s.tcp != nil {
		err = errors.Join(s.tcp.end(ctx), err)
	}
	return err
}

func (s *Server) serve(l net.Listener, h http.Handler) *served {
	sv := &served{
		http: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(sv.done)
		if err := sv.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("http server ended", "address", l.Addr().String(), "error", err)
		}
	}()
	return sv
}

func listen(addr string) (net.Listener, error) {
	if addr != "" {
		if err := checkLoopback(addr); err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "listen", err,
				"choose another address with --listen, or end what listens there")
		}
		return l, nil
	}
	ap := netip.MustParseAddrPort(DefaultListen)
	var last error
	for i := range defaultPortTries {
		l, err := net.Listen("tcp", netip.AddrPortFrom(ap.Addr(), ap.Port()+uint16(i)).String())
		if err == nil {
			return l, nil
		}
		last = err
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "listen", last,
		"give a free address with --listen, or --listen "+ListenOff)
}

// CheckListen says what is wrong with a Config.Listen, as far as that can be told without listening.
func CheckListen(addr string) error {
	if addr == "" || addr == ListenOff {
		return nil
	}
	return checkLoopback(addr)
}

func checkLoopback(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	switch {
	case err != nil:
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "listen", err,
			"give host and port, as in --listen "+DefaultListen)
	case !isLoopback(host):
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "listen",
			fmt.Errorf("%q isn't a loopback address; what is served here has no access control", addr),
			"listen on 127.0.0.1 and put a proxy with access control in front of it")
	}
	return nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// loopbackHostOnly refuses requests for any other host: a web page whose name resolves to 127.0.0.1 can make a browser
// send such requests, and would be allowed to read the answers.
func loopbackHostOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		} else if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
			host = host[1 : n-1]
		}
		if !isLoopback(host) {
			http.Error(w, "this server answers to loopback names only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
