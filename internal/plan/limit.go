package plan

// Limiter counts, by key, what a limit lets pass in one task and batch.
type Limiter struct {
	Rows   int64 // of each key
	passed map[string]int64
}

// Reset begins a batch.
func (l *Limiter) Reset() { clear(l.passed) }

// Full tells whether no more rows of a key may pass.
func (l *Limiter) Full(key []byte) bool { return l.passed[string(key)] >= l.Rows }

// Note counts a row that has passed.
func (l *Limiter) Note(key []byte) {
	if l.passed == nil {
		l.passed = map[string]int64{}
	}
	l.passed[string(key)]++
}

// Take counts one more row of a key, unless none may pass any more: it is false then.
func (l *Limiter) Take(key []byte) bool {
	if l.Full(key) {
		return false
	}
	l.Note(key)
	return true
}
