package spec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestCheck holds files against what is reported of them: the problems, or the plan.
//
//	check [env=(NAME=value, …)]
//	<a file>
//	----
//	<its problems, or its plan>
func TestCheck(t *testing.T) {
	datadriven.Walk(t, "testdata/check", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			env := map[string]string{}
			for _, a := range d.CmdArgs {
				if a.Key != "env" {
					d.Fatalf(t, "no argument %s", a.Key)
				}
				for _, v := range a.Vals {
					name, val, _ := strings.Cut(v, "=")
					env[name] = val
				}
			}
			opts := Options{Dir: "testdata/data", Env: func(name string) (string, bool) {
				v, ok := env[name]
				return v, ok
			}}
			p, err := Parse("p.yaml", []byte(d.Input), opts)
			var problems Problems
			switch {
			case errors.As(err, &problems):
				return problems.Error() + "\n"
			case err != nil:
				return fmt.Sprintf("not a Problems: %v\n", err)
			}
			switch d.Cmd {
			case "check":
				pl, err := p.Plan()
				if err != nil {
					return err.Error() + "\n"
				}
				return strings.Join(pl.Lines, "\n") + "\n"
			case "text":
				pl, err := p.Plan()
				if err != nil {
					return err.Error() + "\n"
				}
				return pl.Text
			default:
				d.Fatalf(t, "no command %s", d.Cmd)
				return ""
			}
		})
	})
}
