//go:build realzk

package zkconn

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/testenv"
)

func diagnose(t *testing.T, cfg Config, servers ...string) (Report, []doctor.Finding) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cfg.Servers = servers
	r, err := Diagnose(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, r.Findings()
}

// finding returns the one with this code, and fails if it isn't there exactly once.
func finding(t *testing.T, all []doctor.Finding, code batch.Code) doctor.Finding {
	t.Helper()
	var found []doctor.Finding
	for _, f := range all {
		if f.Code == code {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d findings with code %q, want 1: %+v", len(found), code, all)
	}
	return found[0]
}

func TestDiagnoseASingleServer(t *testing.T) {
	z := testenv.ZooKeeper(t)
	r, all := diagnose(t, Config{}, z.Servers()...)
	s := r.Servers[0]
	if s.Err != nil || s.Mode != "standalone" || !strings.HasPrefix(s.Version, "3.") || s.Took <= 0 || len(s.Resolved) != 1 {
		t.Errorf("server: %+v", s)
	}
	if f := finding(t, all, batch.CodeZKEnsemble); f.Level != doctor.Warn || !strings.Contains(f.Text, "single server") {
		t.Errorf("ensemble: %+v", f)
	}
}

func TestDiagnoseAnEnsemble(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	servers := z.Servers()
	cfg := Config{ConnectTimeout: 2 * time.Second}

	r, all := diagnose(t, cfg, servers...)
	modes := map[string]int{}
	for i, s := range r.Servers {
		if s.Err != nil || s.Address != servers[i] {
			t.Errorf("server %d: %+v", i, s)
		}
		modes[s.Mode]++
	}
	if modes["leader"] != 1 || modes["follower"] != 2 || len(r.Members) != 3 {
		t.Errorf("modes %v, members %v", modes, r.Members)
	}
	for _, f := range all {
		if f.Level != doctor.OK {
			t.Errorf("finding %+v", f)
		}
	}

	// Two of the three names.
	_, all = diagnose(t, cfg, servers[:2]...)
	if f := finding(t, all, batch.CodeZKEnsemble); f.Level != doctor.Warn || !strings.Contains(f.Text, "names 2 of the ensemble's 3") {
		t.Errorf("incomplete list: %+v", f)
	}

	// A follower hangs, the others don't.
	leader := z.Leader(t)
	follower := leader%3 + 1
	z.Pause(t, follower)
	_, all = diagnose(t, cfg, servers...)
	if f := finding(t, all, batch.CodeZKNoAnswer); f.Level != doctor.Warn || !strings.HasSuffix(f.Subject, servers[follower-1]) {
		t.Errorf("follower paused: %+v", f)
	}
	z.Resume(t, follower)

	// The leader hangs: until the others notice, they open no session.
	z.Pause(t, leader)
	_, all = diagnose(t, cfg, servers...)
	told := 0
	for _, f := range all {
		if f.Code == batch.CodeZKNoAnswer && strings.Contains(f.Text, "the leader may hang") {
			told++
		}
	}
	if told != 2 {
		t.Errorf("leader paused: %d followers say so, want 2: %+v", told, all)
	}
	z.Resume(t, leader)

	// One alone serves nobody.
	z.Kill(t, 1, 2)
	until(t, "the last server stops serving", func() bool { return z.Mode(t, 3) == "" })
	_, all = diagnose(t, cfg, servers...)
	if f := finding(t, all, batch.CodeZKNoQuorum); f.Level != doctor.Error || !strings.HasSuffix(f.Subject, servers[2]) || f.Remedy == "" {
		t.Errorf("without quorum: %+v", f)
	}
	refused := 0
	for _, f := range all {
		if f.Code == batch.CodeZKRefused && f.Level == doctor.Error {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d servers refuse, want 2: %+v", refused, all)
	}
}

// An even number: here of four, of which one is never there.
func TestDiagnoseAnEvenEnsemble(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3), testenv.Set("server.4", "127.0.0.1:1:2"))
	_, all := diagnose(t, Config{}, z.Servers()...)
	var texts []string
	for _, f := range all {
		if f.Code == batch.CodeZKEnsemble && f.Level == doctor.Warn {
			texts = append(texts, f.Text)
		}
	}
	if len(texts) != 2 || !strings.Contains(texts[0], "4 servers: an even number, which survives the loss of 1") || !strings.Contains(texts[1], "3 of the ensemble's 4") {
		t.Errorf("findings %q", texts)
	}
}

func TestDiagnoseASlowServer(t *testing.T) {
	z := testenv.ZooKeeper(t)
	p := testenv.NewProxy(t, z.Servers()[0])
	p.Delay(slowAnswer/2 + 100*time.Millisecond)
	_, all := diagnose(t, Config{ConnectTimeout: 8 * time.Second}, p.Addr)
	if f := finding(t, all, batch.CodeZKOverloaded); f.Level != doctor.Warn {
		t.Errorf("%+v", f)
	}
}

// Without permission for four-letter words a session tells.
func TestDiagnoseWithoutWords(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Set("4lw.commands.whitelist", "srvr"))
	r, _ := diagnose(t, Config{}, z.Servers()...)
	if r.Servers[0].Err != nil || r.Servers[0].Mode != "standalone" {
		t.Errorf("with srvr alone: %+v", r.Servers[0])
	}
}
