package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRootHoldsTheScripts(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{kafkaScript, zooKeeperScript} {
		fi, err := os.Stat(filepath.Join(root, "scripts", "servers", name))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode()&0o111 == 0 {
			t.Errorf("%s can't be executed: mode %v", fi.Name(), fi.Mode())
		}
	}
}

func TestRootOutsideAModule(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := Root(); err == nil || !strings.Contains(err.Error(), "no go.mod") {
		t.Errorf("err = %v, want one that says that there is no go.mod", err)
	}
}

func TestScriptErrorsReachTheCaller(t *testing.T) {
	out, err := run(t.Context(), callTimeout, kafkaScript, "start", "--brokers", "2", "--dir", filepath.Join(t.TempDir(), "k"))
	if err == nil {
		t.Fatal("no error for two brokers")
	}
	if !strings.Contains(out, "--brokers must be 1 or 3") {
		t.Errorf("output %q doesn't have the script's message", out)
	}
}

func TestUnique(t *testing.T) {
	a, b := Unique("lines"), Unique("lines")
	if a == b || !strings.HasPrefix(a, "lines-") {
		t.Errorf("names %q and %q", a, b)
	}
}
