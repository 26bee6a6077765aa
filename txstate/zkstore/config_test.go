package zkstore

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
)

func TestACL(t *testing.T) {
	for _, tc := range []struct {
		entries string // separated by blanks
		auth    bool
		want    []zk.ACL
		bad     string // in the error; empty: none
	}{
		{"", false, zk.WorldACL(zk.PermAll), ""},
		{"", true, []zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}}, ""},
		{"auth:cdrwa world:r", true, []zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}, {Perms: zk.PermRead, Scheme: "world", ID: "anyone"}}, ""},
		{"world:anyone:cr", false, []zk.ACL{{Perms: zk.PermCreate | zk.PermRead, Scheme: "world", ID: "anyone"}}, ""},
		{"digest:u:aGFzaA==:rw", false, []zk.ACL{{Perms: zk.PermRead | zk.PermWrite, Scheme: "digest", ID: "u:aGFzaA=="}}, ""},
		{"ip:10.0.0.0/8:r", false, []zk.ACL{{Perms: zk.PermRead, Scheme: "ip", ID: "10.0.0.0/8"}}, ""},
		{"auth:r", false, nil, "without auth"},
		{"auth:me:r", true, nil, "has no id"},
		{"world", false, nil, "no rights"},
		{"world:", false, nil, "no rights"},
		{":r", false, nil, "no rights"},
		{"world:rx", false, nil, `"x" is no right`},
		{"world:rr", false, nil, "given twice"},
		{"world:me:r", false, nil, "only the id anyone"},
		{"digest:u:r", false, nil, "user:hash"},
		{"ip:r", false, nil, "needs an id"},
		{"kerberos:me:r", false, nil, "no scheme"},
	} {
		got, err := ParseACL(strings.Fields(tc.entries), tc.auth)
		switch {
		case tc.bad == "" && (err != nil || !reflect.DeepEqual(got, tc.want)):
			t.Errorf("%q: %v, %v, want %v", tc.entries, got, err, tc.want)
		case tc.bad != "" && (batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), tc.bad)):
			t.Errorf("%q: %v, %v, want an error with %q", tc.entries, got, err, tc.bad)
		}
	}
}

func TestValidate(t *testing.T) {
	ok := Config{Pipeline: "p", ID: "words"}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		bad    string
	}{
		{"defaults", func(*Config) {}, ""},
		{"root", func(c *Config) { c.Path = "/" }, ""},
		{"relative", func(c *Config) { c.Path = "a" }, "begin with /"},
		{"trailing", func(c *Config) { c.Path = "/a/" }, "empty part"},
		{"dots", func(c *Config) { c.Path = "/a/../b" }, "not absolute"},
		{"control", func(c *Config) { c.Path = "/a\x01" }, "character"},
		{"reserved", func(c *Config) { c.Path = "/zookeeper/x" }, "ZooKeeper itself"},
		{"no id", func(c *Config) { c.ID = "" }, "id:"},
		{"slash", func(c *Config) { c.ID = "a/b" }, "id:"},
		{"dot", func(c *Config) { c.ID = ".." }, "id:"},
		{"pipeline", func(c *Config) { c.Pipeline = "" }, "pipeline"},
		{"negative", func(c *Config) { c.UpdateInterval = -1 }, "update_interval"},
		{"crossed", func(c *Config) { c.RetryMin = time.Hour }, "above retry.max"},
	} {
		c := ok
		tc.change(&c)
		err := c.Validate()
		if tc.bad == "" && err != nil || tc.bad != "" && (batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), tc.bad)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.bad)
		}
	}
	root := Config{Path: "/", ID: "x"}
	if b := root.Base(); b != "/x" {
		t.Errorf("base %q", b)
	}
	if _, err := ParsePolicy("wait"); err == nil {
		t.Error("a policy wait")
	}
}
