package storm

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// ReadFile reads positions from a file called name: JSON objects with the fields topic, partition and next, the offset to be
// processed next, one behind the other, in an array or in the field positions of an object (the form of offsets export); or
// CSV with a header of these three. Other fields are passed over.
func ReadFile(name string, r io.Reader) (*Left, error) {
	b := bufio.NewReader(r)
	first, err := peek(b)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var f findings
	if first == '{' || first == '[' {
		err = f.readJSON(name, b, first == '[')
	} else {
		err = f.readCSV(name, b)
	}
	if err != nil {
		return nil, err
	}
	return f.result(name, "write one position a line: {\"topic\":\"words\",\"partition\":0,\"next\":120}")
}

// peek returns the first byte that isn't white space.
func peek(b *bufio.Reader) (byte, error) {
	for {
		c, err := b.ReadByte()
		switch {
		case err != nil:
			return 0, err
		case bytes.IndexByte([]byte(" \t\r\n"), c) >= 0:
			continue
		}
		return c, b.UnreadByte()
	}
}

const jsonRemedy = "write positions as {\"topic\":\"words\",\"partition\":0,\"next\":120}"

// addObject adds the position that a JSON object says.
func (f *findings) addObject(o object, where string) {
	topic, err := o.text("topic")
	var number int64
	p := Position{Topic: topic, From: where}
	if err == nil {
		number, err = o.integer("partition", 0)
	}
	if err == nil {
		p.Next, err = o.integer("next", 0)
	}
	if err == nil && number > math.MaxInt32 {
		err = fmt.Errorf("has partition %d", number)
	}
	if err != nil {
		f.fail(where, jsonRemedy, "%w", err)
		return
	}
	p.Partition = int32(number)
	f.add(p)
}

func (f *findings) readJSON(name string, r io.Reader, array bool) error {
	d := json.NewDecoder(r)
	d.UseNumber()
	if array {
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	for n := 1; d.More(); n++ {
		where := fmt.Sprintf("%s: position %d", name, n)
		var o object
		if err := d.Decode(&o); err != nil {
			return failure(where, jsonRemedy, "isn't a JSON object: %w", err)
		}
		exported, ok := o["positions"].([]any)
		if !ok {
			f.addObject(o, where)
			continue
		}
		for i, v := range exported {
			o, _ := v.(map[string]any)
			f.addObject(o, fmt.Sprintf("%s: position %d", name, i+1))
		}
	}
	if array {
		if _, err := d.Token(); err != nil {
			return failure(name, "end the array with ]", "is cut off: %w", err)
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return failure(name, jsonRemedy, "has something behind its positions")
	}
	return nil
}

func (f *findings) readCSV(name string, r io.Reader) error {
	const remedy = "write a header and lines of topic,partition,next"
	c := csv.NewReader(r)
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return failure(name, remedy, "isn't CSV: %w", err)
	}
	column := map[string]int{}
	for i, h := range header {
		column[h] = i
	}
	for _, want := range []string{"topic", "partition", "next"} {
		if _, ok := column[want]; !ok {
			return failure(name, remedy, "has no column %q in its first line", want)
		}
	}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failure(name, remedy, "isn't CSV: %w", err)
		}
		line, _ := c.FieldPos(0)
		where := fmt.Sprintf("%s: line %d", name, line)
		p := Position{Topic: row[column["topic"]], From: where}
		number, errN := strconv.ParseInt(row[column["partition"]], 10, 32)
		at, errP := strconv.ParseInt(row[column["next"]], 10, 64)
		switch {
		case p.Topic == "":
			f.fail(where, remedy, "names no topic")
			continue
		case errN != nil || number < 0:
			f.fail(where, remedy, "has partition %q", row[column["partition"]])
			continue
		case errP != nil || at < 0:
			f.fail(where, remedy, "has %q where the next offset was expected", row[column["next"]])
			continue
		}
		p.Partition, p.Next = int32(number), at
		f.add(p)
	}
}
