package engine

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build tells which code makes batches: revision, Go version, architecture and its level. It goes into each ledger entry, as two
// builds may differ in the last bit of a float.
func Build() string {
	id := "unknown"
	level := ""
	if bi, ok := debug.ReadBuildInfo(); ok {
		id = bi.Main.Version
		for _, s := range bi.Settings {
			switch s.Key {
			case "vcs.revision":
				id = s.Value[:min(12, len(s.Value))]
			case "GOAMD64", "GOARM64":
				level = " " + s.Value
			}
		}
	}
	return fmt.Sprintf("%s %s %s%s", id, runtime.Version(), runtime.GOARCH, level)
}
