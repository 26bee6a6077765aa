package zkconn

import (
	"encoding/binary"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
)

func TestSettings(t *testing.T) {
	ok := []string{"a:2181"}
	for _, tc := range []struct {
		name string
		cfg  Config
		bad  string // what the error says; empty: none
	}{
		{"least", Config{Servers: ok}, ""},
		{"all", Config{Servers: []string{"a:2181", "[::1]:2181"}, Chroot: "/a/b", User: "u", Password: "p"}, ""},
		{"root as chroot", Config{Servers: ok, Chroot: "/"}, ""},
		{"no servers", Config{}, "no servers"},
		{"no port", Config{Servers: []string{"a"}}, `"a" is not host:port`},
		{"no host", Config{Servers: []string{":2181"}}, `":2181" is not host:port`},
		{"relative chroot", Config{Servers: ok, Chroot: "a"}, "slash"},
		{"chroot with a slash behind", Config{Servers: ok, Chroot: "/a/"}, "ends with a slash"},
		{"chroot upwards", Config{Servers: ok, Chroot: "/a/.."}, `".."`},
		{"password alone", Config{Servers: ok, Password: "p"}, "no user"},
		{"user with a colon", Config{Servers: ok, User: "a:b"}, "colon"},
		{"short time-out", Config{Servers: ok, CallTimeout: 1}, "too short"},
		{"negative size", Config{Servers: ok, MaxBytes: -1}, "not a limit"},
	} {
		err := tc.cfg.complete()
		switch {
		case tc.bad == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.bad != "" && (err == nil || batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), tc.bad)):
			t.Errorf("%s: error %v, want one that says %q", tc.name, err, tc.bad)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("New takes settings without servers")
	}
}

func TestPaths(t *testing.T) {
	for _, p := range []string{"/", "/a", "/a/b c/ä.b", "/..a"} {
		if err := checkPath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"", "a", "/a/", "//", "/a//b", "/.", "/../a", "/a\x00", "/a\u0085", "/\ufff8"} {
		if checkPath(p) == nil {
			t.Errorf("%q is taken", p)
		}
	}
	for p, want := range map[string]string{"/a/b": "/a", "/a": "/", "/": "/"} {
		if got := parent(p); got != want {
			t.Errorf("parent of %s: %s, want %s", p, got, want)
		}
	}
	c := &Conn{cfg: Config{Chroot: "/a"}}
	if c.full("/") != "/a" || c.full("/b") != "/a/b" {
		t.Errorf("%s, %s", c.full("/"), c.full("/b"))
	}
}

// The first round over all servers has no pause; then each has one. A line that stood begins a new round, unless such lines
// end at once.
func TestOrderOfServers(t *testing.T) {
	now := time.Unix(1000, 0)
	h := &hosts{servers: []string{"a", "b", "c"}, now: func() time.Time { return now }, soon: time.Second, next: 1}
	next := func(server string, pause bool) {
		t.Helper()
		if s, p := h.Next(); s != server || p != pause {
			t.Errorf("next %s, pause %v; want %s, %v", s, p, server, pause)
		}
	}
	next("b", false)
	next("c", false)
	next("a", false)
	next("b", true)
	next("c", false)
	next("a", false)
	next("b", true)
	h.Connected()
	now = now.Add(time.Minute)
	next("c", false)
	next("a", false)
	next("b", false)
	next("c", true)
	h.Connected()
	next("a", false) // once is an accident
	h.Connected()
	next("b", true)
	h.Connected()
	next("c", true)
	h.Connected()
	now = now.Add(time.Minute)
	next("a", false)
	h.close()
	next("b", true)
	next("c", true)
}

