package coordinator_test

import (
	"testing"

	"github.com/tridentd/tridentd/coordinator/coordtest"
)

// TestScripts replays testdata/scripts: a file per behaviour. `go test ./coordinator -rewrite` writes the actions anew.
func TestScripts(t *testing.T) {
	coordtest.Script(t, "testdata/scripts")
}
