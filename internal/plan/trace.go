package plan

// Trace holds what the steps of a task handed on in one run. Two runs of the same range are compared by it, to find the
// step whose results aren't a function of the batch.
type Trace struct{ Steps []TraceStep }

// TraceStep is one step. It comes behind the steps that it takes its values from, or names them in From.
type TraceStep struct {
	Name   string
	From   []int // by index in Trace.Steps
	Values []TraceValue
}

// TraceValue is a value that a step handed on.
type TraceValue struct {
	Offset int64 // of the record that it comes from
	Digest uint64
	Text   string // shortened
}

// TraceLimit is how many values a step notes at most.
const TraceLimit = 50_000

// TraceDifference is the first step at which two runs part, though it was given the same.
type TraceDifference struct {
	Step          string
	Offset        int64
	First, Second string // empty where a run handed on nothing
}

// Differ compares two runs of one task; ok is false if no step tells them apart.
func (t *Trace) Differ(u *Trace) (d TraceDifference, ok bool) {
	n := min(len(t.Steps), len(u.Steps))
	at := make([]int, n) // by step: the first value that differs, -1 if none does
	for i := range n {
		at[i] = differAt(t.Steps[i].Values, u.Steps[i].Values)
	}
	for i := range n {
		if at[i] < 0 || anyDiffers(at, t.Steps[i].From) {
			continue
		}
		d = TraceDifference{Step: t.Steps[i].Name}
		a, b := valueAt(t.Steps[i].Values, at[i]), valueAt(u.Steps[i].Values, at[i])
		switch {
		case b == nil || a != nil && a.Offset < b.Offset:
			d.Offset, d.First = a.Offset, a.Text
		case a == nil || b.Offset < a.Offset:
			d.Offset, d.Second = b.Offset, b.Text
		default:
			d.Offset, d.First, d.Second = a.Offset, a.Text, b.Text
		}
		return d, true
	}
	return d, false
}

func anyDiffers(at, steps []int) bool {
	for _, i := range steps {
		if i < len(at) && at[i] >= 0 {
			return true
		}
	}
	return false
}

func differAt(a, b []TraceValue) int {
	for i := range min(len(a), len(b)) {
		if a[i].Offset != b[i].Offset || a[i].Digest != b[i].Digest {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

func valueAt(vs []TraceValue, i int) *TraceValue {
	if i >= len(vs) {
		return nil
	}
	return &vs[i]
}
