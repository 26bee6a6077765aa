package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// lease is a lock that a test grants, holds in doubt and takes away.
type lease struct {
	txstate.Lease

	mu    sync.Mutex
	doubt bool
	err   error
	fresh []error // what is answered to those who ask afresh, before what Pass says; errTestLost stays
	moved chan struct{}
}

func newTestLease() *lease { return &lease{moved: make(chan struct{})} }

func (l *lease) set(doubt bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt, l.err = doubt, err
	close(l.moved)
	l.moved = make(chan struct{})
}

func (l *lease) Pass(ctx context.Context) error {
	for {
		l.mu.Lock()
		doubt, err, moved := l.doubt, l.err, l.moved
		l.mu.Unlock()
		if err != nil || !doubt {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *lease) Confirm(ctx context.Context) error {
	l.mu.Lock()
	var err error
	if len(l.fresh) > 0 {
		err, l.fresh = l.fresh[0], l.fresh[1:]
	}
	if errors.Is(err, errTestLost) {
		l.err = err
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.Pass(ctx)
}

// staleLease is one that is lost, and doesn't know yet.
func staleLease() *lease {
	l := newTestLease()
	l.fresh = []error{errTestLost}
	return l
}

var errTestLost = batch.NewError(batch.Permanent, batch.CodeLockLost, "lock", errors.New("the session has ended"), "start again")

// countOf counts the requests of a kind from here on.
func (w *world) countOf(key kmsg.Key) func() int {
	var mu sync.Mutex
	n := 0
	w.fake.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		n++
		return nil, nil, false
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func TestFencedWrites(t *testing.T) {
	inWorld(t, func(w *world) {
		txns := w.countOf(kmsg.EndTxn)
		inits := w.countOf(kmsg.InitProducerID)
		m := w.mirror()
		m.Under(newTestLease())
		m.Committed(3, 2, at(3, 20, 20, 20))
		time.Sleep(time.Second)
		w.want("0:20@3 1:20@3 2:20@3")
		m.Committed(4, 2, at(4, 40, 20, 40))
		time.Sleep(time.Second)
		w.want("0:40@4 1:20@4 2:40@4")
		if n := txns(); n != 2 {
			t.Errorf("%d transactions for two writes", n)
		}
		if n := inits(); n != 1 {
			t.Errorf("the producer was claimed %d times", n)
		}
		w.mu.Lock()
		plain := len(w.commits)
		w.mu.Unlock()
		if plain != 0 {
			t.Errorf("%d offsets were committed plainly", plain)
		}
		if st := m.Status(); st.Err != nil || st.Txid != 4 || st.Pending {
			t.Errorf("status %+v", st)
		}
		w.closed(m)
	})
}

// While the lease is in doubt nothing is sent; once it is lost nothing ever is, and the status says why.
func TestFencedWaitsForTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		txns := w.countOf(kmsg.AddOffsetsToTxn)
		l := newTestLease()
		m := w.mirror()
		m.Under(l)
		m.Committed(3, 2, at(3, 20, 20, 20))
		time.Sleep(time.Second)
		w.want("0:20@3 1:20@3 2:20@3")
		l.set(true, nil)
		m.Committed(4, 2, at(4, 30, 30, 30))
		time.Sleep(time.Minute)
		if n := txns(); n != 1 {
			t.Errorf("%d transactions were begun, the second in doubt", n)
		}
		if st := m.Status(); batch.CodeOf(st.Err) != batch.CodeZKNoAnswer {
			t.Errorf("in doubt the status says %v", st.Err)
		}
		l.set(false, nil)
		time.Sleep(time.Minute)
		w.want("0:30@4 1:30@4 2:30@4")
		l.set(false, errTestLost)
		m.Committed(5, 2, at(5, 50, 50, 50))
		time.Sleep(time.Minute)
		w.want("0:30@4 1:30@4 2:30@4")
		if st := m.Status(); batch.CodeOf(st.Err) != batch.CodeLockLost {
			t.Errorf("after the loss the status says %v", st.Err)
		}
		m.Close(context.Background()) //nolint:errcheck // what couldn't be written has been told
	})
}

// A successor has claimed the producer: the brokers refuse what comes, the claim is not repeated, and the mirror ends.
func TestFencedDeposed(t *testing.T) {
	for _, refused := range []*kerr.Error{kerr.ProducerFenced, kerr.InvalidProducerEpoch} {
		t.Run(refused.Message, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.mirror()
				m.Under(staleLease())
				m.Committed(3, 2, at(3, 20, 20, 20))
				time.Sleep(time.Second)
				w.want("0:20@3 1:20@3 2:20@3")
				inits := 0
				var conditional bool
				w.fake.ControlKey(int16(kmsg.AddOffsetsToTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
					w.fake.KeepControl()
					resp := r.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
					resp.ErrorCode = refused.Code
					return resp, nil, true
				})
				w.fake.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
					w.fake.KeepControl()
					w.mu.Lock()
					inits++
					conditional = r.(*kmsg.InitProducerIDRequest).ProducerID >= 0
					w.mu.Unlock()
					resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
					resp.ErrorCode = refused.Code
					return resp, nil, true
				})
				m.Committed(4, 2, at(4, 30, 30, 30))
				time.Sleep(10 * time.Minute)
				w.mu.Lock()
				claimed, onCondition := inits, conditional
				w.mu.Unlock()
				if claimed != 1 || !onCondition {
					t.Errorf("the producer was claimed again %d times (conditional on its epoch: %t)", claimed, onCondition)
				}
				if st := m.Status(); batch.CodeOf(st.Err) != batch.CodeLockLost || !errors.Is(st.Err, errDeposed) {
					t.Errorf("the status says %v", st.Err)
				}
				m.Close(context.Background()) //nolint:errcheck // what couldn't be written has been told
			})
		})
	}
}

