package zkconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
)

// largeRequest is the size from which a cut line is held against the size of the request.
const largeRequest = 64 << 10

// Answers of servers that the client library has no names for.
const (
	errUnimplemented = -6
	errQuota         = -125
	errThrottled     = -127
)

// call is one request.
type call struct {
	name  string // of the operation
	path  string // the whole one
	right string // that it needs, and of which node
	write bool
	size  int
}

type sessionKey struct{}

// InSession returns a context whose calls are made in the session of this number, or fail with CodeZKExpired. A call is
// never made in a later one, even if it waits for a connection when the session ends.
func InSession(ctx context.Context, number uint64) context.Context {
	return context.WithValue(ctx, sessionKey{}, number)
}

// full is the path from the root.
func (c *Conn) full(p string) string {
	if c.cfg.Chroot == "" {
		return p
	}
	if p == "/" {
		return c.cfg.Chroot
	}
	return c.cfg.Chroot + p
}

// do makes a call, again where it is certain that that can't do harm, until CallTimeout or ctx ends.
func do[T any](ctx context.Context, c *Conn, op call, request func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if err := checkPath(op.path); err != nil {
		return none, newError(batch.Permanent, batch.CodeConfiguration, fmt.Errorf("%s: %w", op.name, err))
	}
	if op.size > c.cfg.MaxBytes {
		return none, newError(batch.Permanent, batch.CodeZKTooLarge,
			fmt.Errorf("%s %s: the request has %d bytes, the limit is %d", op.name, op.path, op.size, c.cfg.MaxBytes))
	}
	limited, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	for {
		g, err := c.connection(limited, ctx, op)
		if err != nil {
			return none, err
		}
		answer := make(chan result, 1)
		go func() {
			defer c.leave()
			defer c.watch()()
			value, err := request(g.zk)
			answer <- result{value, err}
		}()
		var r result
		select {
		case r = <-answer:
		case <-limited.Done():
			return none, c.tooLate(ctx, op, op.write)
		}
		if r.err == nil {
			c.sized(op, true)
			return r.value, nil
		}
		again, err := c.judge(op, g, r.err)
		if !again || limited.Err() != nil {
			return r.value, err
		}
	}
}

// connection waits for a connection and a place, and returns the client of the connection's session. The place is given
// back by leave, when the library has answered, which may be after the caller has gone.
func (c *Conn) connection(limited, ctx context.Context, op call) (*generation, error) {
	select {
	case c.places <- struct{}{}:
	case <-limited.Done():
		return nil, c.tooLate(ctx, op, false)
	}
	for {
		g, changed, err := c.enter(ctx, op)
		if g != nil {
			return g, nil
		}
		if err == nil {
			select {
			case <-changed:
				continue
			case <-limited.Done():
				err = c.tooLate(ctx, op, false)
			}
		}
		<-c.places
		return nil, err
	}
}

// enter returns the client of the session that is connected, or what closes when that may have changed.
func (c *Conn) enter(ctx context.Context, op call) (*generation, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session.State == Closed {
		return nil, nil, newError(batch.Transient, batch.CodeUnavailable, fmt.Errorf("%s %s: %w", op.name, op.path, ErrClosed))
	}
	if want, ok := ctx.Value(sessionKey{}).(uint64); ok && (c.session.Number != want || c.session.State == Expired) {
		return nil, nil, newError(batch.Transient, batch.CodeZKExpired, fmt.Errorf("%s %s: the session that it belongs to has expired", op.name, op.path))
	}
	if c.session.State != Connected {
		return nil, c.changed, nil
	}
	c.wg.Add(1)
	return c.gen, nil, nil
}

// leave ends what connection began.
func (c *Conn) leave() {
	<-c.places
	c.wg.Done()
}

// tooLate is the error of a call whose time has run out. sent tells whether a write may have been done.
func (c *Conn) tooLate(ctx context.Context, op call, sent bool) error {
	unknown := func(format string, args ...any) error {
		err := fmt.Errorf(format, args...)
		if sent {
			err = fmt.Errorf("%w: %w", err, ErrOutcomeUnknown)
		}
		return err
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return unknown("%s %s: %w", op.name, op.path, context.Cause(ctx))
	}
	if e := c.wrong(); e != nil {
		e.Err = unknown("%s %s: %w", op.name, op.path, e.Err)
		return e
	}
	limit := rounded(c.cfg.CallTimeout)
	if ctx.Err() != nil {
		limit = "the time that was left"
	}
	code := batch.CodeZKNoAnswer
	if sent && c.answering() {
		code = batch.CodeZKOverloaded
	}
	return newError(batch.Transient, code, unknown("%s %s: no answer within %s", op.name, op.path, limit))
}

// answering tells whether the server that we are connected with answers requests, if not all.
func (c *Conn) answering() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line == nil {
		return false
	}
	_, answering := c.line.waiting()
	return answering
}

