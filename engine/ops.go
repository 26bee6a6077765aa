package engine

// Map replaces each value.
func Map[T, U any](s Stream[T], f func(T) U) Stream[U] {
	out := derive[U](s)
	out.n.named(s.p, "map", "")
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		if !b.careful {
			return func(rc *rec, v T) { next(rc, f(v)) }
		}
		return func(rc *rec, v T) {
			var u U
			if rc.guard(step, func() { u = f(v) }) {
				next(rc, u)
			}
		}
	})
	return out
}

// TryMap is Map for a function that needs the batch, or can fail.
func TryMap[T, U any](s Stream[T], f func(b *Batch, v T) (U, error)) Stream[U] {
	out := derive[U](s)
	out.n.named(s.p, "map", "")
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		view := &Batch{step: step}
		return func(rc *rec, v T) {
			view.rc = rc
			var u U
			ok := rc.try(b, step, func() (err error) {
				u, err = f(view, v)
				return err
			})
			if ok {
				next(rc, u)
			}
		}
	})
	return out
}

// FlatMap replaces each value by any number of values.
func FlatMap[T, U any](s Stream[T], f func(T) []U) Stream[U] {
	out := derive[U](s)
	out.n.named(s.p, "flat_map", "")
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		return func(rc *rec, v T) {
			var us []U
			if !b.careful {
				us = f(v)
			} else if !rc.guard(step, func() { us = f(v) }) {
				return
			}
			for _, u := range us {
				next(rc, u)
			}
		}
	})
	return out
}

// Each calls f, which may emit any number of values for each value: Trident's each with a function.
func Each[T, U any](s Stream[T], f func(b *Batch, v T, emit func(U))) Stream[U] {
	return process(s, "each", func(b *Batch, v T, emit func(U)) error {
		f(b, v, emit)
		return nil
	})
}

// Process is Each for a function that can fail. What it emitted before it failed is dropped.
func Process[T, U any](s Stream[T], f func(b *Batch, v T, emit func(U)) error) Stream[U] {
	return process(s, "process", f)
}

func process[T, U any](s Stream[T], kind string, f func(b *Batch, v T, emit func(U)) error) Stream[U] {
	out := derive[U](s)
	out.n.named(s.p, kind, "")
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		view := &Batch{step: step}
		var held []U
		emit := func(u U) { held = append(held, u) }
		return func(rc *rec, v T) {
			view.rc = rc
			clear(held)
			held = held[:0]
			if !rc.try(b, step, func() error { return f(view, v, emit) }) {
				return
			}
			for _, u := range held {
				next(rc, u)
			}
		}
	})
	return out
}

// Filter keeps the values for which f is true.
func (s Stream[T]) Filter(f func(T) bool) Stream[T] {
	out := derive[T](s)
	out.n.named(s.p, "filter", "")
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		if !b.careful {
			return func(rc *rec, v T) {
				if f(v) {
					next(rc, v)
				} else {
					rc.tc.Filtered++
				}
			}
		}
		return func(rc *rec, v T) {
			keep := false
			if !rc.guard(step, func() { keep = f(v) }) {
				return
			}
			if keep {
				next(rc, v)
			} else {
				rc.tc.Filtered++
			}
		}
	})
	return out
}

// TryFilter is Filter for a function that needs the batch, or can fail.
func (s Stream[T]) TryFilter(f func(b *Batch, v T) (bool, error)) Stream[T] {
	out := derive[T](s)
	out.n.named(s.p, "filter", "")
	s.to(func(b *builder) push[T] {
		step := out.n.step
		next := out.n.build(b)
		view := &Batch{step: step}
		return func(rc *rec, v T) {
			view.rc = rc
			var keep bool
			ok := rc.try(b, step, func() (err error) {
				keep, err = f(view, v)
				return err
			})
			switch {
			case ok && keep:
				next(rc, v)
			case ok:
				rc.tc.Filtered++
			}
		}
	})
	return out
}

// Peek shows each value to f and passes it on. f is called again whenever a batch is run again, so that it suits
// debugging, not effects.
func (s Stream[T]) Peek(f func(b *Batch, v T)) Stream[T] {
	out := derive[T](s)
	const step = "peek" // without a number: it must not rename the steps behind it
	out.n.step = step
	s.to(func(b *builder) push[T] {
		next := out.n.build(b)
		view := &Batch{step: step}
		return func(rc *rec, v T) {
			view.rc = rc
			if !b.careful {
				f(view, v)
			} else if !rc.guard(step, func() { f(view, v) }) {
				return
			}
			next(rc, v)
		}
	})
	return out
}
