package testenv

import (
	"os"
	"testing"
)

// RedisVar holds host:port of a Redis server that all tests of the run share.
const RedisVar = "TRIDENTD_TEST_REDIS"

const redisScript = "redis.sh"

// RedisServer is a Redis (or Valkey) server that syncs each write before it answers.
type RedisServer struct {
	// Addr is host:port.
	Addr string

	dir string // empty: shared, and not ours to stop
}

// Redis returns the server that the tests of this run share, or one of the test's own where there is none. Tests keep apart by keys
// that begin with a name of their own: see Unique.
func Redis(tb testing.TB) *RedisServer {
	tb.Helper()
	if addr := os.Getenv(RedisVar); addr != "" {
		return &RedisServer{Addr: addr}
	}
	return OwnRedis(tb)
}

// OwnRedis starts a server for this test alone.
func OwnRedis(tb testing.TB, opts ...Option) *RedisServer {
	tb.Helper()
	dir, addr := ownServer(tb, redisScript, "tridentd-redis-", opts)
	return &RedisServer{Addr: addr, dir: dir}
}

// Start starts the server if it doesn't run.
func (r *RedisServer) Start(tb testing.TB) { tb.Helper(); r.control(tb, "start") }

// Stop ends the server in an orderly way; its data stay.
func (r *RedisServer) Stop(tb testing.TB) { tb.Helper(); r.control(tb, "stop") }

// Kill ends the server by SIGKILL: a crash.
func (r *RedisServer) Kill(tb testing.TB) { tb.Helper(); r.control(tb, "kill") }

// Pause stops the server with SIGSTOP: connections stay open, and nothing answers.
func (r *RedisServer) Pause(tb testing.TB) { tb.Helper(); r.control(tb, "pause") }

// Resume lets a paused server go on.
func (r *RedisServer) Resume(tb testing.TB) { tb.Helper(); r.control(tb, "resume") }

func (r *RedisServer) control(tb testing.TB, command string) {
	tb.Helper()
	if r.dir == "" {
		tb.Fatalf("testenv: %s on the shared server would break other tests; use OwnRedis", command)
	}
	control(tb, redisScript, r.dir, command, nil)
}
