package exec

// InFlight tells how many batches the executor holds anything for.
func (x *Executor) InFlight() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.flights)
}

// Watermark is what the last committed batch left for a source, in nanoseconds.
func (x *Executor) Watermark(source string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.times.marks[x.sourceAt[source]]
}
