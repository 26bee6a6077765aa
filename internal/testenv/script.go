package testenv

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The scripts in scripts/servers.
const (
	kafkaScript     = "kafka.sh"
	zooKeeperScript = "zookeeper.sh"
)

// run calls a script of scripts/servers. Standard output is returned, and with an error also standard error.
func run(ctx context.Context, limit time.Duration, script string, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "scripts", "servers", script), args...)
	// A server left behind by a script that was ended must not hold Wait up by the pipes it inherited.
	cmd.WaitDelay = 5 * time.Second
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

// control has a script do something to some nodes of the cluster in dir, counted from 1, or to all.
func control(tb testing.TB, script, dir, command string, nodes []int) {
	tb.Helper()
	calls := make([][]string, 0, len(nodes))
	for _, n := range nodes {
		calls = append(calls, []string{"--node", fmt.Sprint(n)})
	}
	if len(nodes) == 0 {
		calls = append(calls, nil)
	}
	for _, args := range calls {
		if out, err := run(tb.Context(), startTimeout, script, append([]string{command, "--dir", dir}, args...)...); err != nil {
			tb.Fatalf("testenv: %s %s: %v\n%s", script, command, err, out)
		}
	}
}
