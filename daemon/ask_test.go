package daemon

import (
	"strings"
	"testing"
)

func TestAsk(t *testing.T) {
	for answer, yes := range map[string]bool{"y\n": true, "YES \n": true, "yes": true, "n\n": false, "\n": false, "": false, "yess\n": false} {
		var out strings.Builder
		if err := ask(strings.NewReader(answer), &out, "Set the positions?"); (err == nil) != yes {
			t.Errorf("%q: %v", answer, err)
		}
		if out.String() != "Set the positions? [y/N] " {
			t.Errorf("asked %q", &out)
		}
	}
}
