package zkstore

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/doctor"
)

func TestCheckClock(t *testing.T) {
	sent := time.Unix(1_764_590_000, 0)
	for _, tc := range []struct {
		stamped time.Time
		took    time.Duration
		level   doctor.Level
		text    string
	}{
		{sent, 0, doctor.OK, "the leader's clock agrees with this machine's, within 30s"},
		{sent.Add(30 * time.Second), 0, doctor.OK, "the leader's clock agrees with this machine's, within 30s"},
		{sent.Add(40 * time.Second), 20 * time.Second, doctor.OK, "the leader's clock agrees with this machine's, within 30s"}, // it may have been stamped late
		{sent.Add(3 * time.Minute), 0, doctor.Warn, "the leader's clock is 3m ahead of this machine's"},
		{sent.Add(-90 * time.Second), 2 * time.Second, doctor.Warn, "the leader's clock is 1m 31s behind this machine's"},
	} {
		c := &check{}
		c.clock(tc.stamped, sent, tc.took)
		if f := c.findings[0]; f.Level != tc.level || f.Text != tc.text {
			t.Errorf("stamped %s after: %+v", tc.stamped.Sub(sent), f)
		}
	}
}

func TestACLText(t *testing.T) {
	acl := []zk.ACL{{Perms: zk.PermAll, Scheme: "digest", ID: "app:secrethash"}, {Perms: zk.PermRead, Scheme: "world", ID: "anyone"}}
	if got, want := aclText(acl), "digest:app:cdrwa, world:anyone:r"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