// discard is a connection that takes everything and gives nothing.
type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// However what the server sends is cut into pieces, each answer confirms the request that it belongs to.
func TestAnswersConfirmTheirRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		c := &Conn{now: func() time.Time { return now }}
		l := &line{Conn: discard{}, owner: c, ready: true}
		c.line = l
		requests := rapid.IntRange(0, 20).Draw(t, "requests")
		var stream []byte
		frame := func(xid int32) {
			body := rapid.IntRange(0, 40).Draw(t, "body")
			stream = binary.BigEndian.AppendUint32(stream, uint32(4+body))
			stream = binary.BigEndian.AppendUint32(stream, uint32(xid))
			stream = append(stream, make([]byte, body)...)
		}
		answered := rapid.IntRange(0, requests).Draw(t, "answered")
		var sent time.Time
		for i := range requests {
			now = now.Add(time.Second)
			if i < answered {
				sent = now
			}
			if _, err := l.Write([]byte("request")); err != nil {
				t.Fatal(err)
			}
		}
		for i := range answered {
			for rapid.Bool().Draw(t, "event") {
				frame(xidEvent)
			}
			frame(int32(i + 1))
		}
		now = now.Add(time.Minute)
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "piece")
			l.scan(stream[:n])
			stream = stream[n:]
		}
		if got := c.session.Confirmed; !got.Equal(sent) {
			t.Fatalf("confirmed %v, want %v", got, sent)
		}
		wait, _ := l.waiting()
		if len(l.sent) != requests-answered || (wait > 0) != (answered < requests) {
			t.Fatalf("%d requests wait, for %v; want %d", len(l.sent), wait, requests-answered)
		}
		if answered > 0 && !c.session.LastHeard.Equal(now) {
			t.Fatalf("last heard %v, want %v", c.session.LastHeard, now)
		}
	})
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]struct {
		says   string // empty: nothing
		tooOld bool
	}{
		"3.3.6-1366786, built on 07/29/2012 06:22 GMT":    {"no transactions", true},
		"3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf": {"no corrections", false},
		"3.5.9-83df9301aa5c2a5d284a9940177808c01bc35cef":  {"ZOOKEEPER-3911, mended in 3.5.10", false},
		"3.5.10-0": {"no corrections", false},
		"3.6.2-0":  {"ZOOKEEPER-3911, mended in 3.6.3", false},
		"3.7.2-0":  {"no corrections", false},
		"3.8.3-0":  {"ZOOKEEPER-4785, mended in 3.8.4", false},
		"3.8.4-0":  {"", false},
		"3.9.1-0":  {"ZOOKEEPER-4785, mended in 3.9.2", false},
		"3.9.2-0":  {"", false},
		"3.9.3-0":  {"ZOOKEEPER-4925, mended in 3.9.4", false},
		"3.9.5-293c895a8d966a3ecb92872be4a1daf87d725da2": {"", false},
		"4.0.0": {"", false},
		"3.10.1-SNAPSHOT-0, built on 2027-01-01 00:00 UTC\n": {"", false},
	} {
		v, ok := parseVersion(text)
		if !ok {
			t.Errorf("%q isn't a version", text)
			continue
		}
		says, tooOld := v.complaint()
		if (says == "") != (want.says == "") || !strings.Contains(says, want.says) || tooOld != want.tooOld {
			t.Errorf("%s: %q, %v; want %q, %v", v, says, tooOld, want.says, want.tooOld)
		}
	}
	for _, text := range []string{"", "3.9", "a.b.c", "3.9.-1", "3.9.5.1"} {
		if v, ok := parseVersion(text); ok {
			t.Errorf("%q is taken for %s", text, v)
		}
	}
}

