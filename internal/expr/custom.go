package expr

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// Purity says what the result of a function of Go depends on.
type Purity uint8

const (
	Pure    Purity = iota // its arguments
	OfBatch               // its arguments and what its Call tells
	Outside               // more: a replay may come to something else
)

func (p Purity) String() string { return [...]string{"pure", "of the batch", "outside"}[p] }

// Call is what a function of Go may know of the row that it is called for: all of it is recorded, and the same in a replay. It may be
// used until the function returns.
type Call struct {
	ctx  *Context
	step string
	row  int32
}

// Time is the batch's clock, UTC.
func (c *Call) Time() time.Time { return c.ctx.Batch.Time }

// Rand is a source of random numbers for this call at this record. Each call of Rand begins the same sequence again.
func (c *Call) Rand() *batch.Rand {
	return c.ctx.Batch.Rand(c.step, c.ctx.Partition, c.ctx.Offsets[c.row])
}

// Custom is a function of Go that expressions call by its name.
type Custom struct {
	f      *function
	text   string
	purity Purity
}

// Name is what expressions call it by.
func (c *Custom) Name() string { return c.f.name }

// Purity is what its result depends on.
func (c *Custom) Purity() Purity { return c.purity }

// String describes it in one line: geo(string, int) string.
func (c *Custom) String() string { return c.text }

// Functions are the functions of Go that the expressions of a pipeline may call besides the built-in ones. nil: none.
type Functions struct{ byName map[string]*Custom }

// NewFunctions returns a set of functions; two of one name are an error.
func NewFunctions(all []*Custom) (*Functions, error) {
	fs := &Functions{byName: map[string]*Custom{}}
	for _, c := range all {
		if fs.byName[c.Name()] != nil {
			return nil, fmt.Errorf("two functions are named %s", c.Name())
		}
		fs.byName[c.Name()] = c
	}
	return fs, nil
}

// Parse is the function Parse for expressions that may call these functions.
func (fs *Functions) Parse(src string) (*Expr, error) {
	e, err := Parse(src)
	if err == nil && fs != nil {
		e.functions = fs.byName
	}
	return e, err
}

// ParseAggregate is the function ParseAggregate for arguments that may call these functions.
func (fs *Functions) ParseAggregate(src string) (*Aggregate, error) {
	a, err := ParseAggregate(src)
	if err == nil && fs != nil {
		for _, e := range a.Args {
			e.functions = fs.byName
		}
	}
	return a, err
}

// Customs lists the functions of Go that e calls, by name.
func (e *Expr) Customs() []*Custom {
	seen := map[string]*Custom{}
	e.calls(func(name string) {
		if c := e.functions[name]; c != nil {
			seen[name] = c
		}
	})
	return slices.SortedFunc(maps.Values(seen), func(a, b *Custom) int { return strings.Compare(a.Name(), b.Name()) })
}

// function finds a function by its name.
func (c *compiler) function(name string) (*function, bool) {
	if u := c.e.functions[name]; u != nil {
		return u.f, true
	}
	f, ok := functions[name]
	return f, ok
}

// functionNames are the names that a call may be of.
func (c *compiler) functionNames() []string {
	return slices.Concat(slices.Sorted(maps.Keys(functions)), []string{"coalesce"}, slices.Sorted(maps.Keys(c.e.functions)))
}

var customName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)

// words are what no function can be named, as expressions mean something else by them.
var words = []string{"nil", "true", "false", "not", "and", "or", "in", "let", "if", "else", "contains", "startsWith", "endsWith", "matches"}

func isAggregate(name string) bool {
	_, ok := aggregates[name]
	return ok
}

var (
	callType    = reflect.TypeFor[*Call]()
	errorType   = reflect.TypeFor[error]()
	timeType    = reflect.TypeFor[time.Time]()
	decimalType = reflect.TypeFor[decimal.Decimal]()
	bytesType   = reflect.TypeFor[[]byte]()

	durationType = reflect.TypeFor[time.Duration]()
)

