package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports of Listen lie below those that Linux gives to outgoing connections and to who asks for any port, and above those that
// scripts/servers picks.
const firstPort, lastPort = 30_100, 32_700

// Listen listens on 127.0.0.1, at a port that nobody is given who doesn't ask for it: closed, it can be listened on again later.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := listen()
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return l
}

func listen() (l net.Listener, err error) {
	for range 100 {
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort)))
		if err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no port from %d to %d is free: %w", firstPort, lastPort, err)
}
