package sinktest

import "testing"

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Target { return &Memory{} })
}
