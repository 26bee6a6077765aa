package replaytest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/rerun"
	"github.com/tridentd/tridentd/txstate"
)

// Recorded is a directory with records, made by Record or by hand. For each source it holds SOURCE.jsonl, a JSON object a line:
//
//	{"topic":"lines","partition":0,"offset":7,"timestamp":1767225600000,"key":"k","value":"a b","headers":[{"key":"h","value":"x"}]}
//
// Offsets rise within a partition. A key, value or header that is null or missing is Kafka's null; {"base64":"…"} stands for bytes
// that are no text. timestamp is in milliseconds since 1970, and may be missing. Before the first record of a CSV source stands
// {"fields":["a","b"]}, the columns.
//
// batches.jsonl, if it is there, says which records each batch took, its clock and its seed. Without it batches take 100 records of each
// partition, and the clock begins in 2026 and moves on by a second from batch to batch.
type Recorded string

const (
	batchesFile = "batches.jsonl"
	recordsExt  = ".jsonl"
	cutRecords  = 100 // of a partition in a batch, where the recording doesn't say
)

func (dir Recorded) verify(ctx context.Context, build func() *engine.Pipeline) ([]string, error) {
	pl, err := build().Plan()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range pl.Sources {
		ids = append(ids, s.ID)
	}
	in, err := read(string(dir), ids)
	if err != nil {
		return nil, err
	}
	return verify(ctx, build, in)
}

// payload is a key or a value: text, or bytes that are none.
type payload []byte

type base64Payload struct {
	Base64 []byte `json:"base64"`
}

func (p payload) MarshalJSON() ([]byte, error) {
	switch {
	case p == nil:
		return []byte("null"), nil
	case utf8.Valid(p):
		return json.Marshal(string(p))
	}
	return json.Marshal(base64Payload{p})
}

func (p *payload) UnmarshalJSON(b []byte) error {
	switch {
	case bytes.Equal(b, []byte("null")):
		*p = nil
		return nil
	case b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		*p = []byte(s)
		return err
	}
	var o base64Payload
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return err
	}
	if o.Base64 == nil {
		return errors.New(`neither text nor {"base64":"…"}`)
	}
	*p = o.Base64
	return nil
}

type headerLine struct {
	Key   string  `json:"key"`
	Value payload `json:"value"`
}

type recordLine struct {
	Fields    []string     `json:"fields,omitempty"`
	Topic     string       `json:"topic,omitempty"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp,omitempty"`
	Key       payload      `json:"key"`
	Value     payload      `json:"value"`
	Headers   []headerLine `json:"headers,omitempty"`
}

type rangeLine struct {
	Source    string `json:"source"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"start,omitempty"` // of a range, and of a partition that joins
	End       int64  `json:"end,omitempty"`
}

func (l *rangeLine) partition() batch.Partition {
	return batch.Partition{Source: l.Source, Topic: l.Topic, Number: l.Partition}
}

func lineOf(p batch.Partition, start, end int64) rangeLine {
	return rangeLine{Source: p.Source, Topic: p.Topic, Partition: p.Number, Start: start, End: end}
}

type batchLine struct {
	Txid   batch.Txid  `json:"txid"`
	Time   time.Time   `json:"time"`
	Seed   uint64      `json:"seed"`
	Ranges []rangeLine `json:"ranges"`
	Joined []rangeLine `json:"joined,omitempty"`
	Idle   []rangeLine `json:"idle,omitempty"`
}

