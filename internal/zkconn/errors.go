package zkconn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// ErrOutcomeUnknown says that a write may have been done or not: the connection ended, or time ran out, between the
// request and its answer.
var ErrOutcomeUnknown = errors.New("it may have been done or not")

// ErrClosed says that the Conn has been closed.
var ErrClosed = errors.New("the session has been closed")

// slowAnswer is how long an answer may take before the server counts as overloaded.
const slowAnswer = 2 * time.Second

// remedies says what to do about each failure.
var remedies = map[batch.Code]string{
	batch.CodeZKNoQuorum:   "start more than half of the ensemble's servers",
	batch.CodeZKRefused:    "start ZooKeeper, or correct zookeeper.servers",
	batch.CodeZKCut:        "look at the network and the firewalls between here and the servers",
	batch.CodeZKNoAnswer:   "look at the server: it may be stopped, out of memory, or waiting for its disk",
	batch.CodeZKOverloaded: "look at the server's disk, its outstanding requests (mntr) and its limits; take load from it",
	batch.CodeZKNotZK:      "correct host and port in zookeeper.servers, or the TLS settings",
	batch.CodeZKUnresolved: "correct the name in zookeeper.servers, or make it known to DNS",
	batch.CodeZKNoChroot:   "make the node, or correct zookeeper.chroot",
	batch.CodeZKNoAuth:     "correct zookeeper.auth and zookeeper.tls, or what the servers accept",
	batch.CodeZKNoRights:   "give the identity this right in the node's ACL, or use another one in zookeeper.auth",
	batch.CodeZKExpired:    "wait for the new session; if it happens again, raise zookeeper.session_timeout or find out why we weren't heard",
	batch.CodeZKTooLarge:   "make jute.maxbuffer larger at all servers, or the data smaller",
	batch.CodeZKVersion:    "upgrade ZooKeeper",
	batch.CodeZKEnsemble:   "run three or five servers",

	batch.CodeConfiguration: "correct the setting",
}

// precedence orders the causes by how much they say, where servers fail in different ways.
var precedence = []batch.Code{
	batch.CodeZKNoAuth, batch.CodeZKVersion, batch.CodeZKOverloaded, batch.CodeZKNoQuorum, batch.CodeZKNoAnswer, batch.CodeZKNotZK,
	batch.CodeZKCut, batch.CodeZKRefused, batch.CodeZKUnresolved, batch.CodeZKExpired,
}

// newError returns the error of a code, with its remedy.
func newError(kind batch.Kind, code batch.Code, err error) *batch.Error {
	return batch.NewError(kind, code, "zookeeper", err, remedies[code])
}

// Err returns what is wrong right now, as a *batch.Error that says since when, or nil. It asks nobody. Nil doesn't promise
// that the next call succeeds.
func (c *Conn) Err() error {
	if err := c.wrong(); err != nil {
		return err
	}
	return nil
}

func (c *Conn) wrong() *batch.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.session.State {
	case Closed:
		return newError(batch.Transient, batch.CodeUnavailable, ErrClosed)
	case Connected:
		return c.slow()
	case Connecting, Expired:
	}
	return c.away()
}

// slow tells whether the server that we are connected with is. Conn.mu is held.
func (c *Conn) slow() *batch.Error {
	l := c.line
	if wait, answering := l.waiting(); wait > slowAnswer {
		if answering {
			return newError(batch.Transient, batch.CodeZKOverloaded, fmt.Errorf("%s has let a request wait for %s", l.server, rounded(wait)))
		}
		return newError(batch.Transient, batch.CodeZKNoAnswer, fmt.Errorf("%s has answered nothing for %s", l.server, rounded(wait)))
	}
	if took := l.answered(); took > slowAnswer {
		return newError(batch.Transient, batch.CodeZKOverloaded, fmt.Errorf("%s took %s for its last answer", l.server, rounded(took)))
	}
	return nil
}

// away tells why there is no connection, nil if the first is only being made. Conn.mu is held.
func (c *Conn) away() *batch.Error {
	since := c.down.UTC().Format(time.RFC3339)
	if c.session.State == Expired && len(c.failures) == 0 {
		return newError(batch.Transient, batch.CodeZKExpired, fmt.Errorf("the session %#x has expired; a new one is being opened (no connection since %s)", c.session.ID, since))
	}
	if len(c.failures) == 0 {
		if c.loss == nil {
			return nil
		}
		return newError(batch.Transient, c.loss.code, fmt.Errorf("no connection since %s: %s: %s", since, c.session.Server, c.loss.text))
	}
	var texts []string
	worst := len(precedence)
	for _, server := range c.cfg.Servers {
		if f := c.failures[server]; f != nil {
			texts = append(texts, server+" "+f.text)
			if i := slices.Index(precedence, f.code); i >= 0 {
				worst = min(worst, i)
			}
		}
	}
	code := batch.CodeZKCut
	if worst < len(precedence) {
		code = precedence[worst]
	}
	what := fmt.Sprintf("no connection since %s: %s", since, strings.Join(texts, "; "))
	return newError(batch.Transient, code, errors.New(what))
}

// Warnings returns what doesn't keep us from working, and may one day: servers of the list that couldn't be used when they were
// last tried, while another is. Those that nobody has tried are not among them. The order is that of the list.
func (c *Conn) Warnings() []*batch.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session.State != Connected {
		return nil
	}
	var out []*batch.Error
	for _, server := range c.cfg.Servers {
		if f := c.aside[server]; f != nil && server != c.session.Server {
			out = append(out, newError(batch.Transient, f.code, fmt.Errorf("%s %s (at %s)", server, f.text, f.at.UTC().Format(time.RFC3339))))
		}
	}
	return out
}
