//go:build realredis

package testenv

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"
)

// ask sends a line to a server and returns the first line of its answer.
func ask(addr, line string, limit time.Duration) (string, error) {
	c, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // the answer is there
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "%s\r\n", line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func TestSharedRedis(t *testing.T) {
	r, key := Redis(t), Unique("a")
	for _, c := range [][2]string{{"SET " + key + " 7", "+OK\r\n"}, {"INCR " + key, ":8\r\n"}, {"DEL " + key, ":1\r\n"}} {
		if got, err := ask(r.Addr, c[0], callTimeout); err != nil || got != c[1] {
			t.Errorf("%s: %q, %v", c[0], got, err)
		}
	}
}

// What was answered is there after a crash; a server that hangs doesn't answer.
func TestOwnRedisFaults(t *testing.T) {
	r := OwnRedis(t, Set("maxmemory-policy", "noeviction"))
	if got, err := ask(r.Addr, "SET a 1", callTimeout); err != nil || got != "+OK\r\n" {
		t.Fatalf("%q, %v", got, err)
	}
	r.Kill(t)
	if _, err := ask(r.Addr, "PING", callTimeout); err == nil {
		t.Error("a server that was killed answers")
	}
	r.Start(t)
	if got, err := ask(r.Addr, "INCR a", callTimeout); err != nil || got != ":2\r\n" {
		t.Errorf("%q, %v", got, err)
	}
	r.Pause(t)
	if got, err := ask(r.Addr, "PING", 300*time.Millisecond); err == nil {
		t.Errorf("a server that hangs answers %q", got)
	}
	r.Resume(t)
	if got, err := ask(r.Addr, "PING", callTimeout); err != nil || got != "+PONG\r\n" {
		t.Errorf("%q, %v", got, err)
	}
}
