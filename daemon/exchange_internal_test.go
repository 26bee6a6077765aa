//go:build linux

package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// TestExchange: two directories change places, neither of them empty.
func TestExchange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "name"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := exchange(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "b", "b": "a"} {
		if got, err := os.ReadFile(filepath.Join(dir, name, "name")); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	if err := exchange(filepath.Join(dir, "a"), filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("exchanged with nothing: %v", err)
	}
}
