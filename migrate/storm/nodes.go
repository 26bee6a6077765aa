package storm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// object is a node's JSON, whose numbers keep all their digits.
type object map[string]any

// parse reads what Storm writes by json-simple or Jackson: one JSON value and nothing behind it.
func parse(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("isn't JSON (%q): %w", clip(data), err)
	}
	if len(bytes.TrimSpace(data[d.InputOffset():])) > 0 {
		return nil, fmt.Errorf("has something behind its JSON (%q)", clip(data))
	}
	return v, nil
}

func parseObject(data []byte) (object, error) {
	v, err := parse(data)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		return v, nil
	case nil:
		return nil, errNull
	}
	return nil, fmt.Errorf("holds %q, where an object was expected", clip(data))
}

var errNull = errors.New("holds null: Storm itself would begin at the start that the topology is set to")

// clip shortens what is quoted in an error.
func clip(data []byte) string {
	const most = 80
	if len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}

// integer returns a field that must be an integer of at least least.
func (o object) integer(name string, least int64) (int64, error) {
	v, ok := o[name]
	if !ok {
		return 0, fmt.Errorf("has no field %q", name)
	}
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("has %v in field %q, where an integer was expected", v, name)
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("has %s in field %q, where an integer was expected", n, name)
	case i < least:
		return 0, fmt.Errorf("has %d in field %q, below %d", i, name, least)
	}
	return i, nil
}

// text returns a field that must be a string.
func (o object) text(name string) (string, error) {
	v, ok := o[name]
	if !ok {
		return "", fmt.Errorf("has no field %q", name)
	}
	s, ok := v.(string)
	if !ok || s == "" {
		return "", fmt.Errorf("has %v in field %q, where a name was expected", v, name)
	}
	return s, nil
}

// topology is the name in the field "topology", which older releases leave out.
func (o object) topology() string {
	t, _ := o["topology"].(map[string]any)
	name, _ := t["name"].(string)
	return name
}

// next is one past an inclusive offset.
func next(last int64) (int64, error) {
	if last == math.MaxInt64 {
		return 0, errors.New("ends at the largest offset there is")
	}
	return last + 1, nil
}

// partitionDir reads the name of storm-kafka's node of a partition (class Partition, getId): partition_3.
func partitionDir(name string) (int32, bool) {
	digits, ok := strings.CutPrefix(name, "partition_")
	if !ok {
		return 0, false
	}
	return number(digits)
}

// number reads a partition's number as Java writes it: without sign and leading zeros.
func number(digits string) (int32, bool) {
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return 0, false
	}
	return int32(n), true
}
