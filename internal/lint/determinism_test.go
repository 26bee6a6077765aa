package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// deterministic are the packages through which results, digests or what is stored pass: the order of a map's keys
// must not show in what they do.
var deterministic = []string{
	"agg", "batch", "codec", "coordinator", "decimal", "emitter", "emitter/file", "emitter/gen", "engine",
	"internal/csvscan", "internal/enc", "internal/exec", "internal/expr", "internal/jsonscan", "internal/names",
	"internal/plan", "internal/query", "internal/value", "internal/vec",
	"pebblestate", "replay", "spec", "state", "txstate", "window",
}

// pure are the packages whose results are a function of their arguments: they have no clock and no random source.
// (What is told the time by its caller isn't among them as far as it takes durations for people: that needs a comment.)
var pure = []string{
	"agg", "batch", "codec", "coordinator", "decimal", "emitter",
	"internal/csvscan", "internal/enc", "internal/exec", "internal/expr", "internal/jsonscan", "internal/names",
	"internal/plan", "internal/query", "internal/value", "internal/vec",
	"spec", "state", "txstate", "window",
}

func TestMapOrder(t *testing.T) {
	eachPackage(t, deterministic, mapOrder)
}

func TestNoClockNoRandomSource(t *testing.T) {
	eachPackage(t, pure, clocks)
}

func eachPackage(t *testing.T, names []string, rule func(*checked) []finding) {
	t.Helper()
	tr := loadTree(t)
	for _, name := range names {
		p := tr.all[module+"/"+name]
		if p == nil || len(p.GoFiles) == 0 {
			continue // a part that isn't there
		}
		c, err := tr.checkPackage(p)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, f := range rule(c) {
			t.Error(f)
		}
	}
}

// mapOrder finds where the order of a map's keys comes into play without a comment that begins with "order:". Fine by
// themselves are keys that are sorted at once, and loops that only fill or empty maps key by key.
func mapOrder(c *checked) []finding {
	var found []finding
	for _, file := range c.files {
		excused := c.excused(file, "order")
		report := func(pos token.Pos, text string) {
			if p := c.fset.Position(pos); !excused[p.Line] {
				found = append(found, finding{p, text})
			}
		}
		sorted := map[ast.Expr]bool{} // calls whose result is sorted or gathered in a map at once
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				c.markSortedLoops(n.List, sorted)
			case *ast.CaseClause:
				c.markSortedLoops(n.Body, sorted)
			case *ast.CommClause:
				c.markSortedLoops(n.Body, sorted)
			case *ast.RangeStmt:
				if c.isMap(n.X) && !sorted[n.X] && !keywise(n) {
					report(n.Pos(), "ranges over a map: sort the keys, or say in an \"// order:\" comment why the order can't matter")
				}
			case *ast.CallExpr:
				fn := c.callee(n)
				switch fn {
				case "slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc", "maps.Collect", "maps.Insert":
					for _, arg := range n.Args {
						sorted[ast.Unparen(arg)] = true
					}
				case "maps.Keys", "maps.Values", "maps.All", "(reflect.Value).MapKeys", "(reflect.Value).MapRange", "(*sync.Map).Range":
					if !sorted[n] {
						report(n.Pos(), fn+" yields in map order: sort, or say in an \"// order:\" comment why the order can't matter")
					}
				}
			}
			return true
		})
	}
	return found
}

// isMap tells whether x is a map, or of a type parameter that may be one.
func (c *checked) isMap(x ast.Expr) bool {
	typ := c.info.TypeOf(x)
	if typ == nil {
		return false
	}
	if _, ok := typ.(*types.TypeParam); ok {
		iface, _ := typ.Underlying().(*types.Interface)
		for e := range iface.EmbeddedTypes() {
			if hasMap(e) {
				return true
			}
		}
		return false
	}
	return hasMap(typ)
}

func hasMap(t types.Type) bool {
	switch t := t.(type) {
	case *types.Union:
		for term := range t.Terms() {
			if hasMap(term.Type()) {
				return true
			}
		}
		return false
	default:
		_, ok := t.Underlying().(*types.Map)
		return ok
	}
}

// callee names the function or method that is called, as types.Func.FullName does.
func (c *checked) callee(call *ast.CallExpr) string {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	var id *ast.Ident
	switch f := fun.(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return ""
	}
	if f, ok := c.info.Uses[id].(*types.Func); ok {
		return f.FullName()
	}
	return ""
}

// markSortedLoops finds, in a list of statements, loops that do nothing but append to a slice which is sorted further on in the
// same list, and marks what they range over.
func (c *checked) markSortedLoops(list []ast.Stmt, sorted map[ast.Expr]bool) {
	for i, s := range list {
		loop, ok := s.(*ast.RangeStmt)
		if !ok {
			continue
		}
		target := appended(loop.Body)
		if target == "" {
			continue
		}
		for _, later := range list[i+1:] {
			ast.Inspect(later, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
					if fn := c.callee(call); (strings.HasPrefix(fn, "slices.Sort") || strings.HasPrefix(fn, "sort.")) &&
						types.ExprString(call.Args[0]) == target {
						sorted[loop.X] = true
					}
				}
				return true
			})
		}
	}
}

// appended returns the slice that body appends to if it does nothing else with an effect, or "".
func appended(body *ast.BlockStmt) string {
	target := ""
	for _, s := range body.List {
		if cond, ok := s.(*ast.IfStmt); ok && cond.Else == nil {
			if skips(cond.Body) {
				continue
			}
			if len(body.List) == 1 {
				return appended(cond.Body)
			}
		}
		as, ok := s.(*ast.AssignStmt)
		if !ok || len(as.Lhs) != 1 || len(as.Rhs) != 1 {
			return ""
		}
		call, ok := as.Rhs[0].(*ast.CallExpr)
		if !ok || types.ExprString(call.Fun) != "append" || types.ExprString(call.Args[0]) != types.ExprString(as.Lhs[0]) {
			return ""
		}
		if name := types.ExprString(as.Lhs[0]); target == "" || target == name {
			target = name
		} else {
			return ""
		}
	}
	return target
}