// write makes a recording of in.
func write(dir string, in *rerun.Input) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for id, s := range in.Sources { // order: each file by itself
		var lines []any
		if s.Fields != nil {
			lines = append(lines, map[string]any{"fields": s.Fields})
		}
		for _, p := range s.Partitions() {
			for _, r := range s.Parts[p].Records {
				l := recordLine{Topic: p.Topic, Partition: p.Number, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
				for _, h := range r.Headers {
					l.Headers = append(l.Headers, headerLine{h.Key, h.Value})
				}
				lines = append(lines, l)
			}
		}
		if err := writeLines(filepath.Join(dir, id+recordsExt), lines); err != nil {
			return err
		}
	}
	var lines []any
	for i := range in.Batches {
		e := &in.Batches[i]
		l := batchLine{Txid: e.Txid, Time: e.Time, Seed: e.Seed, Ranges: []rangeLine{}}
		for _, r := range e.Ranges {
			l.Ranges = append(l.Ranges, lineOf(r.Partition, r.Start, r.End))
		}
		for _, p := range e.Joined {
			l.Joined = append(l.Joined, lineOf(p.Partition, p.Next, 0))
		}
		for _, p := range e.Idle {
			l.Idle = append(l.Idle, lineOf(p, 0, 0))
		}
		lines = append(lines, l)
	}
	return writeLines(filepath.Join(dir, batchesFile), lines)
}

func writeLines(path string, lines []any) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return w.Flush()
}

// read reads a recording of sources.
func read(dir string, sources []string) (*rerun.Input, error) {
	in := &rerun.Input{Sources: map[string]*rerun.Source{}}
	for _, id := range sources {
		path := filepath.Join(dir, id+recordsExt)
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, configuration(fmt.Errorf("the records of source %s: %w", id, err))
		}
		if in.Sources[id], err = parseRecords(id, path, b); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, batchesFile)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		cut(in)
	case err != nil:
		return nil, err
	default:
		if err := parseBatches(in, path, b); err != nil {
			return nil, err
		}
	}
	if len(in.Batches) == 0 {
		return nil, nothing("the recording in " + dir + " has no records")
	}
	return in, nil
}

func configuration(err error) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "read a recording", err, "make it anew with replaytest.Record, or mend the file")
}

// eachLine decodes the lines of a file, and completes what each has to say of one with its place.
func eachLine[T any](path string, b []byte, each func(l *T) error) error {
	n := 0
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		b = rest
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var l T
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		err := dec.Decode(&l)
		if err == nil {
			if _, more := dec.Token(); !errors.Is(more, io.EOF) {
				err = errors.New("more than one object")
			}
		}
		if err == nil {
			err = each(&l)
		}
		if err != nil {
			return configuration(fmt.Errorf("%s:%d: %w", path, n, err))
		}
	}
	return nil
}

func parseRecords(id, path string, b []byte) (*rerun.Source, error) {
	s := rerun.NewSource(id)
	err := eachLine(path, b, func(l *recordLine) error {
		if l.Fields != nil {
			if s.Fields != nil || len(s.Parts) > 0 {
				return errors.New("fields must come before the first record, and once")
			}
			s.Fields = l.Fields
			return nil
		}
		topic := l.Topic
		if topic == "" {
			topic = id
		}
		p := batch.Partition{Source: id, Topic: topic, Number: l.Partition}
		_, known := s.Parts[p]
		part := s.Part(p)
		switch {
		case l.Partition < 0 || l.Offset < 0 || l.Offset > maxOffset:
			return fmt.Errorf("partition %d, offset %d: neither is below 0 or too large", l.Partition, l.Offset)
		case known && l.Offset < part.End():
			return fmt.Errorf("offset %d of %s comes behind offset %d", l.Offset, p, part.End()-1)
		case !known:
			part.Start.Next = l.Offset
		}
		r := batch.Record{Offset: l.Offset, Timestamp: l.Timestamp, Key: l.Key, Value: l.Value}
		for _, h := range l.Headers {
			r.Headers = append(r.Headers, batch.Header{Key: h.Key, Value: h.Value})
		}
		part.Records = append(part.Records, r)
		return nil
	})
	return s, err
}

// maxOffset leaves room for an end behind it.
const maxOffset = 1<<62 - 1

