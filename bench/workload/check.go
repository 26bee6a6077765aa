package workload

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Expected is what a program must have counted once it has taken all records.
type Expected struct {
	Records int64 `json:"records"`
	Keys    int64 `json:"keys"`
	Count   int64 `json:"count"` // over all keys
	Sum     int64 `json:"sum"`
	// Digest covers each key with its count and sum; the order doesn't matter.
	Digest string `json:"digest"`
}

// Check adds up what a program has counted. The zero value is ready for use.
type Check struct {
	keys, count, sum int64
	digest           uint64
	line             []byte
}

// Add takes the total of one key. Each key may come once.
func (c *Check) Add(key string, t Total) {
	c.keys++
	c.count += t.Count
	c.sum += t.Sum
	c.line = AppendLine(c.line[:0], key, t)
	c.digest += xxhash.Sum64(c.line) // a sum, so that the order doesn't matter
}

// AppendLine appends a line of a file of totals: the key, its count and its sum.
func AppendLine(dst []byte, key string, t Total) []byte {
	dst = append(dst, key...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, t.Count, 10)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, t.Sum, 10)
	return append(dst, '\n')
}

// Expected is what has been added so far, out of so many records.
func (c *Check) Expected(records int64) Expected {
	return Expected{Records: records, Keys: c.keys, Count: c.count, Sum: c.sum, Digest: fmt.Sprintf("%016x", c.digest)}
}

// Compare reads a file of totals and says how it differs from what is expected; nil if it doesn't.
func (e Expected) Compare(r io.Reader) error {
	var c Check
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		if len(f) != 3 {
			return fmt.Errorf("line %d of the totals is %q, want a key, a count and a sum", n, sc.Text())
		}
		count, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return fmt.Errorf("line %d of the totals: %w", n, err)
		}
		sum, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return fmt.Errorf("line %d of the totals: %w", n, err)
		}
		c.Add(f[0], Total{count, sum})
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("reading the totals: %w", err)
	}
	if got := c.Expected(e.Records); got != e {
		return fmt.Errorf("the totals are %+v, want %+v", got, e)
	}
	return nil
}

// CompareFile is Compare on a file.
func (e Expected) CompareFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return e.Compare(f)
}

// Save writes what is expected into a file, for another process to read.
func (e Expected) Save(name string) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

// ReadExpected reads what Save wrote.
func ReadExpected(name string) (Expected, error) {
	var e Expected
	b, err := os.ReadFile(name)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(b, &e)
}
