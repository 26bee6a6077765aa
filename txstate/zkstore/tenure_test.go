package zkstore

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A server that keeps a session for its time-out after it last heard of it has never ended it while the tenure says valid or
// doubtful, whatever requests and answers are delayed or lost, and however long the process is stopped in between.
func TestTenureNeverOutlivesTheSession(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timeout := time.Duration(rapid.IntRange(1000, 40_000).Draw(t, "timeout")) * time.Millisecond
		ms := func(label string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, most.Milliseconds()).Draw(t, label)) * time.Millisecond
		}
		type answer struct{ sent, arrives time.Duration }
		var now time.Duration
		heard := now // when the server last heard of the session
		c := tenure{timeout: timeout}
		var waiting []answer
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // a request, whose answer may be lost
				to, back := ms("to", timeout), ms("back", 2*timeout)
				if at := now + to; at < heard+timeout { // else the server knows the session no more
					heard = max(heard, at)
					if rapid.Bool().Draw(t, "answered") {
						waiting = append(waiting, answer{now, at + back})
					}
				}
			case 1: // time passes, in which the process works
				now += ms("passes", timeout/4)
			case 2: // the process is stopped
				now += ms("stopped", 3*timeout)
			case 3: // what has arrived is read, late or not
				for len(waiting) > 0 && waiting[0].arrives <= now {
					c.confirm(waiting[0].sent)
					waiting = waiting[1:]
				}
			}
			if s := c.state(now); s != expired && now >= heard+timeout {
				t.Fatalf("at %s the lock is believed to be held (%d); the server has ended the session at %s", now, s, heard+timeout)
			}
		}
	})
}

func TestTenureOutlivesAShortLoss(t *testing.T) {
	c := tenure{timeout: 10 * time.Second, confirmed: 100 * time.Second}
	// At worst the loss begins just before a confirmation, and the answer takes another beat.
	silent := c.beat() + time.Second + c.beat()
	for _, step := range []struct {
		after time.Duration
		want  tenancy
	}{{0, valid}, {silent, valid}, {5 * time.Second, doubtful}, {8 * time.Second, doubtful}, {8334 * time.Millisecond, expired}, {time.Hour, expired}} {
		if got := c.state(c.confirmed + step.after); got != step.want {
			t.Errorf("%s after the last confirmation: %d, want %d", step.after, got, step.want)
		}
	}
	c.confirm(90 * time.Second) // an answer that was overtaken
	if c.confirmed != 100*time.Second {
		t.Errorf("an older answer moved the confirmation to %s", c.confirmed)
	}
}

func TestClockRunsOn(t *testing.T) {
	a := sinceBoot()
	for deadline := time.Now().Add(5 * time.Second); sinceBoot() <= a; {
		if time.Now().After(deadline) {
			t.Fatal("the clock stands still")
		}
	}
}
