package zookeeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/zkstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nobody is an address at which nothing listens.
const nobody = "127.0.0.1:1"

func TestCopies(t *testing.T) {
	base := New("a:1")
	all := base.Chroot("/c").Path("/p").ID("i").Stall().UpdateInterval(0).Timeouts(time.Second, 2*time.Second, 3*time.Second).
		Retry(time.Second, time.Minute, time.Hour).Auth(Auth{User: "u", Password: "p"}).ACL("auth:r").TLS(TLS{ServerName: "s"}).Lock()
	if c := base.cfg; len(c.Servers) != 1 || c.Chroot != "" || c.Lock || c.Auth != (Auth{}) || c.TLS != (TLS{}) || c.ACL != nil || c.UpdateInterval != 2*time.Second {
		t.Errorf("a derived keeper changed its base: %+v", c)
	}
	s, err := all.settings("words")
	if err != nil {
		t.Fatal(err)
	}
	if c := s.store; c.Base() != "/p/i" || c.Chroot != "/c" || c.WhileAway != zkstore.Stall || c.UpdateInterval != 0 || c.RetryMin != time.Second ||
		c.RetryMax != time.Minute || c.RetryFor != time.Hour || len(c.ACL) != 1 || c.ACL[0].Scheme != "auth" || c.Pipeline != "words" {
		t.Errorf("the record's settings are %+v", c)
	}
	if c := s.conn; c.SessionTimeout != time.Second || c.ConnectTimeout != 2*time.Second || c.CallTimeout != 3*time.Second || c.User != "u" || c.Chroot != "/c" {
		t.Errorf("the connection's settings are %+v", c)
	}
	if !all.Locks() || base.Locks() {
		t.Error("Locks")
	}
	if d := all.Describe("words"); d != "zookeeper: record and lock at /c/p/i, written after each batch; while it is away: stall" || strings.Contains(d, "a:1") {
		t.Errorf("described as %q", d)
	}
}

func TestMistakes(t *testing.T) {
	for name, k := range map[string]*Keeper{
		"servers":            New(),
		"servers:":           New("a"),
		"chroot":             New("a:1").Chroot("c"),
		"path":               New("a:1").Path("/a/"),
		"id":                 New("a:1").ID("a/b"),
		"while_away":         FromConfig(Config{Servers: []string{"a:1"}, WhileAway: "wait"}),
		"while_away:":        FromConfig(Config{Servers: []string{"a:1"}, WhileAway: "continue", Lock: true}),
		"session_timeout":    New("a:1").Timeouts(-1, 0, 0),
		"retry.min":          New("a:1").Retry(time.Hour, 0, 0),
		"update_interval":    New("a:1").UpdateInterval(-1),
		"auth.user":          New("a:1").Auth(Auth{Password: "p"}),
		"auth.password":      New("a:1").Auth(Auth{User: "u"}),
		"acl":                New("a:1").ACL("r"),
		"tls.cert_file":      New("a:1").TLS(TLS{CertFile: "c"}),
		"tls.ca_file":        New("a:1").TLS(TLS{CAFile: "missing"}),
		"tls.cert_file:":     New("a:1").TLS(TLS{CertFile: "missing", KeyFile: "missing"}),
		"auth.password_file": New("a:1").Auth(Auth{User: "u", PasswordFile: "missing"}),
	} {
		_, err := k.NewRecord("words", emitter.Env{Dir: t.TempDir()})
		if batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), strings.TrimSuffix(name, ":")+":") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := k.NewLock("words", emitter.Env{Dir: t.TempDir()}); err == nil {
			t.Errorf("%s: a lock", name)
		}
	}
}

// TestPasswordFile: a secret in a file lies beside the pipeline's, and its line end isn't part of it.
func TestPasswordFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("a:b \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := New("a:1").Auth(Auth{User: "u", PasswordFile: "secret"})
	s, err := k.settings("words")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := k.connConfig(s, emitter.Env{Dir: dir})
	if err != nil || cfg.Password != "a:b " {
		t.Errorf("password %q, %v", cfg.Password, err)
	}
}

// TestOneSession: the record and the lock of a run have one session; it ends with the last of them, and the next run has
// another one.
func TestOneSession(t *testing.T) {
	k := New(nobody).Lock()
	m, err := k.NewRecord("words", emitter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := k.NewLock("words", emitter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	first := k.shared.conn
	if k.shared.users != 2 || m.Name() != "zookeeper /trident/words" {
		t.Errorf("%d users of the session of %s", k.shared.users, m.Name())
	}
	if _, ok := m.(txstate.Recorder); !ok {
		t.Errorf("a %T is no recorder", m)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if k.shared.conn != first {
		t.Error("the session ended with its first user")
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if k.shared.conn != nil || k.shared.users != 0 {
		t.Error("the session outlives its users")
	}
	m, err = k.NewRecord("words", emitter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if k.shared.conn == first {
		t.Error("a session that has ended is used again")
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
