package window

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	_ "time/tzdata" // for machines without a list of zones
)

// Layout is where windows of time lie. All but the zone are nanoseconds: Size above 0, Slide from 0 (which stands for Size) to
// Size, Offset from 0 to less than the slide. A layout isn't used by two goroutines at once.
type Layout struct {
	Size, Slide, Offset int64
	Zone                *time.Location // nil: UTC

	// The starts found last, and the times that have the same ones: looking up a zone's rules takes long.
	last     []int64
	from, to int64
}

// every is the distance of two starts.
func (l *Layout) every() int64 {
	if l.Slide > 0 {
		return l.Slide
	}
	return l.Size
}

// Start returns the start of the last window that holds the time nanos.
func (l *Layout) Start(nanos int64) int64 {
	if l.Zone == nil {
		return Start(nanos, l.every(), l.Offset)
	}
	return l.reached(l.wallStart(nanos))
}

// End returns where the window with the given start ends; the greatest int64 where that is later than one can tell.
func (l *Layout) End(start int64) int64 {
	if l.Zone == nil {
		return add(start, l.Size)
	}
	return l.reached(add(l.wallStart(start), l.Size))
}

// Starts appends the starts of all windows that hold the time nanos, the earliest first.
func (l *Layout) Starts(dst []int64, nanos int64) []int64 {
	if l.Zone != nil {
		return append(dst, l.zoned(nanos)...)
	}
	n, every := len(dst), l.every()
	start := Start(nanos, every, l.Offset)
	for {
		dst = append(dst, start)
		if start < math.MinInt64+every || add(start-every, l.Size) <= nanos {
			break
		}
		start -= every
	}
	slices.Reverse(dst[n:])
	return dst
}

// zoned is Starts in a time zone.
func (l *Layout) zoned(nanos int64) []int64 {
	if len(l.last) > 0 && nanos >= l.from && nanos < l.to {
		return l.last
	}
	every := l.every()
	wall := l.wallStart(nanos)
	l.last = l.last[:0]
	l.from, l.to = l.reached(wall), l.reached(add(wall, every))
	for {
		end := l.reached(add(wall, l.Size))
		if end <= nanos {
			l.from = max(l.from, end)
			break
		}
		l.to = min(l.to, end)
		// Two windows begin at once where clocks skip the first one's start.
		if start := l.reached(wall); len(l.last) == 0 || start != l.last[len(l.last)-1] {
			l.last = append(l.last, start)
		}
		if wall < math.MinInt64+every {
			break
		}
		wall -= every
	}
	slices.Reverse(l.last)
	return l.last
}

// wallStart returns, as the zone's clocks show it, the start of the last window that has begun by the time nanos.
func (l *Layout) wallStart(nanos int64) int64 {
	_, off := time.Unix(0, nanos).In(l.Zone).Zone()
	every := l.every()
	wall := Start(add(nanos, int64(off)*int64(time.Second)), every, l.Offset)
	// Clocks that were put back show less than they did before.
	for n := add(wall, every); n > wall && l.reached(n) <= nanos; n = add(n, every) {
		wall = n
	}
	return wall
}

// furthest is more than any clock is ahead of UTC.
const furthest = 24 * int64(time.Hour)

// reached returns the first time at which the zone's clocks show wall, or more if they skip it.
func (l *Layout) reached(wall int64) int64 {
	if wall <= math.MinInt64+furthest || wall >= math.MaxInt64-furthest {
		return wall
	}
	at := time.Unix(0, wall-furthest).In(l.Zone)
	for {
		_, off := at.Zone()
		_, end := at.ZoneBounds()
		hit := time.Unix(0, wall-int64(off)*int64(time.Second))
		if end.IsZero() || hit.Before(end) {
			return max(hit.UnixNano(), at.UnixNano())
		}
		at = end
	}
}

// add is a + b for b >= -24h, at most the greatest int64.
func add(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	if b < 0 && a < math.MinInt64-b {
		return math.MinInt64
	}
	return a + b
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

var zones sync.Map // of *time.Location, by name

// LoadZone returns a time zone by its name in the IANA's list. The machine's own zone is none: results would differ from one to the next.
func LoadZone(name string) (*time.Location, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*time.Location), nil
	}
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("%q is no time zone; name one as Europe/Berlin", name)
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	zones.Store(name, z)
	return z, nil
}
