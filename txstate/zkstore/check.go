package zkstore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
)

// CheckConn is a session whose paths begin at ZooKeeper's root, without a chroot: what a chroot lies in is checked too.
type CheckConn interface {
	Conn
	Exists(ctx context.Context, path string) (bool, *zk.Stat, error)
	Create(ctx context.Context, path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error)
	Delete(ctx context.Context, path string, version int32) error
	ACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error)
	// Identity says as whom the session is authenticated.
	Identity() string
}

const (
	// probeName begins the name of the node that a check makes and removes again. It is ephemeral: should removing it fail, it goes with
	// the session.
	probeName = "tridentd-doctor-"
	// clockSlack is by how much clocks may differ without a word.
	clockSlack = 30 * time.Second
)

// Check tries out what a record needs: that its nodes can be made, written and removed. It leaves nothing behind.
func Check(ctx context.Context, conn CheckConn, cfg Config) []doctor.Finding {
	if err := cfg.Validate(); err != nil {
		return []doctor.Finding{doctor.Of("zookeeper", err)}
	}
	c := &check{conn: conn, cfg: cfg, base: cfg.Chroot + cfg.Base()}
	c.run(ctx)
	return c.findings
}

type check struct {
	conn     CheckConn
	cfg      Config
	base     string // from the root
	findings []doctor.Finding
}

func (c *check) add(f doctor.Finding) {
	if f.Subject == "" {
		f.Subject = "zookeeper " + c.base
	}
	c.findings = append(c.findings, f)
}

func (c *check) run(ctx context.Context) {
	at, err := c.nearest(ctx)
	if err != nil {
		c.add(doctor.Of("zookeeper "+c.base, err))
		return
	}
	if root := c.cfg.Chroot; root != "" && len(at) < len(root) {
		c.add(doctor.Finding{
			Level: doctor.Warn, Code: batch.CodeZKNoChroot, Text: fmt.Sprintf("the chroot %s isn't there: the first run makes it", root),
			Remedy: "make it, or correct zookeeper.chroot if it should be there",
		})
	}
	stat, sent, took, err := c.probe(ctx, at)
	if err == nil && at == c.base {
		err = c.mayWrite(ctx)
	}
	if err != nil {
		c.add(c.explain(ctx, at, err))
		return
	}
	text := fmt.Sprintf("nodes can be made, written and removed, by %s", c.conn.Identity())
	if at != c.base {
		text += fmt.Sprintf("; the first run makes it in %s", at)
	}
	c.add(doctor.Finding{Text: text})
	c.clock(time.UnixMilli(stat.Ctime), sent, took)
}

// nearest is the base, or else the node above it that is there.
func (c *check) nearest(ctx context.Context) (string, error) {
	for p := c.base; ; p = path.Dir(p) {
		if p == "/" {
			return p, nil
		}
		there, _, err := c.conn.Exists(ctx, p)
		if err != nil {
			return "", err
		}
		if there {
			return p, nil
		}
	}
}

// probe makes a node, writes and reads it, and removes it. It returns the node's state with the time at which it was asked for
// and how long that took.
func (c *check) probe(ctx context.Context, in string) (stat *zk.Stat, sent time.Time, took time.Duration, err error) {
	name := strings.TrimSuffix(in, "/") + "/" + probeName
	sent = c.cfg.Now()
	made, err := c.conn.Create(ctx, name, nil, zk.FlagEphemeral|zk.FlagSequence, c.cfg.ACL)
	took = c.cfg.Now().Sub(sent)
	if err != nil {
		return nil, sent, took, fmt.Errorf("making a node: %w", err)
	}
	defer func() {
		// Also after the check's own time is up: nothing is to stay behind.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if derr := c.conn.Delete(ctx, made, -1); err == nil && derr != nil {
			err = fmt.Errorf("removing a node: %w", derr)
		}
	}()
	if _, err = c.conn.Set(ctx, made, []byte("{}"), -1); err != nil {
		return nil, sent, took, fmt.Errorf("writing a node that was made with the ACL of the settings: %w", err)
	}
	if _, stat, err = c.conn.Get(ctx, made); err != nil {
		return nil, sent, took, fmt.Errorf("reading a node that was made with the ACL of the settings: %w", err)
	}
	return stat, sent, took, nil
}

// mayWrite asks for the right to write the record that is there, by a Multi whose second operation fails: nothing is
// changed.
func (c *check) mayWrite(ctx context.Context) error {
	record := c.base + "/" + recordName
	data, _, err := c.conn.Get(ctx, record)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the record: %w", err)
	}
	const nobody = "/" + probeName + "none"
	err = c.conn.Multi(ctx, &zk.SetDataRequest{Path: record, Data: data, Version: -1}, &zk.CheckVersionRequest{Path: c.base + nobody})
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return fmt.Errorf("writing the record: %w", err)
}

// explain names what keeps the record from being written: of a right that is missing, whose it would have to be.
func (c *check) explain(ctx context.Context, at string, err error) doctor.Finding {
	f := doctor.Of("zookeeper "+c.base, err)
	f.Text = plain(err)
	if f.Code != batch.CodeZKNoRights {
		return f
	}
	if acl, _, err := c.conn.ACL(ctx, at); err == nil {
		f.Text += fmt.Sprintf("; the ACL of %s is %s", at, aclText(acl))
	}
	f.Text += "; needed are c, d, r and w"
	f.Remedy = "give the identity these rights (setAcl), or use another one in zookeeper.auth"
	return f
}

// plain is what an error says without remedies and operations.
func plain(err error) string {
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Err == nil {
		return err.Error()
	}
	lead, _, _ := strings.Cut(err.Error(), e.Error())
	return lead + e.Err.Error()
}

func aclText(acl []zk.ACL) string {
	var all []string
	for _, a := range acl {
		var letters []byte
		for _, l := range "cdrwa" {
			if a.Perms&rights[l] != 0 {
				letters = append(letters, byte(l))
			}
		}
		id := a.ID
		if a.Scheme == "digest" {
			id, _, _ = strings.Cut(id, ":") // the rest is a hash of the password
		}
		all = append(all, a.Scheme+":"+id+":"+string(letters))
	}
	return strings.Join(all, ", ")
}

// clock compares the clock of the ensemble's leader, which stamps nodes, with this machine's.
func (c *check) clock(stamped, sent time.Time, took time.Duration) {
	off := stamped.Sub(sent.Add(took / 2))
	if off.Abs() <= clockSlack+took {
		c.add(doctor.Finding{Subject: "zookeeper clock", Text: "the leader's clock agrees with this machine's, within " + clockSlack.String()})
		return
	}
	which := "ahead of"
	if off < 0 {
		which = "behind"
	}
	c.add(doctor.Finding{
		Level: doctor.Warn, Subject: "zookeeper clock", Code: doctor.CodeClock, Text: fmt.Sprintf("the leader's clock is %s %s this machine's", doctor.Duration(off.Abs()), which),
		Remedy: "set the clocks by NTP",
	})
}
