package zkstore

import "time"

// tenure is how long a lock may be believed to be held, by a clock that runs on while the process is stopped.
//
// The servers keep a session for its time-out after they last heard of it. What the client knows is when it sent a
// request that has been answered: they heard of it then or later, so that the session lives until then plus the time-out at least.
// The time of the answer says nothing: it may have waited in a socket while the process was stopped.
//
// Invariant: while state says valid or doubtful, no server that keeps time has ended the session.
type tenure struct {
	timeout   time.Duration // of the session: the least that a server has granted it
	confirmed time.Duration // when the latest answered request was sent
}

// tenancy is what a tenure says at one moment.
type tenancy uint8

const (
	valid    tenancy = iota // surely held
	doubtful                // held, but an answer is overdue: nothing is begun
	expired                 // somebody else may hold it
)

const (
	// beatsPerTimeout is how often in a session's time-out the lock is confirmed.
	beatsPerTimeout = 6
	// marginParts is the part of a time-out that is kept back: the servers count in ticks, and a follower tells the leader only at
	// the next tick which sessions it has heard of.
	marginParts = 6
)

// confirm takes note that a request sent at the given time has been answered.
func (t *tenure) confirm(sent time.Duration) { t.confirmed = max(t.confirmed, sent) }

// grant takes note of the time-out that the present connection's server has granted the session: not each grants what is asked for.
// It never grows, as the next one may grant less again.
func (t *tenure) grant(timeout time.Duration) {
	if timeout > 0 {
		t.timeout = min(t.timeout, timeout)
	}
}

func (t *tenure) state(now time.Duration) tenancy {
	switch since := now - t.confirmed; {
	case since >= t.limit():
		return expired
	case since >= t.timeout/2:
		return doubtful
	}
	return valid
}

// limit is how long a lock is believed to be held without another confirmation.
func (t *tenure) limit() time.Duration { return t.timeout - t.timeout/marginParts }

// left is the time until the limit; it may be negative.
func (t *tenure) left(now time.Duration) time.Duration { return t.confirmed + t.limit() - now }

// beat is the time between two confirmations.
func (t *tenure) beat() time.Duration { return t.timeout / beatsPerTimeout }
