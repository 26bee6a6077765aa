// Command functions is tridentd with functions of its own, which pipelines in YAML call by their names:
//
//	go run . run visits.yaml --until caught-up
//	go run . query visits.yaml by_family
package main

import (
	"fmt"
	"strings"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/spec"
)

func main() { program().Main() }

func program() daemon.Program {
	return daemon.Program{Functions: []spec.Func{
		spec.Function("family", family, spec.Pure),
		spec.Function("section", section, spec.Pure),
		spec.Function("chosen", chosen, spec.OfBatch),
	}}
}

// family is the program that an agent names, in lower case; null if it names none that counts. A pointer takes null, and gives it.
func family(agent *string) *string {
	if agent == nil {
		return nil
	}
	for _, name := range []string{"firefox", "chrome", "safari", "curl"} {
		if strings.Contains(strings.ToLower(*agent), name) {
			return &name
		}
	}
	return nil
}

// section is the first part of a path. An error makes the record a bad one.
func section(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return "", fmt.Errorf("the path %q doesn't begin with /", path)
	}
	first, _, _ := strings.Cut(rest, "/")
	return first, nil
}

// chosen is true for one record in n. What c gives is recorded with the batch, so that a replay chooses the same ones.
func chosen(c *spec.Call, n int64) bool { return c.Rand().Uint64()%uint64(max(n, 1)) == 0 }
