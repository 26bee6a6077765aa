package exec

import (
	"bytes"
	"testing"

	"github.com/tridentd/tridentd/internal/value"
)

// FuzzWindow: a row that is taken for a window has a start that its closing can be reckoned from.
func FuzzWindow(f *testing.F) {
	f.Add(value.AppendKeyTime(value.AppendKey(nil, value.StringOf("per_minute")), 60e9), []byte{0})
	f.Add(value.AppendKey(nil, value.StringOf("per_minute")), []byte{1})
	f.Add(value.AppendKey(value.AppendKey(nil, value.StringOf("s")), value.IntOf(1)), []byte{0x80})
	f.Fuzz(func(t *testing.T, key, val []byte) {
		name, start, closed, err := decodeWindow(key, val)
		if err != nil {
			return
		}
		at, rest, err := value.DecodeKey([]byte(start))
		if err != nil || len(rest) > 0 || at.Kind() != value.Time || closed < 0 || len(name) > len(key) {
			t.Errorf("%x is window %q of %q, closed at %d: %v", key, start, name, closed, err)
		}
	})
}

// FuzzTimer: a key that is taken for a timer is the one that is written for it.
func FuzzTimer(f *testing.F) {
	f.Add(timerKey("s", 60e9, []byte("k"))[len(timersOf("s")):])
	f.Add(value.AppendKey(nil, value.IntOf(1)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		wake, key, err := decodeTimer(b)
		if err != nil {
			return
		}
		again, k, err := decodeTimer(timerKey("s", wake, key)[len(timersOf("s")):])
		if err != nil || again != wake || !bytes.Equal(k, key) {
			t.Errorf("%x came back as %d, %x, %v", b, again, k, err)
		}
	})
}
