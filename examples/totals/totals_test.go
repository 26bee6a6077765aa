package main

import (
	"testing"

	"github.com/tridentd/tridentd/spec/spectest"
)

// TestDeclared runs the tests in totals_test.yaml.
func TestDeclared(t *testing.T) { spectest.Run(t, "totals.yaml") }
