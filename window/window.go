// Package window says which windows a value belongs to: which windows of time hold its time, before 1970 as after it and across
// the changes of a zone's clock, or how the values of a key are counted off. Windows of time are half-open, from their start to
// less than their end, and in UTC unless a zone is set.
package window

import (
	"errors"
	"fmt"
	"time"
)

// Kind tells shapes of windows apart.
type Kind uint8

// The shapes of windows.
const (
	OfTime    Kind = iota // tumbling and sliding windows: their borders are fixed
	OfSession             // sessions: their borders are where a key's values leave a gap
	OfCount               // windows of so many values of a key
)

// Windows is a shape of windows. Make one with Tumbling, Sliding, Session, Count or SlidingCount.
type Windows struct {
	kind                Kind
	size, slide, offset time.Duration // of sessions size is the gap
	n, step             int64
	zone                string
	byBatch             bool
}

// Tumbling returns windows of one size that follow each other without gap or overlap. They are aligned to
// 1970-01-01T00:00:00Z, so that windows of 24 hours begin at midnight UTC.
func Tumbling(size time.Duration) Windows { return Windows{size: size} }

// Sliding returns windows of one size of which one begins every slide, aligned as those of Tumbling: a time lies in several of
// them. The slide need not divide the size.
func Sliding(size, slide time.Duration) Windows {
	w := Windows{size: size, slide: slide}
	if slide <= 0 {
		w.slide = -1
	}
	return w
}

// Session returns windows that a key's values make: values less than gap apart belong together. A session begins at its first
// value's time and ends gap after that of its last.
func Session(gap time.Duration) Windows { return Windows{kind: OfSession, size: gap} }

// Count returns windows of n values each: the first n of a key, the next n, and so on, in the order in which the ledger has
// them.
func Count(n int64) Windows { return Windows{kind: OfCount, n: n, step: n} }

// SlidingCount returns windows of n values of which one begins every slide values of a key.
func SlidingCount(n, slide int64) Windows { return Windows{kind: OfCount, n: n, step: slide} }

// Offset returns w moved by offset, which is at least 0 and less than the size, or the slide if there is one.
func (w Windows) Offset(offset time.Duration) Windows {
	w.offset = offset
	return w
}

// Zone returns w with its borders where clocks in a time zone show them, as "Europe/Berlin": windows of whole days begin at
// midnight there and last 23 or 25 hours when the clocks change. The size is a number of whole days, or divides a day; so is
// the slide. Where an hour comes twice, a border within it lies in the first one; where an hour is left out, so are the
// windows that would lie in it. The rules of the zone are those that this machine knows.
func (w Windows) Zone(name string) Windows {
	w.zone = name
	return w
}

// ByBatchTime returns w for the time of batches in place of that of events: nothing is ever late, and a window closes when the
// batches' clock has passed its end.
func (w Windows) ByBatchTime() Windows {
	w.byBatch = true
	return w
}

const day = 24 * time.Hour

// Validate says what is wrong with w, if anything.
func (w Windows) Validate() error {
	switch w.kind {
	case OfCount:
		switch {
		case w.n < 1:
			return fmt.Errorf("a window must have room for one value at least, not %d", w.n)
		case w.step < 1 || w.step > w.n:
			return fmt.Errorf("a window of %d values must begin every 1 to %d values, not %d", w.n, w.n, w.step)
		case w.offset != 0 || w.zone != "" || w.byBatch:
			return errors.New("windows of values know no time: they have no offset, no zone and no clock")
		}
		return nil
	case OfSession:
		switch {
		case w.size <= 0:
			return errors.New("the gap between sessions must be above 0, as 30m")
		case w.offset != 0 || w.zone != "" || w.byBatch:
			return errors.New("sessions begin with their values: they have no offset, no zone and no other clock")
		}
		return nil
	case OfTime:
	}
	every := w.size
	switch {
	case w.size <= 0:
		return errors.New("the size of a window must be above 0, as 1h")
	case w.slide < 0 || w.slide > w.size:
		return fmt.Errorf("a window must begin at least every %s, its size, and the slide must be above 0", w.size)
	case w.slide > 0:
		every = w.slide
	}
	if w.offset < 0 || w.offset >= every {
		return fmt.Errorf("the offset of a window must be from 0 to less than %s, not %s", every, w.offset)
	}
	if w.zone == "" {
		return nil
	}
	if _, err := LoadZone(w.zone); err != nil {
		return err
	}
	for _, d := range []time.Duration{w.size, every} {
		if d%day != 0 && day%d != 0 {
			return fmt.Errorf("windows of a time zone are whole days or divide a day, and %s doesn't", d)
		}
	}
	return nil
}

// Kind is the shape of w.
func (w Windows) Kind() Kind { return w.kind }

// Size is the length of each window in nanoseconds; of sessions, the gap between them.
func (w Windows) Size() int64 { return int64(w.size) }

// Slide is how often a sliding window begins, in nanoseconds; 0: once the one before has ended.
func (w Windows) Slide() int64 { return int64(w.slide) }

// OffsetNanos is what Offset was given, in nanoseconds.
func (w Windows) OffsetNanos() int64 { return int64(w.offset) }

// ZoneName is what Zone was given; empty for UTC.
func (w Windows) ZoneName() string { return w.zone }

// BatchTime tells whether the windows go by the time of batches.
func (w Windows) BatchTime() bool { return w.byBatch }

// Values are how many values a window of values has, and every how many one begins.
func (w Windows) Values() (n, every int64) { return w.n, w.step }

// Start returns the start of the last window that holds a time; both in nanoseconds since 1970. It is for windows of time.
func (w Windows) Start(nanos int64) int64 {
	l := w.layout()
	return l.Start(nanos)
}

// Starts returns the starts of all windows that hold a time, the earliest first.
func (w Windows) Starts(nanos int64) []int64 {
	l := w.layout()
	return l.Starts(nil, nanos)
}

// End returns where the window with a start ends, in nanoseconds since 1970.
func (w Windows) End(start int64) int64 {
	l := w.layout()
	return l.End(start)
}

func (w Windows) layout() Layout {
	l := Layout{Size: int64(w.size), Slide: int64(w.slide), Offset: int64(w.offset)}
	if w.zone != "" {
		zone, err := LoadZone(w.zone)
		if err != nil {
			panic("window: " + err.Error())
		}
		l.Zone = zone
	}
	return l
}

func (w Windows) String() string {
	var s string
	switch {
	case w.kind == OfCount && w.step == w.n:
		return fmt.Sprintf("count %d", w.n)
	case w.kind == OfCount:
		return fmt.Sprintf("count %d, every %d", w.n, w.step)
	case w.kind == OfSession:
		return "session " + w.size.String()
	case w.slide != 0:
		s = fmt.Sprintf("sliding %s, every %s", w.size, w.slide)
	default:
		s = "tumbling " + w.size.String()
	}
	if w.offset != 0 {
		s += ", offset " + w.offset.String()
	}
	if w.zone != "" {
		s += ", zone " + w.zone
	}
	if w.byBatch {
		s += ", by batch time"
	}
	return s
}
