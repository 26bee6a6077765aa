package model

import "time"

// TTL is for how long a row lives after its last change, in seconds; the zero TTL is for ever. It goes by event time, or by the batches'
// clock.
type TTL struct {
	Seconds int64
	ByBatch bool
}

// expire forgets the rows of a state whose time has come, before the batch's own values are taken.
func (m *Machine) expire(i int) {
	c := m.kept[i]
	for key, until := range c.until { // order: each by itself
		if until <= m.ttlClock(i) && m.mutation != RowsLiveOn {
			delete(c.until, key)
			delete(c.rows, key)
			delete(c.table, key)
		}
	}
}

// touch notes that a value of event time at has changed a row.
func (m *Machine) touch(i int, key string, at int64) {
	ttl, c := m.p.Nodes[i].TTL, m.kept[i]
	if ttl.Seconds == 0 {
		return
	}
	until, lives := c.until[key]
	switch {
	case ttl.ByBatch:
		at = m.now
	case !lives: // a late value counts as of now
		at = max(at, m.mark(i))
	}
	if at += ttl.Seconds * int64(time.Second); !lives || at > until && m.mutation != ChangesDontCount {
		c.until[key] = at
	}
}

func (m *Machine) ttlClock(i int) int64 {
	if m.p.Nodes[i].TTL.ByBatch {
		return m.now
	}
	return m.mark(i)
}
