package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/batch"
)

// line is the letter as an object of JSON.
type line struct {
	Pipeline  string   `json:"pipeline"`
	Txid      uint64   `json:"txid"`
	Kind      string   `json:"kind"`
	Source    string   `json:"source"`
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *string  `json:"timestamp"`
	Step      string   `json:"step"`
	Cause     string   `json:"cause"`
	Key       raw      `json:"key"`
	Value     raw      `json:"value"`
	Headers   []header `json:"headers"`
}

type header struct {
	Key   string `json:"key"`
	Value raw    `json:"value"`
}

// raw is bytes in JSON: a string if they are UTF-8, else {"base64": …}; nil is null.
type raw []byte

func (r raw) MarshalJSON() ([]byte, error) {
	if r == nil {
		return []byte("null"), nil
	}
	if utf8.Valid(r) {
		return marshal(string(r))
	}
	return json.Marshal(map[string][]byte{"base64": r})
}

func (r *raw) UnmarshalJSON(b []byte) error {
	switch {
	case bytes.Equal(b, []byte("null")):
		*r = nil
		return nil
	case len(b) > 0 && b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		*r = []byte(s)
		return err
	}
	var o struct {
		Base64 *[]byte `json:"base64"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	if o.Base64 == nil || *o.Base64 == nil {
		return errors.New(`bytes are a string, {"base64": "…"} or null`)
	}
	*r = *o.Base64
	return nil
}

// marshal writes JSON without the escapes that HTML needs.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// AppendJSON appends the letter as one line of JSON, without the line's end. Bytes that are UTF-8 are strings; others are
// {"base64": "…"}.
func (l *Letter) AppendJSON(dst []byte) []byte {
	v := line{
		Pipeline: l.Pipeline, Txid: uint64(l.Txid), Kind: l.Kind, Source: l.Partition.Source, Topic: l.Partition.Topic,
		Partition: l.Partition.Number, Offset: l.Offset, Step: l.Step, Cause: l.Cause, Key: l.Key, Value: l.Value, Headers: []header{},
	}
	if l.Timestamp != 0 {
		t := TimeText(l.Timestamp)
		v.Timestamp = &t
	}
	for _, h := range l.Headers {
		v.Headers = append(v.Headers, header{h.Key, h.Value})
	}
	b, err := marshal(&v)
	if err != nil {
		panic("deadletter: " + err.Error()) // a line holds only numbers, strings and bytes
	}
	return append(dst, b...)
}

// ParseJSON reads the letter that AppendJSON wrote.
func ParseJSON(b []byte) (*Letter, error) {
	var v line
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("the line is no dead letter: %w", err)
	}
	l := &Letter{
		Pipeline: v.Pipeline, Txid: batch.Txid(v.Txid), Kind: v.Kind, Partition: batch.Partition{Source: v.Source, Topic: v.Topic, Number: v.Partition},
		Offset: v.Offset, Step: v.Step, Cause: v.Cause, Key: v.Key, Value: v.Value,
	}
	if v.Pipeline == "" || v.Txid == 0 {
		return nil, errors.New("the line is no dead letter: it names no pipeline and txid")
	}
	if v.Timestamp != nil {
		t, err := time.Parse(time.RFC3339, *v.Timestamp)
		if err != nil {
			return nil, fmt.Errorf("the line is no dead letter: timestamp: %w", err)
		}
		l.Timestamp = t.UnixMilli()
	}
	for _, h := range v.Headers {
		l.Headers = append(l.Headers, batch.Header{Key: h.Key, Value: h.Value})
	}
	return l, nil
}
