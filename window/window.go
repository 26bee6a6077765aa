// Package window says which window a time belongs to: every time lies in exactly one tumbling window, before 1970
// as after it. Windows are half-open, [start, start + size), and in UTC.
package window

import (
	"errors"
	"fmt"
	"time"
)

// Windows is a shape of windows. Make one with Tumbling.
type Windows struct {
	size, offset time.Duration
}

// Tumbling returns windows of one size that follow each other without gap or overlap. They are aligned to
// 1970-01-01T00:00:00Z, so that windows of 24 hours begin at midnight UTC.
func Tumbling(size time.Duration) Windows { return Windows{size: size} }

// Offset returns w moved by offset, which is at least 0 and less than the size.
func (w Windows) Offset(offset time.Duration) Windows {
	w.offset = offset
	return w
}

// Validate says what is wrong with w, if anything.
func (w Windows) Validate() error {
	switch {
	case w.size <= 0:
		return errors.New("the size of a window must be above 0, as 1h")
	case w.offset < 0 || w.offset >= w.size:
		return fmt.Errorf("the offset of a window must be from 0 to less than its size %s, not %s", w.size, w.offset)
	}
	return nil
}

// Size is the length of each window in nanoseconds.
func (w Windows) Size() int64 { return int64(w.size) }

// OffsetNanos is what Offset was given, in nanoseconds.
func (w Windows) OffsetNanos() int64 { return int64(w.offset) }

// Start returns the start of the window that holds a time; both in nanoseconds since 1970.
func (w Windows) Start(nanos int64) int64 { return Start(nanos, int64(w.size), int64(w.offset)) }

func (w Windows) String() string {
	if w.offset == 0 {
		return "tumbling " + w.size.String()
	}
	return fmt.Sprintf("tumbling %s, offset %s", w.size, w.offset)
}

// Start returns the start of the window that holds the time nanos: the greatest offset + k*size, k any integer, that
// isn't above it. All are nanoseconds, size > 0 and 0 <= offset < size. Where that start is earlier than an int64
// can tell (in the year 1677), it is the least int64.
func Start(nanos, size, offset int64) int64 {
	// % rounds towards zero: both corrections bring the time within its window to 0 or more, less than size.
	into := nanos % size
	if into < 0 {
		into += size
	}
	if into -= offset; into < 0 {
		into += size
	}
	if start := nanos - into; start <= nanos {
		return start
	}
	return -1 << 63
}