// watch has the line of a request broken when that has had no answer for CallTimeout, so that the library gives it up, too. It
// returns what ends the watch. A request that the library has carried over to another line gets the time anew.
func (c *Conn) watch() (stop func()) {
	var (
		mu   sync.Mutex
		done bool
		t    *time.Timer
		on   = c.current()
	)
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(c.cfg.CallTimeout, func() {
		mu.Lock()
		defer mu.Unlock()
		now := c.current()
		switch {
		case done:
		case now != nil && now == on:
			c.breakLine(now)
		default:
			on = now
			t.Reset(c.cfg.CallTimeout)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		done = true
		t.Stop()
	}
}

func (c *Conn) current() *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}

// breakLine ends a line that lets a request wait.
func (c *Conn) breakLine(l *line) {
	f := &failure{code: batch.CodeZKNoAnswer, text: "a request had no answer within " + rounded(c.cfg.CallTimeout)}
	if _, answering := l.waiting(); answering {
		f.code = batch.CodeZKOverloaded
	}
	l.end(f)
}

// judge tells whether to make a call again, and names what it has failed with.
func (c *Conn) judge(op call, g *generation, err error) (again bool, named error) {
	if bad, ok := errors.AsType[*culprit](err); ok {
		op.path, op.right, err = bad.path, bad.right, bad.err
	}
	what := func(format string, args ...any) error {
		return fmt.Errorf("%s %s: %w", op.name, op.path, fmt.Errorf(format, args...))
	}
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNotEmpty),
		errors.Is(err, zk.ErrNoChildrenForEphemerals):
		c.sized(op, true)
		return false, fmt.Errorf("%s %s: %w", op.name, op.path, err)
	case errors.Is(err, zk.ErrNoAuth):
		return false, newError(batch.Transient, batch.CodeZKNoRights, what("%s may not: it needs the right %s: %w", c.Identity(), op.right, err))
	case errors.Is(err, zk.ErrInvalidACL):
		return false, newError(batch.Permanent, batch.CodeConfiguration, what("the servers don't accept the ACL for %s: %w", c.Identity(), err))
	case errors.Is(err, zk.ErrAuthFailed):
		return false, newError(batch.Transient, batch.CodeZKNoAuth, what("%w", err))
	case errors.Is(err, zk.ErrSessionExpired):
		return false, newError(batch.Transient, batch.CodeZKExpired, what("%w", err))
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return true, c.unavailable(op, g, false) // it wasn't sent, or was ignored
	case errors.Is(err, zk.ErrShortBuffer):
		return false, newError(batch.Permanent, batch.CodeZKTooLarge, what("%w", err))
	case errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrInvalidFlags), errors.Is(err, zk.ErrBadArguments):
		return false, newError(batch.Permanent, batch.CodeConfiguration, what("%w", err))
	}
	switch serverCode(err) {
	case errNeedsAuth:
		return false, newError(batch.Transient, batch.CodeZKNoAuth, what("the server takes requests from authenticated sessions only, and this one is %s", c.Identity()))
	case errThrottled:
		return false, newError(batch.Transient, batch.CodeZKOverloaded, what("the server throttles requests, and has not done this one"))
	case errQuota:
		return false, newError(batch.Transient, batch.CodeZKTooLarge, what("a quota of the servers forbids it"))
	case errUnimplemented:
		return false, newError(batch.Transient, batch.CodeZKVersion, what("the server doesn't know this operation"))
	case 0:
	default:
		return false, newError(batch.Transient, batch.CodeUnavailable, what("%w", err))
	}
	// What is left are ends of the connection: under a request, nobody knows what became of it.
	return !op.write, c.unavailable(op, g, op.write)
}

// unavailable is the error of a call whose line has ended.
func (c *Conn) unavailable(op call, g *generation, unknown bool) error {
	e := c.ended(g)
	e.Err = fmt.Errorf("%s %s: %w", op.name, op.path, e.Err)
	if unknown {
		if n := c.sized(op, false); n > 1 {
			e.Code, e.Remedy = batch.CodeZKTooLarge, remedies[batch.CodeZKTooLarge]
			e.Err = fmt.Errorf("%s %s: the line was cut %d times in a row under a request of %d bytes: that may be more than the server's jute.maxbuffer", op.name, op.path, n, op.size)
		}
		e.Err = fmt.Errorf("%w: %w", e.Err, ErrOutcomeUnknown)
	}
	return e
}

// ended says why the line of a session has ended.
func (c *Conn) ended(g *generation) *batch.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.session.State == Closed:
		return newError(batch.Transient, batch.CodeUnavailable, ErrClosed)
	case g != c.gen:
		return newError(batch.Transient, batch.CodeZKExpired, errors.New("the session has expired"))
	case c.session.State != Connected:
		if e := c.away(); e != nil {
			return e
		}
	}
	return newError(batch.Transient, batch.CodeZKCut, errors.New("the connection was lost"))
}

// sized counts the lines in a row that ended under a large request, and returns their number.
func (c *Conn) sized(op call, done bool) int {
	if op.size < largeRequest {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cuts++; done {
		c.cuts = 0
	}
	return c.cuts
}

// serverCode is the number of an error that the client library has no name for, 0 if err is none.
func serverCode(err error) int {
	if text, ok := strings.CutPrefix(err.Error(), "unknown error: "); ok {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	}
	return 0
}
