//go:build realkafka

package daemon_test

import (
	"maps"
	"slices"
	"testing"
)

// TestImportOnKafka runs the scenarios of offsets import against a real broker, one after the other on topics of the same name.
func TestImportOnKafka(t *testing.T) {
	k, _ := ownKafka(t)
	for _, name := range slices.Sorted(maps.Keys(importScenarios)) {
		t.Run(name, func(t *testing.T) {
			b := connect(t, k.Brokers())
			defer func() {
				b.drop("t")
				b.forget(ownGroup, "app")
			}()
			importScenarios[name](t, b)
		})
	}
}
