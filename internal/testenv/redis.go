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
	process
	// Addr is host:port.
	Addr string
}

// Redis returns the server that the tests of this run share, or one of the test's own where there is none. Tests keep apart by keys
// that begin with a name of their own: see Unique.
func Redis(tb testing.TB) *RedisServer {
	tb.Helper()
	if addr := os.Getenv(RedisVar); addr != "" {
		return &RedisServer{Addr: addr, process: process{script: redisScript}}
	}
	return OwnRedis(tb)
}

// OwnRedis starts a server for this test alone.
func OwnRedis(tb testing.TB, opts ...Option) *RedisServer {
	tb.Helper()
	p, addr := ownServer(tb, redisScript, "tridentd-redis-", opts)
	return &RedisServer{Addr: addr, process: p}
}
