package scratch_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tridentd/tridentd/internal/scratch"
)

// TestMake: two that live don't touch each other, and the next removes what is dead, and nothing that isn't of its kind.
func TestMake(t *testing.T) {
	parent := t.TempDir()
	one, remove, err := scratch.Make(parent, "x-")
	if err != nil {
		t.Fatal(err)
	}
	// One whose process was killed, and what is none.
	dead, other := filepath.Join(parent, "x-dead"), filepath.Join(parent, "x-other")
	for _, dir := range []string{dead, other} {
		if err := os.MkdirAll(filepath.Join(dir, "db"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dead+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	two, remove2, err := scratch.Make(parent, "x-")
	if err != nil || two == one {
		t.Fatal(two, err)
	}
	left := func() (names []string) {
		all, err := filepath.Glob(filepath.Join(parent, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := left(); len(got) != 5 {
		t.Errorf("there are %q", got)
	}
	if err := errors.Join(remove(), remove2()); err != nil {
		t.Fatal(err)
	}
	if got := left(); len(got) != 1 || got[0] != other {
		t.Errorf("there are %q", got)
	}
}