func TestMembers(t *testing.T) {
	config := "server.2=b:2888:3888:participant;0.0.0.0:2181\nserver.1=a:2888:3888:participant\nserver.3=c:2888:3888:observer;2181\nserver.4=d:2888:3888\nversion=0\n"
	if got, want := parseMembers([]byte(config)), []string{"a:2888:3888", "b:2888:3888", "d:2888:3888"}; !slices.Equal(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
	if got := parseMembers(nil); got != nil {
		t.Errorf("members of nothing: %q", got)
	}
}

func TestFindings(t *testing.T) {
	down := func(code batch.Code) Server {
		return Server{Address: "x:1", Err: newError(batch.Transient, code, os.ErrInvalid)}
	}
	up := Server{Address: "u:1", Mode: "follower", Version: "3.9.5-0", Took: time.Millisecond}
	for _, tc := range []struct {
		name   string
		report Report
		want   []string // level and code
	}{
		{"a single server", Report{Servers: []Server{{Address: "u:1", Mode: "standalone", Version: "3.9.5-0"}}}, []string{"ok ", "warn zk_ensemble"}},
		{"three", Report{Servers: []Server{up, up, up}, Members: []string{"1", "2", "3"}}, []string{"ok ", "ok ", "ok ", "ok "}},
		{"one of three down", Report{Servers: []Server{up, down(batch.CodeZKRefused), up}, Members: []string{"1", "2", "3"}}, []string{"ok ", "warn zk_refused", "ok ", "ok "}},
		{"a wrong port among them", Report{Servers: []Server{up, down(batch.CodeZKNotZK), up}, Members: []string{"1", "2", "3"}}, []string{"ok ", "error zk_not_zookeeper", "ok ", "ok "}},
		{"all down", Report{Servers: []Server{down(batch.CodeZKRefused), down(batch.CodeZKNoQuorum)}}, []string{"error zk_refused", "error zk_no_quorum"}},
		{"one of five named", Report{Servers: []Server{up}, Members: []string{"1", "2", "3", "4", "5"}}, []string{"ok ", "ok ", "warn zk_ensemble"}},
		{"two", Report{Servers: []Server{up, up}, Members: []string{"1", "2"}}, []string{"ok ", "ok ", "warn zk_ensemble"}},
		{"too old", Report{Servers: []Server{{Address: "u:1", Version: "3.3.6-1"}}, Members: []string{"1", "2", "3"}}, []string{"ok ", "error zk_version", "ok ", "warn zk_ensemble"}},
		{"with a fault", Report{Servers: []Server{{Address: "u:1", Version: "3.9.3-1"}}, Members: []string{"1"}}, []string{"ok ", "warn zk_version", "warn zk_ensemble"}},
		{"requests wait", Report{Servers: []Server{{Address: "u:1", Outstanding: 500}, up, up}}, []string{"ok ", "warn zk_overloaded", "ok ", "ok ", "ok "}},
	} {
		var got []string
		for _, f := range tc.report.Findings() {
			got = append(got, f.Level.String()+" "+string(f.Code))
			if f.Subject == "" || f.Text == "" || (f.Remedy == "") != (f.Level == doctor.OK) {
				t.Errorf("%s: finding %+v", tc.name, f)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// codes are all codes of ZooKeeper that package batch has.
func codes(t *testing.T) []batch.Code {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../batch/error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []batch.Code
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(s, "zk_") {
				out = append(out, batch.Code(s))
			}
		}
		return true
	})
	if len(out) < 10 {
		t.Fatalf("only %d codes in package batch", len(out))
	}
	slices.Sort(out)
	return out
}

// Each code has a remedy and one row in the table of failures, and there are no others.
func TestTableOfFailures(t *testing.T) {
	all := codes(t)
	for _, code := range all {
		if remedies[code] == "" {
			t.Errorf("%s has no remedy", code)
		}
	}
	text, err := os.ReadFile("../../docs/reference/zookeeper.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Failures\n")
	if !ok {
		t.Fatal("the page has no section Failures")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []batch.Code
	for _, m := range regexp.MustCompile("(?m)^\\|[^|]+\\| `(zk_[a-z_]+)` \\|[^|]+\\|[^|]+\\|[^|]+\\|$").FindAllStringSubmatch(section, -1) {
		rows = append(rows, batch.Code(m[1]))
	}
	slices.Sort(rows)
	if !slices.Equal(rows, all) {
		t.Errorf("the table has the codes %v, package batch %v", rows, all)
	}
}
