// Command tridentd runs pipelines declared in YAML and answers questions about them.
package main

import (
	_ "github.com/tridentd/tridentd/connect/blob" // buckets for savepoints
	"github.com/tridentd/tridentd/daemon"
)

func main() { daemon.Main() }
