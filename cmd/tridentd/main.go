// Command tridentd runs pipelines declared in YAML and answers questions about them.
package main

import "github.com/tridentd/tridentd/daemon"

func main() { daemon.Main() }
