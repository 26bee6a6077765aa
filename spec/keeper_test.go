package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/emitter"
)

// kept is a pipeline with settings under zookeeper, which begin in line 3.
func kept(settings string) string {
	return "pipeline: words\nzookeeper:\n" + settings + `
sources:
  s:
    generate: {kind: words, count: 1}
streams:
  x: {from: s, steps: [{aggregate: {n: count()}}]}
`
}

func TestKeeper(t *testing.T) {
	for _, tc := range []struct {
		name, settings string
		line           string // of the plan
		locks          bool
	}{
		{"defaults", "  servers: a:2181", "zookeeper: record at /trident/words, written every 2s; while it is away: continue", false},
		{"everything", `
  servers: ["a:2181,b:2181", "c:2181"]
  chroot: /prod
  path: /storm
  id: counts
  role: lock
  update_interval: 0s
  session_timeout: 20s
  connect_timeout: 2s
  call_timeout: 3s
  retry: {min: 1s, max: 2s, for: 1m}
  auth: {user: app, password: "a:b"}
  acl: ["auth:cdrwa", "world:r"]
  tls: {server_name: zk}`, "zookeeper: record and lock at /prod/storm/counts, written after each batch; while it is away: stall", true},
		{"stall", "  servers: [a:2181]\n  while_away: stall\n  tls: {enabled: false}\n  path: /", "zookeeper: record at /words, written every 2s; while it is away: stall", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := parsed(t, kept(tc.settings))
			pl, err := p.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if pl.Keeper == nil || pl.Keeper.Describe != tc.line || pl.Keeper.Lock != nil != tc.locks {
				t.Fatalf("the keeper is %+v", pl.Keeper)
			}
			if !strings.Contains(strings.Join(pl.Lines, "\n"), tc.line) || strings.Contains(pl.Text, "zookeeper") {
				t.Errorf("the plan says %q, its text %q", pl.Lines, pl.Text)
			}
			m, err := pl.Keeper.Record(emitter.Env{})
			if err != nil {
				t.Fatal(err)
			}
			if want := "zookeeper " + strings.Fields(tc.line)[strings.Count(tc.line[:strings.Index(tc.line, " at ")], " ")+2]; m.Name() != strings.TrimSuffix(want, ",") {
				t.Errorf("the record is %q, want %q", m.Name(), want)
			}
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	pl, err := parsed(t, strings.Replace(kept(""), "zookeeper:\n", "", 1)).Plan()
	if err != nil || pl.Keeper != nil {
		t.Errorf("a keeper of a pipeline that names none: %+v, %v", pl.Keeper, err)
	}
}

func TestKeeperMistakes(t *testing.T) {
	for _, tc := range []struct {
		settings     string
		line, column int
		says         string
	}{
		{"  chroot: /a", 2, 1, "zookeeper needs servers"},
		{"  servers: a", 3, 12, `servers: "a" is not host:port`},
		{"  servers: [a:1, a:1]", 3, 12, "listed twice"},
		{"  servers: \" , \"", 3, 12, "servers: none is given"},
		{"  servers: a:1\n  chroot: prod", 4, 11, "chroot:"},
		{"  servers: a:1\n  path: /a//b", 4, 9, "path:"},
		{"  servers: a:1\n  id: a/b", 4, 7, "id:"},
		{"  servers: a:1\n  role: leader", 4, 9, "leader"},
		{"  servers: a:1\n  role: lock\n  while_away: continue", 5, 15, "while_away:"},
		{"  servers: a:1\n  while_away: wait", 4, 15, "wait"},
		{"  servers: a:1\n  retry: {min: 1m}", 4, 16, "above retry.max"},
		{"  servers: a:1\n  auth: {user: u}", 4, 9, "password"},
		{"  servers: a:1\n  auth: {user: u, password: p, password_file: f}", 4, 29, "exactly one"},
		{"  servers: a:1\n  auth: {user: \"u:v\", password: p}", 4, 16, "digest user"},
		{"  servers: a:1\n  acl: [\"world:x\"]", 4, 8, `"x" is no right`},
		{"  servers: a:1\n  acl: [\"auth:r\"]", 4, 8, "without auth"},
		{"  servers: a:1\n  tls: {cert_file: c}", 4, 20, "belong together"},
		{"  servers: a:1\n  sesion_timeout: 1s", 4, 3, "sesion_timeout"},
		{"  servers: a:1\n  session_timeout: 0s", 4, 20, "more than 0"},
	} {
		_, err := Parse("p.yaml", []byte(kept(tc.settings)), Options{})
		var ps Problems
		if !errors.As(err, &ps) || len(ps) != 1 {
			t.Errorf("%q: %v", tc.settings, err)
			continue
		}
		if p := ps[0]; p.Line != tc.line || p.Column != tc.column || !strings.Contains(p.Msg, tc.says) {
			t.Errorf("%q: %d:%d: %s; want %d:%d and %q", tc.settings, p.Line, p.Column, p.Msg, tc.line, tc.column, tc.says)
		}
	}
}