// NewCustom makes a function of f, a function of Go. Its parameters and its result are string, int64, int, float64, bool,
// decimal.Decimal, time.Time, []byte, or slices of these but []byte; a pointer to one of them takes, or gives, null. The last parameter may be
// variadic. A first parameter *Call, which a function OfBatch must have and no other may, tells of the batch. A second result may be
// an error, which makes the record a bad one, as a panic does.
func NewCustom(name string, f any, purity Purity) (*Custom, error) {
	bad := func(format string, args ...any) (*Custom, error) {
		return nil, fmt.Errorf("function %s: %s", name, fmt.Sprintf(format, args...))
	}
	switch {
	case !customName.MatchString(name):
		return bad("a name is made of letters, digits and _, and begins with a letter")
	case functions[name] != nil, isAggregate(name), name == "coalesce", slices.Contains(words, name):
		return bad("expressions mean something else by that name")
	case purity > Outside:
		return bad("there is no purity %d", purity)
	}
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Func || v.IsNil() {
		return bad("it is a %T, not a function", f)
	}
	t := v.Type()
	u := &goFunc{fn: v, variadic: t.IsVariadic()}
	first := 0
	if t.NumIn() > 0 && t.In(0) == callType {
		u.call, first = true, 1
	}
	if u.call != (purity == OfBatch) {
		return bad("a function that depends on the batch, and no other, is OfBatch and has the first parameter *Call")
	}
	o := overload{variadic: u.variadic}
	for i := first; i < t.NumIn(); i++ {
		in := t.In(i)
		if u.variadic && i == t.NumIn()-1 {
			in = in.Elem()
		}
		p, ok := goTypeOf(in)
		if !ok {
			return bad("a parameter can't be of type %s", in)
		}
		u.in = append(u.in, p)
		o.params = append(o.params, p.vec)
	}
	if n := t.NumOut(); n == 0 || n > 2 || n == 2 && t.Out(1) != errorType {
		return bad("it must return a value, or a value and an error")
	}
	u.fails = t.NumOut() == 2
	out, ok := goTypeOf(t.Out(0))
	if !ok {
		return bad("its result can't be of type %s", t.Out(0))
	}
	u.out, o.result = out, out.vec
	o.run = u.loop()
	fn := &function{name: name, impure: purity != Pure, custom: true, nullable: out.pointer, overloads: []overload{o}}
	if slices.ContainsFunc(u.in, func(g goType) bool { return g.pointer }) {
		fn.nulls = nullIsGiven
	}
	return &Custom{f: fn, text: u.text(name), purity: purity}, nil
}

// goType is a type of Go and the type of columns that holds its values.
type goType struct {
	typ     reflect.Type // without the pointer
	vec     vec.Type
	pointer bool
}

func goTypeOf(t reflect.Type) (g goType, ok bool) {
	if g.pointer = t.Kind() == reflect.Pointer; g.pointer {
		t = t.Elem()
	}
	g.typ = t
	if g.vec.Kind = scalarKind(t); g.vec.Kind != vec.Null {
		return g, true
	}
	if t.Kind() == reflect.Slice && t.Name() == "" {
		if elem := scalarKind(t.Elem()); elem != vec.Null && elem != vec.Bytes {
			g.vec = vec.ListOf(elem)
			return g, true
		}
	}
	return g, false
}

// scalarKind is the kind of columns for a type of Go; vec.Null if there is none.
func scalarKind(t reflect.Type) vec.Kind {
	switch t {
	case timeType:
		return vec.Time
	case decimalType:
		return vec.Decimal
	case bytesType:
		return vec.Bytes
	case durationType: // an int says nothing of its unit
		return vec.Null
	}
	switch t.Kind() {
	case reflect.String:
		return vec.String
	case reflect.Int64, reflect.Int:
		return vec.Int
	case reflect.Float64:
		return vec.Float
	case reflect.Bool:
		return vec.Bool
	}
	return vec.Null
}

// goFunc calls a function of Go for the rows of a block.
type goFunc struct {
	fn       reflect.Value
	call     bool // the first parameter is a *Call
	in       []goType
	variadic bool
	out      goType
	fails    bool
}

// text describes the function: its name, its types as `types` and the reference call them.
func (u *goFunc) text(name string) string {
	of := func(g goType) string {
		s := g.vec.String()
		if g.pointer {
			s += " or null"
		}
		return s
	}
	var in []string
	for i, g := range u.in {
		s := of(g)
		if u.variadic && i == len(u.in)-1 {
			s += "…"
		}
		in = append(in, s)
	}
	return fmt.Sprintf("%s(%s) %s", name, strings.Join(in, ", "), of(u.out))
}

// loop is how rows are computed: without reflection where the function has one of the usual types.
func (u *goFunc) loop() loop {
	switch f := u.fn.Interface().(type) {
	case func(string) string:
		return map1(strs, strs, func(s []byte) ([]byte, error) {
			return textOfResult(guarded(func() (string, error) { return f(string(s)), nil }))
		})
	case func(string) (string, error):
		return map1(strs, strs, func(s []byte) ([]byte, error) {
			return textOfResult(guarded(func() (string, error) { return f(string(s)) }))
		})
	case func(string) bool:
		return map1(strs, bools, func(s []byte) (bool, error) {
			return guarded(func() (bool, error) { return f(string(s)), nil })
		})
	case func(string) int64:
		return map1(strs, ints, func(s []byte) (int64, error) {
			return guarded(func() (int64, error) { return f(string(s)), nil })
		})
	case func(int64) int64:
		return map1(ints, ints, func(i int64) (int64, error) {
			return guarded(func() (int64, error) { return f(i), nil })
		})
	case func(float64) float64:
		return map1(floats, floats, func(x float64) (float64, error) {
			return guarded(func() (float64, error) { return f(x), nil })
		})
	case func(float64, float64) float64:
		return map2(floats, floats, floats, func(x, y float64) (float64, error) {
			return guarded(func() (float64, error) { return f(x, y), nil })
		})
	case func(string, string) string:
		return map2(strs, strs, strs, func(x, y []byte) ([]byte, error) {
			return textOfResult(guarded(func() (string, error) { return f(string(x), string(y)), nil }))
		})
	}
	return u.run
}

