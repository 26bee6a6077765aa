package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// ZooKeeperServer is a ZooKeeper ensemble of one node, or of those that Options ask for. Its sessions last at least one
// second, all four-letter words are allowed, and ACLs are enforced.
type ZooKeeperServer struct {
	// Addr is host:port of each node, comma-separated.
	Addr string

	dir string // empty: shared, and not ours to stop
}

// SuperUser is a digest identity that every ACL lets do everything, on the servers that scripts/servers start.
const SuperUser = "super:super"

// Nodes asks for a ZooKeeper ensemble of n nodes: 1 or 3.
func Nodes(n int) Option {
	return func(args *[]string) { *args = append(*args, "--nodes", fmt.Sprint(n)) }
}

// ZooKeeper returns the server that the tests of this run share, or one of the test's own where there is none. Tests keep
// apart by their chroots: see Chroot.
func ZooKeeper(tb testing.TB) *ZooKeeperServer {
	tb.Helper()
	if addr := os.Getenv(ZooKeeperVar); addr != "" {
		return &ZooKeeperServer{Addr: addr}
	}
	return OwnZooKeeper(tb)
}

// OwnZooKeeper starts an ensemble for this test alone.
func OwnZooKeeper(tb testing.TB, opts ...Option) *ZooKeeperServer {
	tb.Helper()
	dir, err := os.MkdirTemp("", "tridentd-zookeeper-") //nolint:usetesting // scripts/test knows what to end by this name
	if err != nil {
		tb.Fatalf("testenv: no directory for ZooKeeper: %v", err)
	}
	z := &ZooKeeperServer{dir: dir}
	tb.Cleanup(func() {
		// The test's own context has ended by now.
		if out, err := z.script(context.Background(), startTimeout, "kill"); err != nil {
			tb.Errorf("testenv: ending ZooKeeper: %v\n%s", err, out)
		}
		if out, err := z.script(context.Background(), startTimeout, "clean"); err != nil {
			tb.Errorf("testenv: removing ZooKeeper: %v\n%s", err, out)
		}
		os.RemoveAll(dir) //nolint:errcheck // what a failed start left; the script has removed the rest
	})
	args := []string{"--port", "auto"}
	for _, o := range opts {
		o(&args)
	}
	if out, err := z.script(tb.Context(), startTimeout, "start", args...); err != nil {
		tb.Fatalf("testenv: this test needs a real ZooKeeper, which didn't start: %v\n%s", err, out)
	}
	out, err := z.script(tb.Context(), callTimeout, "address")
	if err != nil {
		tb.Fatalf("testenv: address of ZooKeeper: %v\n%s", err, out)
	}
	z.Addr = strings.TrimSpace(out)
	return z
}

// Servers lists the addresses, node 1 first.
func (z *ZooKeeperServer) Servers() []string { return strings.Split(z.Addr, ",") }

// Start starts the nodes that don't run, and waits until they serve. nodes limits it to some, from 1; then there must be
// a quorum with them.
func (z *ZooKeeperServer) Start(tb testing.TB, nodes ...int) {
	tb.Helper()
	z.control(tb, "start", nodes)
}

// Stop ends nodes in an orderly way; their data stay.
func (z *ZooKeeperServer) Stop(tb testing.TB, nodes ...int) {
	tb.Helper()
	z.control(tb, "stop", nodes)
}

// Kill ends nodes by SIGKILL: a crash.
func (z *ZooKeeperServer) Kill(tb testing.TB, nodes ...int) {
	tb.Helper()
	z.control(tb, "kill", nodes)
}

// Pause stops nodes with SIGSTOP: connections stay open, new ones are taken by the kernel, and nothing answers.
func (z *ZooKeeperServer) Pause(tb testing.TB, nodes ...int) {
	tb.Helper()
	z.control(tb, "pause", nodes)
}

// Resume lets paused nodes go on.
func (z *ZooKeeperServer) Resume(tb testing.TB, nodes ...int) {
	tb.Helper()
	z.control(tb, "resume", nodes)
}

// Word sends a four-letter word to a node, counted from 1, and returns the answer.
func (z *ZooKeeperServer) Word(tb testing.TB, node int, word string) string {
	tb.Helper()
	answer, err := fourLetters(tb.Context(), z.Servers()[node-1], word)
	if err != nil {
		tb.Fatalf("testenv: asking ZooKeeper's node %d for %s: %v", node, word, err)
	}
	return answer
}

