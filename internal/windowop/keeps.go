package windowop

import (
	"time"

	"github.com/tridentd/tridentd/internal/plan"
)

var _, _, _, _ plan.Keeping = (*Session)(nil), (*Count)(nil), (*Join)(nil), (*Expiring)(nil)

// Keeps is part of plan.Keeping.
func (o *Session) Keeps() (waiting, output string) {
	return "while a session is open", plan.Duration(time.Duration(o.Retention)) + " of event time after the session has closed"
}

// Keeps is part of plan.Keeping.
func (o *Count) Keeps() (waiting, output string) {
	return "until a window is full; for good what tells how many values a key has had", plan.Duration(time.Duration(o.Retention)) + " of batch time after the window is full"
}

// Keeps is part of plan.Keeping.
func (o *Join) Keeps() (waiting, output string) {
	return plan.Duration(time.Duration(o.Within)) + " of event time, until no other row can meet it any more", ""
}
