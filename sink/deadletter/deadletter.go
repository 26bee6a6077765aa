// Package deadletter defines what becomes of a record that a pipeline turns away under the policy dead_letter: a letter with the record's
// own bytes, its place, and the cause. A letter goes to its target as any other output of its batch does, once.
//
// A letter has two forms, and both give it back whole: a line of JSON ([Letter.AppendJSON], [ParseJSON]), and a record of Kafka, which is
// the original one with headers added ([Letter.Record], [Parse]).
package deadletter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// Sink is the name of the sink of a pipeline that takes its dead letters.
const Sink = "dead_letters"

// Kinds of letters.
const (
	Bad    = "bad"    // the record couldn't be decoded, or a step failed on it
	Late   = "late"   // its event time lay behind the watermark
	Future = "future" // its event time lay too far ahead
)

// MaxCause is the most bytes of a cause that a letter holds.
const MaxCause = 4096

// Letter is one record that was turned away.
type Letter struct {
	Pipeline string
	Txid     batch.Txid
	Kind     string
	// Partition is where the record was read. Of a row behind an aggregate or a repartitioning it is the stage's name and the shard,
	// without a topic: no single record stands for the row.
	Partition batch.Partition
	Offset    int64 // of the record; of a row of a stage its number among those turned away there
	Timestamp int64 // of the record, in milliseconds since 1970; 0: it has none
	Step      string
	Cause     string
	Key       []byte // nil: none
	Value     []byte // nil: null
	Headers   []batch.Header
}

// Row tells of a letter that holds a row of a stage instead of a record.
func (l *Letter) Row() bool { return l.Partition.Topic == "" }

// ShortCause cuts a cause to MaxCause bytes, between two characters.
func ShortCause(s string) string {
	if len(s) <= MaxCause {
		return s
	}
	n := MaxCause
	for n > MaxCause-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// The headers that a record of Kafka has besides its own, behind them and in this order.
const prefix = "tridentd."

var added = [...]string{
	prefix + "pipeline", prefix + "txid", prefix + "kind", prefix + "source", prefix + "topic", prefix + "partition", prefix + "offset",
	prefix + "timestamp", prefix + "step", prefix + "cause",
}

// Record makes r the letter's record of Kafka: key, value and headers as they were, and the added headers, as text. A record that has no
// time of its own has an empty tridentd.timestamp. What r refers to is the letter's.
func (l *Letter) Record(r *sink.Record) {
	r.Key, r.Value = l.Key, l.Value
	timestamp := ""
	if l.Timestamp != 0 {
		timestamp = strconv.FormatInt(l.Timestamp, 10)
	}
	r.Headers = append(r.Headers, l.Headers...)
	for i, v := range [len(added)]string{
		l.Pipeline, strconv.FormatUint(uint64(l.Txid), 10), l.Kind, l.Partition.Source, l.Partition.Topic, strconv.Itoa(int(l.Partition.Number)),
		strconv.FormatInt(l.Offset, 10), timestamp, l.Step, l.Cause,
	} {
		r.Headers = append(r.Headers, batch.Header{Key: added[i], Value: []byte(v)})
	}
}

// ErrNoLetter is what Parse returns of a record that nobody made of a letter.
var ErrNoLetter = errors.New("the record doesn't end in the headers " + added[0] + " to " + added[len(added)-1])

// Parse reads the letter that Record made a record of. It refers to the record's memory.
func Parse(key, value []byte, headers []batch.Header) (*Letter, error) {
	own := len(headers) - len(added)
	if own < 0 {
		return nil, ErrNoLetter
	}
	var text [len(added)]string
	for i, h := range headers[own:] {
		if h.Key != added[i] {
			return nil, ErrNoLetter
		}
		text[i] = string(h.Value)
	}
	l := &Letter{
		Pipeline: text[0], Kind: text[2], Partition: batch.Partition{Source: text[3], Topic: text[4]}, Step: text[8], Cause: text[9],
		Key: key, Value: value, Headers: headers[:own:own],
	}
	var err error
	number := func(i, bits int) int64 {
		n, nerr := strconv.ParseInt(text[i], 10, bits)
		if nerr != nil && err == nil {
			err = fmt.Errorf("header %s: %q is not a whole number", added[i], text[i])
		}
		return n
	}
	l.Txid = batch.Txid(number(1, 64))
	l.Partition.Number = int32(number(5, 32))
	l.Offset = number(6, 64)
	if text[7] != "" {
		l.Timestamp = number(7, 64)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Read reads a letter in whichever of the two forms it is.
func Read(key, value []byte, headers []batch.Header) (*Letter, error) {
	l, err := Parse(key, value, headers)
	if errors.Is(err, ErrNoLetter) && len(headers) == 0 {
		return ParseJSON(value)
	}
	return l, err
}

// TimeText writes a record's timestamp as letters do.
func TimeText(ms int64) string {
	return strings.Replace(time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00"), ".000Z", "Z", 1)
}
