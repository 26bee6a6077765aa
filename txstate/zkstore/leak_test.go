package zkstore

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain: nothing runs on once everything is closed.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
