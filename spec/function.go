package spec

import (
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/expr"
)

// Purity says what the result of a function of Go depends on. It is the word of whoever registers the function: the check of
// determinism finds one that isn't kept.
type Purity = expr.Purity

// The purities.
const (
	// Pure: the arguments alone decide. It may be called again for the same row, and in any order.
	Pure = expr.Pure
	// OfBatch: the arguments and what a *Call tells, which is recorded, decide.
	OfBatch = expr.OfBatch
	// Outside: something else plays a part, as a server that is asked or a file that others change. A replay may come out otherwise;
	// validate says so.
	Outside = expr.Outside
)

// Call is the first parameter of a function OfBatch: what it may know of the row that it is called for.
type Call = expr.Call

// Func is a function of Go that the expressions of a pipeline's file call by its name.
type Func struct {
	custom *expr.Custom
	err    error
}

// Function registers a function of Go: Function("country", func(ip string) (string, error) { … }, Pure) lets expressions say
// country(ip).
//
// Its parameters and its result are string, int64, int, float64, bool, decimal.Decimal, time.Time, []byte, or slices of these but
// []byte. A pointer to one of them takes, or gives, null; without it null makes the record a bad one, as it does with the built-in
// functions. Expressions are held against these types when the file is checked. A second result may be an error: the record is
// bad then, or, if it is marked by engine.Transient, the batch is begun again. A panic makes a bad record, too. The function is
// called by many goroutines at once.
func Function(name string, f any, purity Purity) Func {
	c, err := expr.NewCustom(name, f, purity)
	return Func{c, err}
}

// functions are those of the options, or what is wrong with them.
func (o *Options) functions(file string) (*expr.Functions, Problems) {
	var all []*expr.Custom
	var wrong Problems
	for _, f := range o.Functions {
		switch {
		case f.err != nil:
			wrong = append(wrong, Problem{File: file, Msg: f.err.Error()})
		case f.custom == nil:
			wrong = append(wrong, Problem{File: file, Msg: "a function that wasn't made by spec.Function"})
		default:
			all = append(all, f.custom)
		}
	}
	fs, err := expr.NewFunctions(all)
	if err != nil {
		wrong = append(wrong, Problem{File: file, Msg: err.Error()})
	}
	return fs, wrong
}

// customs lists the functions of Go that the pipeline calls, by name.
func (m *model) customs() []*expr.Custom {
	var all []*expr.Custom
	add := func(e *expr.Expr) {
		for _, c := range e.Customs() {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	for _, s := range m.sinks {
		if s.key != nil {
			add(s.key.e)
		}
	}
	for _, s := range m.streams {
		for _, st := range s.steps {
			for _, x := range st.exprs {
				add(x.e)
			}
			for _, a := range st.aggs {
				for _, e := range a.call.Args {
					add(e)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *expr.Custom) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

// noteOutside notes the functions that a replay can't be sure of.
func (m *model) noteOutside() {
	for _, c := range m.customs() {
		if c.Purity() == expr.Outside {
			m.notes = append(m.notes, "not replayable: "+c.Name()+"() depends on more than its arguments and what is recorded; a replay may come to another result")
		}
	}
}