func skips(body *ast.BlockStmt) bool {
	if len(body.List) != 1 {
		return false
	}
	b, ok := body.List[0].(*ast.BranchStmt)
	return ok && b.Tok == token.CONTINUE && b.Label == nil
}

// keywise tells whether a loop's body is one statement that sets or deletes the element of a map at the loop's own key.
func keywise(loop *ast.RangeStmt) bool {
	key, ok := loop.Key.(*ast.Ident)
	if !ok || key.Name == "_" || len(loop.Body.List) != 1 {
		return false
	}
	stmt := loop.Body.List[0]
	if cond, ok := stmt.(*ast.IfStmt); ok && cond.Else == nil && len(cond.Body.List) == 1 {
		stmt = cond.Body.List[0]
	}
	switch s := stmt.(type) {
	case *ast.AssignStmt:
		if len(s.Lhs) != 1 || s.Tok != token.ASSIGN {
			return false
		}
		at, ok := s.Lhs[0].(*ast.IndexExpr)
		return ok && types.ExprString(at.Index) == key.Name && !hasCall(s.Rhs[0])
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && types.ExprString(call.Fun) == "delete" && len(call.Args) == 2 && types.ExprString(call.Args[1]) == key.Name
	}
	return false
}

// hasCall tells whether evaluating e may call something: that could count or draw numbers.
func hasCall(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		_, call := n.(*ast.CallExpr)
		found = found || call
		return !found
	})
	return found
}

var (
	clockCalls = []string{
		"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick", "time.Sleep",
	}
	randomPackages = []string{"math/rand", "math/rand/v2", "crypto/rand", "hash/maphash"}
)

// clocks finds uses of the clock (called or handed on as a function) and of random sources, without a comment
// that begins with "clock:".
func clocks(c *checked) []finding {
	var found []finding
	for _, file := range c.files {
		excused := c.excused(file, "clock")
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			obj := c.info.Uses[id]
			if obj == nil || obj.Pkg() == nil {
				return true
			}
			name := obj.Pkg().Path() + "." + obj.Name()
			pos := c.fset.Position(id.Pos())
			switch {
			case excused[pos.Line]:
			case slices.Contains(clockCalls, name) && obj.Parent() == obj.Pkg().Scope():
				found = append(found, finding{pos, name + " in a package whose results are a function of its arguments"})
			case slices.Contains(randomPackages, obj.Pkg().Path()):
				found = append(found, finding{pos, name + ": take numbers from Batch.Rand, hashes from xxhash"})
			}
			return true
		})
	}
	return found
}

// Each line of the samples that ends in "// want" must be found, and no other.
func TestTheRulesFind(t *testing.T) {
	tr := loadTree(t)
	for name, c := range map[string]struct {
		rule func(*checked) []finding
		src  string
	}{
		"map order": {mapOrder, `package sample

import (
	"maps"
	"slices"
	"sort"
	"sync"
)

func f(m map[string]int, out chan int) (keys, more []string) {
	for _, v := range m { // want
		out <- v
	}
	for v := range maps.Values(m) { // want
		out <- v
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		more = append(more, k)
	}
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for k := range m {
		if k == "" {
			continue
		}
		more = append(more, k)
	}
	sort.Strings(more)
	for k := range m { // want
		more = append(more, k)
	}
	other := map[string]int{}
	for k, v := range m {
		other[k] = v
	}
	for k, v := range m { // want
		other[k] = v + len(<-make(chan string))
	}
	for k, v := range m {
		if v == 0 {
			delete(m, k)
		}
	}
	// order: a sum of integers is the same in any order.
	for _, v := range m {
		other[""] += v
	}
	// order:
	for _, v := range m { // want
		other[""] += v
	}
	for _, v := range m { // order: again a sum
		other[""] += v
	}
	_ = slices.Collect(maps.Values(m)) // want
	_ = maps.Collect(maps.All(m))
	var s sync.Map
	s.Range(func(_, _ any) bool { return true }) // want
	return keys, more
}

type named map[int]int

func g[M ~map[int]int](m M, n named, s []int) {
	for range m { // want
	}
	for range n { // want
	}
	for range s {
	}
}
`},
		"clocks": {clocks, `package sample

import (
	"hash/maphash"
	"math/rand/v2"
	"time"
)

func f(t time.Time, now func() time.Time) time.Duration {
	_ = rand.IntN(3) // want
	_ = maphash.MakeSeed() // want
	now = time.Now // want
	_ = time.Now() // clock: for people
	_ = t.After(t)
	return time.Since(t) // want
}
`},
	} {
		parsed, err := tr.check("sample", map[string]any{"sample.go": c.src})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := map[int]bool{}
		for i, line := range strings.Split(c.src, "\n") {
			if strings.HasSuffix(line, "// want") {
				want[i+1] = true
			}
		}
		got := map[int]bool{}
		for _, f := range c.rule(parsed) {
			got[f.pos.Line] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: found lines %v, want %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

func TestPackageNamesOfTheRulesAreKnown(t *testing.T) {
	for _, name := range append(slices.Clone(deterministic), pure...) {
		if _, ok := lookup(name); !ok {
			t.Errorf("%s is in no row of the table of imports", name)
		}
	}
}