// parseBatches reads batches, each of which goes on where the one before ended.
func parseBatches(in *rerun.Input, path string, b []byte) error {
	next := map[batch.Partition]int64{}
	known := func(l *rangeLine) (*rerun.Source, error) {
		s := in.Sources[l.Source]
		if s == nil {
			return nil, fmt.Errorf("the pipeline has no source %q", l.Source)
		}
		return s, nil
	}
	var clock time.Time
	return eachLine(path, b, func(l *batchLine) error {
		e := txstate.Entry{Txid: l.Txid, Time: l.Time.UTC(), Seed: l.Seed}
		switch want := batch.Txid(len(in.Batches) + 1); {
		case l.Txid != want:
			return fmt.Errorf("txid %d in place of %d", l.Txid, want)
		case e.Time.Before(clock) || !e.Time.Equal(e.Time.Truncate(time.Millisecond)) || e.Time.Year() < 1970 || e.Time.Year() > 2200:
			return fmt.Errorf("time %s: whole milliseconds, from 1970 to 2200, that never go back", l.Time.Format(time.RFC3339Nano))
		}
		clock = e.Time
		for i := range l.Joined {
			j := &l.Joined[i]
			s, err := known(j)
			if err != nil {
				return err
			}
			if _, ok := next[j.partition()]; ok || j.Topic == "" || j.Start < 0 || j.Start > maxOffset {
				return fmt.Errorf("%s joins twice, without a topic, or at offset %d", j.partition(), j.Start)
			}
			part := s.Part(j.partition())
			if len(part.Records) > 0 && part.Records[0].Offset < j.Start {
				return fmt.Errorf("%s joins at %d, behind its first record", j.partition(), j.Start)
			}
			part.Start.Next = j.Start
			next[j.partition()] = j.Start
			e.Joined = append(e.Joined, part.Start)
		}
		for i := range l.Ranges {
			r := &l.Ranges[i]
			p := r.partition()
			if start, ok := next[p]; !ok || start != r.Start || r.End <= r.Start || r.End > maxOffset {
				return fmt.Errorf("%s [%d,%d) doesn't go on where the batch before ended", p, r.Start, r.End)
			}
			next[p] = r.End
			e.Ranges = append(e.Ranges, txstate.RangeEntry{Range: batch.Range{Partition: p, Start: r.Start, End: r.End, LeaderEpoch: batch.NoEpoch}})
		}
		for i := range l.Idle {
			if _, ok := next[l.Idle[i].partition()]; !ok {
				return fmt.Errorf("%s is idle, and hasn't joined", l.Idle[i].partition())
			}
			e.Idle = append(e.Idle, l.Idle[i].partition())
		}
		if !rising(l.Ranges) || !rising(l.Joined) || !rising(l.Idle) {
			return errors.New("partitions aren't in order, each once: by source, topic and number")
		}
		in.Batches = append(in.Batches, e)
		return nil
	})
}

func rising(lines []rangeLine) bool {
	for i := 1; i < len(lines); i++ {
		if lines[i-1].partition().Compare(lines[i].partition()) >= 0 {
			return false
		}
	}
	return true
}

// cut makes batches of the records where nobody has said which they are.
func cut(in *rerun.Input) {
	var parts []*rerun.Part
	for _, s := range in.Sources {
		for _, p := range s.Parts {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b *rerun.Part) int { return a.Start.Compare(b.Start.Partition) })
	done := make([]int, len(parts))
	for {
		n := len(in.Batches)
		e := txstate.Entry{Txid: batch.Txid(n + 1), Time: rerun.Clock.Add(time.Duration(n) * time.Second), Seed: xxhash.Sum64String(fmt.Sprint("recorded", n))}
		for i, p := range parts {
			if n == 0 {
				e.Joined = append(e.Joined, p.Start)
			}
			to := min(done[i]+cutRecords, len(p.Records))
			if to == done[i] {
				continue
			}
			start := p.Start.Next
			if done[i] > 0 {
				start = p.Records[done[i]-1].Offset + 1
			}
			e.Ranges = append(e.Ranges, txstate.RangeEntry{Range: batch.Range{
				Partition: p.Start.Partition, Start: start, End: p.Records[to-1].Offset + 1, LeaderEpoch: batch.NoEpoch,
			}})
			done[i] = to
		}
		if len(e.Ranges) == 0 {
			return
		}
		in.Batches = append(in.Batches, e)
	}
}
