package daemon_test

import (
	"strings"
	"testing"
)

// verify runs replay --verify and returns its exit code and what it said.
func (j *job) verify(flags ...string) (int, string) {
	j.t.Helper()
	code, out, errs := j.command(append([]string{"replay", "--verify"}, flags...)...)
	return code, out + errs
}

// unreplayable checks that a verification says what can't be read again, and that it leaves the counts alone.
func (j *job) unreplayable(words ...string) {
	j.t.Helper()
	before := j.query("counts")
	code, said := j.verify()
	if code != 1 {
		j.t.Errorf("exit %d, want 1\n%s", code, said)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			j.t.Errorf("the error doesn't say %q:\n%s", w, said)
		}
	}
	if after := j.query("counts"); after != before {
		j.t.Errorf("counts were %q and are %q", before, after)
	}
}

func (j *job) query(state string) string {
	j.t.Helper()
	code, out, errs := j.command("query", state, "--format", "csv")
	if code != 0 {
		j.t.Fatalf("query: exit %d\n%s", code, errs)
	}
	return out
}

// TestG07cCompactionInsideARange: what compaction took out of a recorded range can't be verified any more; that is no
// difference in the results.
func TestG07cCompactionInsideARange(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t)
	b.topic("t", 1, "cleanup.policy", "compact")
	for key := range strings.FieldsSeq("a b c x d") {
		b.put(key)
	}
	j := newJob(t, b, counting(""))
	j.run(0)
	if code, said := j.verify(); code != 0 || !strings.Contains(said, "5 records") {
		t.Fatalf("exit %d\n%s", code, said)
	}
	for key := range strings.FieldsSeq("x x") {
		b.put(key)
	}
	b.fake.Compact() // 3 is gone
	j.unreplayable("cannot be re-read", "lines/t-0", "[0,5)")
	j.run(0)
	j.holds("counts", "a,7")
}

// deletedRecords: as with compaction, for records that retention has deleted.
func deletedRecords(t *testing.T, b *brokers) {
	b.topic("t", 1)
	b.produce("t", strings.Fields("a b a a b a")...)
	j := newJob(t, b, counting(""))
	j.run(0)
	if code, said := j.verify("--procs", "1"); code != 0 || !strings.Contains(said, "6 records") {
		t.Fatalf("exit %d\n%s", code, said)
	}
	b.deleteBelow("t", 2)
	j.unreplayable("lines/t-0", "[0,6)")
	j.holds("counts", "a,4", "b,2")
}

func TestReplayOfDeletedRecords(t *testing.T) {
	t.Parallel()
	deletedRecords(t, fakeBrokers(t))
}
