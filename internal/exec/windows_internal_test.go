package exec

import (
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
