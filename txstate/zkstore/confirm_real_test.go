//go:build realzk

package zkstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
)

// A confirmation waits for an answer of its own: where the servers don't answer it fails although the lease still lets pass, and where
// the lock was taken away it says so.
func TestRealConfirm(t *testing.T) {
	z := testenv.ZooKeeper(t)
	chroot := z.Chroot(t, "lock")
	p := testenv.NewProxy(t, z.Addr)
	lease := acquire(t, testLock(t, p.Addr, chroot, 30*time.Second)).(*Lease)
	confirmed := func() time.Duration {
		lease.mu.Lock()
		defer lease.mu.Unlock()
		return lease.tenure.confirmed
	}
	for range 3 {
		called := lease.lock.now()
		if err := lease.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := confirmed(); at < called {
			t.Fatalf("the last confirmation was %s before the call", called-at)
		}
	}
	p.SwallowReplies(true)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := lease.Pass(ctx); err != nil {
		t.Fatalf("a lease that was confirmed just now doesn't let pass: %v", err)
	}
	if err := lease.Confirm(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an answer it is confirmed: %v", err)
	}
	p.SwallowReplies(false)
	by := z.Conn(t)
	if err := by.Delete(chroot+lease.node, -1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	if err := lease.Confirm(ctx); batch.CodeOf(err) != batch.CodeLockLost {
		t.Errorf("the lock was taken away, and is confirmed: %v", err)
	}
}
