package workload

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Result is what a program under test says at the moment its last record is committed: one line on standard output,
// `RESULT` and this as JSON. What it takes from the system until then is what is measured; the totals are written
// afterwards, into the file it was given, and don't count.
type Result struct {
	Records int64 `json:"records"` // counted and committed
	First   int64 `json:"first"`   // when it began to read, in milliseconds since 1970
	Commit  int64 `json:"commit"`  // when the last record was committed
	Batches int64 `json:"batches,omitempty"`
	// Allocs is the number of heap allocations since First; programs that can't tell leave it out.
	Allocs int64 `json:"allocs,omitempty"`
}

const resultMark = "RESULT "

// Print writes the line.
func (r Result) Print(w io.Writer) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", resultMark, b)
	return err
}

// ParseResult reads the line; ok is false if it is another one.
func ParseResult(line string) (r Result, ok bool, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), resultMark)
	if !ok {
		return r, false, nil
	}
	if err := json.Unmarshal([]byte(rest), &r); err != nil {
		return r, true, fmt.Errorf("%q: %w", line, err)
	}
	return r, true, nil
}
