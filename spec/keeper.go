package spec

import (
	"context"
	"strings"
	"time"

	connect "github.com/tridentd/tridentd/connect/zookeeper"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/txstate"
)

func keeperField() *field {
	return &field{name: "zookeeper", kind: kindObject, doc: "Keeps the record of what has committed in ZooKeeper, too, or has the pipeline run under a lock there. See [zookeeper.md](zookeeper.md).", fields: []*field{
		{name: "servers", kind: kindList, required: true, item: &field{kind: kindString}, doc: "The ensemble's servers (host:port). One element may hold several, separated by commas.", example: `servers: ["${ZK_SERVERS}"]`},
		{name: "chroot", kind: kindString, def: "none", doc: "The path below which everything lies."},
		{name: "path", kind: kindString, def: "/trident", doc: "The path below the chroot (Storm's zkPath)."},
		{name: "id", kind: kindString, def: "the pipeline's name", doc: "The name of the pipeline's node below the path (Storm's spoutId): everything lies below chroot, path and id."},
		{name: "role", kind: kindEnum, enum: []string{"record", "lock"}, def: "record", doc: "`record`: ZooKeeper shows where the pipeline stands. `lock`: it also says which process may run it."},
		{name: "while_away", kind: kindEnum, enum: []string{"continue", "stall"}, def: "continue", doc: "What becomes of batches while ZooKeeper can't be written: they go on and the record catches up, or none commits. With `role: lock` always `stall`."},
		{name: "update_interval", kind: kindDuration, def: "2s", doc: "The least time between two writes of the record; `0s` writes after each batch."},
		{name: "session_timeout", kind: kindDuration, def: "10s", min: 1, doc: "The session's time-out. The servers have the last word."},
		{name: "connect_timeout", kind: kindDuration, def: "5s", min: 1, doc: "How long a connection to a server may take."},
		{name: "call_timeout", kind: kindDuration, def: "10s", min: 1, doc: "How long a request may take, the wait for a connection included."},
		{name: "retry", kind: kindObject, doc: "How writing is tried again when it fails.", fields: []*field{
			{name: "min", kind: kindDuration, def: "100ms", min: 1, doc: "The first back-off; it doubles from failure to failure."},
			{name: "max", kind: kindDuration, def: "30s", min: 1, doc: "The longest back-off. A connection that is up again isn't kept waiting."},
			{name: "for", kind: kindDuration, def: "0s", doc: "How long a failure may last: after that a pipeline that stalls stops with the cause, one that continues goes on without the record. `0s`: for ever."},
		}},
		{name: "auth", kind: kindObject, doc: "A digest identity.", fields: []*field{
			{name: "user", kind: kindString, required: true, doc: "The user's name."},
			{name: "password", kind: kindString, doc: "The password; rather take it from the environment or a file.", example: "password: ${ZK_PASSWORD}"},
			{name: "password_file", kind: kindString, doc: "A file that holds the password."},
		}},
		{name: "acl", kind: kindList, item: &field{kind: kindString}, def: "`auth:cdrwa` with `auth`, else `world:cdrwa`", doc: "The ACL of the nodes that are created: entries `scheme:id:rights`, without the id for `world` and `auth`. Nodes that exist keep theirs.", example: `acl: ["auth:cdrwa", "world:r"]`},
		{name: "tls", kind: kindObject, doc: "Encrypted connections; an empty `tls: {}` trusts the system's certificate authorities.", fields: []*field{
			{name: "enabled", kind: kindBool, def: "true", doc: "Switches TLS off where it is `false`."},
			{name: "ca_file", kind: kindString, doc: "Certificate authorities to trust, in PEM form, instead of the system's."},
			{name: "cert_file", kind: kindString, doc: "The client's certificate, in PEM form."},
			{name: "key_file", kind: kindString, doc: "The key of the client's certificate, in PEM form."},
			{name: "server_name", kind: kindString, def: "the server's host", doc: "The name that the servers' certificates must carry."},
			{name: "insecure_skip_verify", kind: kindBool, def: "false", doc: "Accepts any certificate. For trials only."},
		}},
	}}
}

// keeper makes what keeps the pipeline's record; nil if nothing does. It reports settings that can't be used.
func (c *checker) keeper(n *node) *connect.Keeper {
	if n == nil || len(n.failed) > 0 || !n.has("servers") {
		return nil // not given, or reported already
	}
	cfg := connect.Defaults()
	cfg.Servers = n.get("servers").texts()
	cfg.Chroot, cfg.Path, cfg.ID = n.get("chroot").str(), n.get("path").str(), n.get("id").str()
	cfg.Lock, cfg.WhileAway = n.get("role").str() == "lock", n.get("while_away").str()
	if v := n.get("update_interval"); v != nil {
		cfg.UpdateInterval = v.dur
	}
	retry := n.get("retry")
	for _, d := range []struct {
		n    *node
		name string
		to   *time.Duration
	}{
		{n, "session_timeout", &cfg.SessionTimeout},
		{n, "connect_timeout", &cfg.ConnectTimeout},
		{n, "call_timeout", &cfg.CallTimeout},
		{retry, "min", &cfg.RetryMin},
		{retry, "max", &cfg.RetryMax},
		{retry, "for", &cfg.RetryFor},
	} {
		if v := d.n.get(d.name); v != nil {
			*d.to = v.dur
		}
	}
	if a := n.get("auth"); a != nil {
		cfg.Auth = connect.Auth{User: a.get("user").str(), Password: a.get("password").str(), PasswordFile: a.get("password_file").str()}
	}
	cfg.ACL = n.get("acl").texts()
	if t := n.get("tls"); t != nil && (t.get("enabled") == nil || t.get("enabled").yes) {
		cfg.TLS = connect.TLS{
			Enabled: true, CAFile: t.get("ca_file").str(), CertFile: t.get("cert_file").str(), KeyFile: t.get("key_file").str(),
			ServerName: t.get("server_name").str(), InsecureSkipVerify: t.get("insecure_skip_verify") != nil && t.get("insecure_skip_verify").yes,
		}
	}
	k := connect.FromConfig(cfg)
	if err := k.Validate(c.m.name); err != nil {
		c.keeperError(n, err)
		return nil
	}
	return k
}

// keeperError reports what ZooKeeper's settings say of themselves, at the setting that the text begins with.
func (c *checker) keeperError(n *node, err error) {
	msg, hint := saying(err)
	name, _, _ := strings.Cut(msg, ":")
	at := n.keyAt
	for part := range strings.SplitSeq(name, ".") {
		v := n.get(part)
		if v == nil {
			break
		}
		n, at = v, v.at
	}
	c.add(at, hint, "%s", msg)
}

// planKeeper is the keeper as a plan holds it, nil if there is none: what it reads lies beside the pipeline's file.
func (p *Pipeline) planKeeper() *plan.Keeper {
	if p.keeper == nil {
		return nil
	}
	k := engine.PlanKeeper(p.name, p.keeper)
	record := k.Record
	k.Record = func(env plan.Env) (txstate.Mirror, error) {
		env.Dir = p.dir
		return record(env)
	}
	if lock := k.Lock; lock != nil {
		k.Lock = func(env plan.Env) (txstate.Lock, error) {
			env.Dir = p.dir
			return lock(env)
		}
	}
	if check := k.Check; check != nil {
		k.Check = func(ctx context.Context, env doctor.Env) []doctor.Finding {
			env.Dir = p.dir
			return check(ctx, env)
		}
	}
	return k
}