// Mode returns what a node is: standalone, leader or follower; empty while it doesn't serve.
func (z *ZooKeeperServer) Mode(tb testing.TB, node int) string {
	tb.Helper()
	answer, err := fourLetters(tb.Context(), z.Servers()[node-1], "srvr")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// Leader returns the node that leads, counted from 1. There must be one.
func (z *ZooKeeperServer) Leader(tb testing.TB) int {
	tb.Helper()
	for i := range z.Servers() {
		if z.Mode(tb, i+1) == "leader" {
			return i + 1
		}
	}
	tb.Fatal("testenv: ZooKeeper has no leader")
	return 0
}

// Cli runs one command of ZooKeeper's own client ("get", "/a") and returns what it printed.
func (z *ZooKeeperServer) Cli(tb testing.TB, args ...string) string {
	tb.Helper()
	at := []string{"--dir", z.dir}
	if z.dir == "" {
		_, port, ok := strings.Cut(z.Servers()[0], ":")
		if !ok {
			tb.Fatalf("testenv: %s=%q is not host:port", ZooKeeperVar, z.Addr)
		}
		at = []string{"--port", port}
	}
	out, err := run(tb.Context(), startTimeout, zooKeeperScript, append(append(append([]string{"cli"}, at...), "--"), args...)...)
	if err != nil {
		tb.Fatalf("testenv: zkCli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Chroot makes a node with a name of its own, which begins with prefix, directly below the root, and returns its path. It is
// removed with the test, and all below it.
func (z *ZooKeeperServer) Chroot(tb testing.TB, prefix string) string {
	tb.Helper()
	path := "/" + Unique(prefix)
	if _, err := z.Conn(tb).Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		tb.Fatalf("testenv: making %s: %v", path, err)
	}
	if z.dir != "" {
		return path // it goes with the server
	}
	tb.Cleanup(func() {
		c, err := z.dial(callTimeout)
		if err != nil {
			tb.Errorf("testenv: removing %s: %v", path, err)
			return
		}
		defer c.Close()
		if err := removeAll(c, path); err != nil {
			tb.Errorf("testenv: removing %s: %v", path, err)
		}
	})
	return path
}

// Conn returns a plain client with the super user's rights, for a test to look at nodes and to change them by hand. It is
// closed with the test. Its calls have no time limit: use it while the servers serve.
func (z *ZooKeeperServer) Conn(tb testing.TB) *zk.Conn {
	tb.Helper()
	c, err := z.dial(callTimeout)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(c.Close)
	return c
}

// dial returns a client that has a session.
func (z *ZooKeeperServer) dial(limit time.Duration) (*zk.Conn, error) {
	const session = 10 * time.Second
	c, events, err := zk.Connect(z.Servers(), session, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("connecting to ZooKeeper at %s: %w", z.Addr, err)
	}
	timeout := time.After(limit)
	for c.State() != zk.StateHasSession {
		select {
		case <-events:
		case <-timeout:
			c.Close()
			return nil, fmt.Errorf("no session with ZooKeeper at %s within %v", z.Addr, limit)
		}
	}
	if err := c.AddAuth("digest", []byte(SuperUser)); err != nil {
		c.Close()
		return nil, fmt.Errorf("authenticating as super user to ZooKeeper at %s: %w", z.Addr, err)
	}
	return c, nil
}

func removeAll(c *zk.Conn, path string) error {
	children, _, err := c.Children(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for _, child := range children {
		if err := removeAll(c, path+"/"+child); err != nil {
			return err
		}
	}
	if err := c.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}

func (z *ZooKeeperServer) control(tb testing.TB, command string, nodes []int) {
	tb.Helper()
	if z.dir == "" {
		tb.Fatalf("testenv: %s on the shared ZooKeeper would break other tests; use OwnZooKeeper", command)
	}
	control(tb, zooKeeperScript, z.dir, command, nodes)
}

func (z *ZooKeeperServer) script(ctx context.Context, limit time.Duration, command string, args ...string) (string, error) {
	return run(ctx, limit, zooKeeperScript, append([]string{command, "--dir", z.dir}, args...)...)
}

// quiet drops what the client logs.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