// guarded calls a user's function; a panic is an error.
func guarded[R any](f func() (R, error)) (r R, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	return f()
}

func panicked(v any) error {
	if err, ok := v.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", v)
}

func (u *goFunc) run(c *callKernel, m *machine, args []*vec.Column, sel []int32, out *vec.Column) {
	step := fmt.Sprintf("%s#%s%d", m.ctx.Step, c.f.name, c.site)
	var in []reflect.Value
rows:
	for _, r := range sel {
		in = in[:0]
		if u.call {
			in = append(in, reflect.ValueOf(&Call{ctx: m.ctx, step: step, row: r}))
		}
		for i, a := range args {
			g := &u.in[min(i, len(u.in)-1)]
			if a.IsNull(int(r)) && !g.pointer {
				c.failNull(m, r, i, out)
				continue rows
			}
			in = append(in, g.argument(a, int(r)))
		}
		v, err := guarded(func() (reflect.Value, error) {
			res := u.fn.Call(in)
			if u.fails && !res[1].IsNil() {
				return res[0], res[1].Interface().(error)
			}
			return res[0], nil
		})
		if err == nil {
			err = u.out.store(out, int(r), v)
		}
		if err != nil {
			c.fail(r, err)
		}
	}
}

// argument is row r of a column as an argument: a copy, which the function may keep.
func (g *goType) argument(c *vec.Column, r int) reflect.Value {
	if c.IsNull(r) {
		return reflect.Zero(reflect.PointerTo(g.typ))
	}
	p := reflect.New(g.typ)
	v := p.Elem()
	if g.vec.Kind == vec.List {
		s := c.List[r]
		v.Set(reflect.MakeSlice(g.typ, int(s.Len), int(s.Len)))
		for k := range int(s.Len) {
			if !c.Elems.IsNull(int(s.Start) + k) { // a null element is the zero value
				setScalar(v.Index(k), c.Elems, int(s.Start)+k)
			}
		}
	} else {
		setScalar(v, c, r)
	}
	if g.pointer {
		return p
	}
	return v
}

func setScalar(v reflect.Value, c *vec.Column, r int) {
	switch c.Type.Kind {
	case vec.String:
		v.SetString(string(c.Str[r]))
	case vec.Bytes:
		v.SetBytes(slices.Clone(c.Str[r]))
	case vec.Int:
		v.SetInt(c.Int[r])
	case vec.Float:
		v.SetFloat(c.Float[r])
	case vec.Bool:
		v.SetBool(c.Bool[r])
	case vec.Decimal:
		v.Set(reflect.ValueOf(c.Dec[r]))
	case vec.Time:
		v.Set(reflect.ValueOf(time.Unix(0, c.Int[r]).UTC()))
	default:
		panic("expr: no argument of " + c.Type.String())
	}
}

// store puts a result into row r.
func (g *goType) store(out *vec.Column, r int, v reflect.Value) error {
	if g.pointer {
		if v.IsNil() {
			out.SetNull(r)
			return nil
		}
		v = v.Elem()
	}
	if g.vec.Kind != vec.List {
		x, err := scalarOf(v, g.vec.Kind)
		if err != nil {
			return err
		}
		return out.SetValue(r, x)
	}
	elems := make([]value.Value, v.Len())
	for i := range elems {
		var err error
		if elems[i], err = scalarOf(v.Index(i), g.vec.Elem); err != nil {
			return err
		}
	}
	return out.SetValue(r, value.ListOf(elems))
}

// textOfResult are the bytes of a string that a function returned.
func textOfResult(s string, err error) ([]byte, error) {
	if err == nil && !utf8.ValidString(s) {
		err = errInvalidUTF8
	}
	return vec.Raw(s), err
}

var errInvalidUTF8 = errors.New("its result is not valid UTF-8")

func scalarOf(v reflect.Value, k vec.Kind) (value.Value, error) {
	switch k {
	case vec.String:
		s, err := textOfResult(v.String(), nil)
		return value.StringOf(vec.Text(s)), err
	case vec.Bytes:
		return value.BytesOf(slices.Clone(v.Bytes())), nil
	case vec.Int:
		return value.IntOf(v.Int()), nil
	case vec.Float:
		return value.FloatOf(v.Float()), nil
	case vec.Bool:
		return value.BoolOf(v.Bool()), nil
	case vec.Decimal:
		return value.DecimalOf(v.Interface().(decimal.Decimal)), nil
	case vec.Time:
		t := v.Interface().(time.Time)
		ns := t.UnixNano()
		if !time.Unix(0, ns).Equal(t) {
			return value.Value{}, errTime
		}
		return value.TimeOf(ns), nil
	}
	panic("expr: no result of " + k.String())
}
