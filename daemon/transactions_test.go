package daemon_test

import (
	"strings"
	"testing"
)

// A pipeline without Kafka sinks has no transactions.
func TestTransactionsWithout(t *testing.T) {
	j := newJob(t, fakeBrokers(t), counting(""))
	if code, _, errs := j.command("transactions"); code != 2 || !strings.Contains(errs, "has no sink with transactions") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}
