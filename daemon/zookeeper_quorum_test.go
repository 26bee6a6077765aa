//go:build realzk

package daemon_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/server"
)

// TestG13Ensemble: of three servers two are stopped, then two hang. The failure is named, the record's metric counts it, records
// are counted all the same, a stop is over in time, and after the servers are back everything has been counted once.
func TestG13Ensemble(t *testing.T) {
	z := testenv.OwnZooKeeper(t, testenv.Nodes(3))
	j := newJob(t, nil, strings.Replace(linesFile, "\n", fmt.Sprintf("\nzookeeper: {servers: %q, update_interval: 0s, session_timeout: 4s, call_timeout: 3s, connect_timeout: 2s}\n", z.Addr), 1))
	var input strings.Builder
	feed := func() {
		for range 100 {
			input.WriteString("a\n")
		}
		j.put("lines.txt", input.String())
	}
	feed()
	j.run(0)
	total := int64(100)
	for _, outage := range []struct {
		name       string
		fail, heal func(nodes ...int)
		codes      []batch.Code
	}{
		{
			"no quorum", func(n ...int) { z.Stop(t, n...) }, func(n ...int) { z.Start(t, n...) },
			[]batch.Code{batch.CodeZKNoQuorum},
		},
		{
			"hung", func(n ...int) { z.Pause(t, n...) }, func(n ...int) { z.Resume(t, n...) },
			[]batch.Code{batch.CodeZKNoAnswer, batch.CodeZKNoQuorum, batch.CodeZKCut},
		},
	} {
		p := j.spawn(j.runArgs()...)
		j.await("the record", func(st *server.Status) bool {
			return st.Ready && len(st.Mirrors) == 1 && !st.Mirrors[0].Pending && st.Mirrors[0].Error == nil && st.Mirrors[0].Txid == st.Committed
		})
		leader := z.Leader(t)
		other := leader%3 + 1
		outage.fail(leader, other)
		feed()
		total += 100
		j.await(outage.name, func(st *server.Status) bool {
			m := st.Mirrors[0]
			if m.Error == nil || len(st.Partitions) != 1 || st.Partitions[0].Committed != total {
				return false
			}
			for _, code := range outage.codes {
				if m.Error.Code == code && m.Failures[code] > 0 {
					return true
				}
			}
			return false
		})
		began := time.Now()
		p.signal(syscall.SIGTERM)
		if code := p.exit(2 * stopLimit); code != 0 || time.Since(began) > stopLimit {
			t.Errorf("%s: exit %d after %s\n%s", outage.name, code, time.Since(began), p.errs.String())
		}
		outage.heal(leader, other)
		j.run(0)
		j.holds("counts", fmt.Sprintf("a,%d", total))
		if r := recordAt(t, z.Conn(t), "/trident/counting"); r.total() != total || r.Committed.Txid != j.committedTxid() {
			t.Errorf("%s: the record is %+v, want %d", outage.name, r, total)
		}
	}
}
