package testenv

import (
	"net"
	"testing"
)

// An address is free again once its listener is closed, and no two listeners have the same.
func TestListenAgain(t *testing.T) {
	l, other := Listen(t), Listen(t)
	defer other.Close()
	addr := l.Addr().String()
	if other.Addr().String() == addr {
		t.Fatalf("%s twice", addr)
	}
	if port := l.Addr().(*net.TCPAddr).Port; port < firstPort || port >= lastPort {
		t.Errorf("port %d", port)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
