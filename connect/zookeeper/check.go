package zookeeper

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/zkconn"
	"github.com/tridentd/tridentd/txstate/zkstore"
)

var _ doctor.Checker = (*Keeper)(nil)

// Limits of a check's steps, so that one ends while somebody waits for it.
const (
	checkConnect = 3 * time.Second
	checkCall    = 4 * time.Second
)

// Check implements doctor.Checker: each server is asked on its own, then a node is made and removed where the record lies.
func (k *Keeper) Check(ctx context.Context, env doctor.Env) []doctor.Finding {
	const subject = "zookeeper"
	s, err := k.settings(env.Pipeline)
	if err != nil {
		return []doctor.Finding{doctor.Of(subject, err)}
	}
	cfg, err := k.connConfig(s, emitter.Env{Logger: hclog.NewNullLogger(), Dir: env.Dir})
	if err != nil {
		return []doctor.Finding{doctor.Of(subject, err)}
	}
	cfg.ConnectTimeout, cfg.CallTimeout = min(cfg.ConnectTimeout, checkConnect), min(cfg.CallTimeout, checkCall)
	cfg.Chroot = "" // it is checked whether it is there
	report, err := zkconn.Diagnose(ctx, cfg)
	if err != nil {
		return []doctor.Finding{doctor.Of(subject, err)}
	}
	findings := report.Findings()
	for i := range findings {
		if findings[i].Code == batch.CodeZKNoAuth {
			findings[i].Remedy += "; servers that ask for Kerberos (SASL) can't be used: ZooKeeper's client for Go has none"
		}
	}
	var serving []string
	for _, server := range report.Servers {
		if server.Err == nil {
			serving = append(serving, server.Address)
		}
	}
	if len(serving) == 0 {
		return findings
	}
	cfg.Servers = serving
	conn, err := zkconn.New(cfg)
	if err != nil {
		return append(findings, doctor.Of(subject, err))
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing) //nolint:errcheck // the session expires if it can't be ended
	}()
	return slices.Concat(findings, zkstore.Check(ctx, conn, s.store))
}