// A predecessor's claim lands after ours, and has us fenced: as soon as the lease is confirmed, the producer is claimed anew.
func TestFencedByALateClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newTestLease()
		l.fresh = []error{context.DeadlineExceeded, batch.NewError(batch.Transient, batch.CodeZKRefused, "lock", errors.New("away"), "wait")}
		m := w.mirror()
		m.Under(l)
		m.Committed(3, 2, at(3, 20, 20, 20))
		time.Sleep(time.Second)
		w.want("0:20@3 1:20@3 2:20@3")
		late := &fence{lease: newTestLease(), id: TransactionalID(pipeline, source), producer: -1}
		if err := late.claim(context.Background(), w.client()); err != nil {
			t.Fatal(err)
		}
		var onCondition, without int
		w.fake.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			w.mu.Lock()
			defer w.mu.Unlock()
			if r.(*kmsg.InitProducerIDRequest).ProducerID < 0 {
				without++
				return nil, nil, false
			}
			onCondition++ // a broker refuses an epoch that is past, the fake one doesn't
			resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode = kerr.ProducerFenced.Code
			return resp, nil, true
		})
		m.Committed(4, 2, at(4, 30, 30, 30))
		time.Sleep(time.Minute)
		w.want("0:30@4 1:30@4 2:30@4")
		if st := m.Status(); st.Err != nil || st.Txid != 4 || st.Pending || st.Failures[batch.CodeZKNoAnswer] != 1 || st.Failures[batch.CodeZKRefused] != 1 {
			t.Errorf("status %+v", st)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if onCondition != 3 || without != 1 {
			t.Errorf("the producer was claimed %d times on condition and %d times without, want 3 and 1", onCondition, without)
		}
	})
}

// A failure in the middle leaves nothing behind: the producer is claimed again, on condition, and everything is written.
func TestFencedRecovers(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn} {
		t.Run(fmt.Sprint(key.Name()), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var once sync.Once
				w.fake.ControlKey(int16(key), func(kmsg.Request) (_ kmsg.Response, err error, handled bool) {
					w.fake.KeepControl()
					once.Do(func() { err, handled = errors.New("cut"), true })
					return nil, err, handled
				})
				m := w.mirror()
				m.Under(newTestLease())
				m.Committed(3, 2, at(3, 20, 21, 22))
				time.Sleep(time.Minute)
				w.want("0:20@3 1:21@3 2:22@3")
				if st := m.Status(); st.Err != nil || st.Txid != 3 {
					t.Errorf("status %+v", st)
				}
				if n := w.log.count("another process"); n != 0 {
					t.Errorf("our own half-written offsets are taken for somebody else's:\n%s", w.log)
				}
				w.closed(m)
			})
		})
	}
}

// A consumer's offsets are its own under a lock as well, though a broker would let a transaction write over them.
func TestFencedMember(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"classic": nil, "assigned by the brokers": {kgo.ServerSideBalancer()}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.mirror(func(c *Config) { c.RetryMax = 2 * time.Second })
				m.Under(newTestLease())
				if opts == nil {
					m.Committed(1, 1, at(1, 5, 5, 5))
					time.Sleep(time.Second)
				}
				consumer := w.client(append(opts, kgo.ClientID("intruder"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())...)
				time.Sleep(10 * time.Second)
				before := w.show()
				m.Committed(2, 1, at(2, 9, 9, 9))
				time.Sleep(10 * time.Second)
				w.want(before)
				st := m.Status()
				if batch.CodeOf(st.Err) != batch.CodeGroupMembers || st.Failures[batch.CodeGroupMembers] < 3 || !strings.Contains(st.Err.Error(), "intruder") {
					t.Errorf("status %+v", st)
				}
				consumer.Close()
				time.Sleep(3 * time.Second)
				w.want("0:9@2 1:9@2 2:9@2")
				if n := w.log.count("[WARN]"); n != 1 {
					t.Errorf("%d warnings:\n%s", n, w.log)
				}
				w.closed(m)
			})
		})
	}
}

// A user who may not claim the producer, or no longer, learns what the group holds nevertheless. Other refusals are no answer.
func TestFencedCarriedWithoutAClaim(t *testing.T) {
	for refused, code := range map[*kerr.Error]batch.Code{
		kerr.TransactionalIDAuthorizationFailed: "",
		kerr.ClusterAuthorizationFailed:         "",
		kerr.NotCoordinator:                     batch.CodeGroupCoordinator,
	} {
		t.Run(refused.Message, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.put(stamp{Pipeline: pipeline, Source: source, Txid: 5, Epoch: 2}.encode(), 7)
				w.fake.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
					w.fake.KeepControl()
					resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
					resp.ErrorCode = refused.Code
					return resp, nil, true
				})
				m := w.mirror()
				m.Under(newTestLease())
				carried, err := m.Carried(context.Background())
				switch {
				case (err == nil) != (code == ""), err != nil && batch.CodeOf(err) != code:
					t.Errorf("Carried: %v, want code %q", err, code)
				case err == nil && (len(carried) != 1 || carried[0].Txid != 5 || carried[0].Next != 7):
					t.Errorf("carried %v", carried)
				}
			})
		})
	}
}
