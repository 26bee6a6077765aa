package spec

import (
	"strconv"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/window"
)

// window checks a window step; nil if it can't be used.
func (c *checker) window(st *stepDecl, e *env) *windowDecl {
	op, arg := st.n.operator()
	if op == "" {
		return nil
	}
	w := &windowDecl{retention: int64(plan.DefaultRetention)}
	if n := st.n.get("retention"); n != nil {
		w.retention = int64(n.dur)
	}
	if n := st.n.get("late"); n != nil {
		w.late = n.text
	}
	every := st.n.get("every")
	if every == nil && op == "sliding" {
		c.add(arg.keyAt, "as in {sliding: 1h, every: 5m}", "sliding needs every")
		return nil
	}
	switch op {
	case "tumbling", "session":
		if every != nil {
			c.add(every.keyAt, "every is for sliding and count", "%s windows follow each other", op)
			return nil
		}
		w.shape = window.Tumbling(arg.dur)
		if op == "session" {
			w.shape = window.Session(arg.dur)
		}
	case "sliding":
		d, err := parseDuration(every.text)
		if err != nil || d <= 0 || d > arg.dur {
			c.add(every.at, "", "every must be a duration above 0 of at most %s, the windows' length", arg.text)
			return nil
		}
		w.shape = window.Sliding(arg.dur, d)
	case "count":
		n := arg.num
		if every != nil {
			var err error
			if n, err = strconv.ParseInt(every.text, 10, 64); err != nil || n < 1 || n > arg.num {
				c.add(every.at, "", "every must be a number of rows from 1 to %d, those of a window", arg.num)
				return nil
			}
		}
		w.shape = window.SlidingCount(arg.num, n)
	}
	timed := op == "tumbling" || op == "sliding"
	for _, name := range []string{"offset", "zone", "by", "late"} {
		if n := st.n.get(name); n != nil && !timed {
			c.add(n.keyAt, "", "%s is for tumbling and sliding windows", name)
			return nil
		}
	}
	if timed && !c.borders(st, w) {
		return nil
	}
	if w.events() {
		c.needsTime("a window", st, e)
	} else if w.late != "" {
		c.add(st.n.get("late").at, "", "nothing is late by batch time")
	}
	return w
}

// borders takes what moves the borders of windows of time.
func (c *checker) borders(st *stepDecl, w *windowDecl) bool {
	if n := st.n.get("by"); n.str() == "batch" {
		w.shape = w.shape.ByBatchTime()
	}
	if n := st.n.get("offset"); n != nil {
		if w.shape = w.shape.Offset(n.dur); w.shape.Validate() != nil {
			if w.shape.Slide() == 0 {
				c.add(n.at, "", "the offset %s must be less than the window, %s", n.text, st.n.get("tumbling").text)
			} else {
				c.add(n.at, "", "the offset %s must be less than every, %s", n.text, st.n.get("every").text)
			}
			return false
		}
	}
	if n := st.n.get("zone"); n != nil {
		w.shape = w.shape.Zone(n.text)
		if err := w.shape.Validate(); err != nil {
			c.add(n.at, "", "%v", err)
			return false
		}
	}
	w.time = &state.Window{
		Size: w.shape.Size(), Offset: w.shape.OffsetNanos(), Retention: w.retention,
		Slide: w.shape.Slide(), Zone: w.shape.ZoneName(), ByBatch: w.shape.BatchTime(),
	}
	return true
}

// needsTime holds the rows against a step's need of event time.
func (c *checker) needsTime(what string, st *stepDecl, e *env) {
	o := e.src.out
	switch {
	case e.src.time >= 0:
		e.src.root.cols[e.src.time].used = true
	case o == nil && e.src.decl.timeField == nil:
		c.add(st.at, "", "%s needs event time, and source %s (line %d) has no time:", what, e.src.decl.name, e.src.decl.at.line)
	case o == nil: // its time is wrong, and reported
	case o.kept:
		c.add(st.at, "", "%s needs event time, and the rows of %s have none: its windows don't go by it", what, o.stream.name)
	case o.join != nil && o.join.passes():
		c.add(st.at, "", "%s needs event time, and not all rows of the %s before it have one", what, o.stream.steps[o.step].op)
	case o.join != nil:
		c.add(st.at, "give it a within", "%s needs event time, and the rows of a join within a batch have none", what)
	default:
		c.add(st.at, "", "%s needs event time, and the rows of a %s have none", what, o.stream.steps[o.step].op)
	}
}

// windowNames reports fields that have the name of a window's own columns.
func (c *checker) windowNames(l *leaf, st *stepDecl, e *env, w *windowDecl) {
	own := map[string]bool{"window_start": true, "window_end": w.time == nil || w.time.Slide != 0 || l.out.derived != nil}
	for _, k := range l.keys {
		if name := e.frame.cols[k].name; own[name] {
			c.add(st.at, "set another name", "%s is the name of the window's own column", name)
		}
	}
	for _, a := range st.aggs {
		if own[a.name] {
			c.add(a.n.keyAt, "", "%s is the name of the window's own column", a.name)
		}
	}
}

// emits finds which rows of a state are sent on.
func (c *checker) emits(o *output, st *stepDecl) {
	if o.window != nil && o.derived != nil && o.kept {
		o.emits = plan.EmitCloses
	}
	if st.emit == nil {
		return
	}
	switch {
	case st.emit.text == "closed" && o.window == nil:
		c.add(st.emit.at, "", "emit: closed needs a window")
	case o.derived == nil:
		c.add(st.emit.at, "", "no stream begins at %s", o.stream.name)
	case st.emit.text == "updates":
		o.emits = plan.EmitUpdates
	}
}

// windowLabel is how the window step of a stream that ends in an aggregate is called in errors.
func (s *streamDecl) windowLabel() string {
	for _, st := range s.steps {
		if st.op == "window" {
			return st.label
		}
	}
	return s.name
}

// windowText writes a window step in one line.
func windowText(st *stepDecl) string {
	op, arg := st.n.operator()
	text := "window " + op + " "
	if op == "count" {
		text += strconv.FormatInt(arg.num, 10)
	} else {
		text += arg.dur.String()
	}
	if n := st.n.get("every"); n != nil {
		if d, err := parseDuration(n.text); err == nil && op == "sliding" {
			text += " every " + d.String()
		} else {
			text += " every " + n.text
		}
	}
	if n := st.n.get("offset"); n != nil {
		text += " offset " + n.dur.String()
	}
	if n := st.n.get("zone"); n != nil {
		text += " zone " + n.text
	}
	if n := st.n.get("by"); n.str() == "batch" {
		text += " by batch time"
	}
	if n := st.n.get("late"); n != nil {
		text += " late to " + n.text
	}
	if n := st.n.get("retention"); n != nil {
		text += " kept " + n.dur.String()
	}
	return text
}
