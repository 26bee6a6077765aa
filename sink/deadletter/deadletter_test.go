package deadletter

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

func anyLetter(t *rapid.T) *Letter {
	maybe := func(name string) []byte {
		return rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOf(rapid.Byte()), rapid.Custom(func(t *rapid.T) []byte { return []byte(rapid.String().Draw(t, "text")) })).Draw(t, name)
	}
	text := rapid.StringN(1, 20, -1)
	l := &Letter{
		Pipeline: text.Draw(t, "pipeline"), Txid: batch.Txid(rapid.Uint64Range(1, math.MaxInt64).Draw(t, "txid")),
		Kind:      rapid.SampledFrom([]string{Bad, Late, Future}).Draw(t, "kind"),
		Partition: batch.Partition{Source: text.Draw(t, "source"), Topic: rapid.String().Draw(t, "topic"), Number: rapid.Int32Min(0).Draw(t, "partition")},
		Offset:    rapid.Int64Min(0).Draw(t, "offset"),
		Timestamp: rapid.Int64Range(-1e12, 4e12).Draw(t, "timestamp"),
		Step:      text.Draw(t, "step"), Cause: rapid.String().Draw(t, "cause"), Key: maybe("key"), Value: maybe("value"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		key := rapid.SampledFrom([]string{"a", "tridentd.txid", "tridentd.cause"}).Draw(t, "header")
		l.Headers = append(l.Headers, batch.Header{Key: key, Value: maybe("header value")})
	}
	return l
}

// Both forms give a letter back whole, also one whose record was a letter before.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLetter(t)
		text := l.AppendJSON([]byte("x"))[1:]
		if bytes.IndexByte(text, '\n') >= 0 || !utf8.Valid(text) {
			t.Fatalf("no line of text: %q", text)
		}
		again, err := ParseJSON(text)
		if err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("%s\n%+v\n%+v: %v", text, l, again, err)
		}
		if again, err = Read(nil, text, nil); err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("read in whichever form: %+v: %v", again, err)
		}
		var r sink.Record
		l.Record(&r)
		again, err = Parse(r.Key, r.Value, r.Headers)
		if len(l.Headers) == 0 && again != nil && len(again.Headers) == 0 {
			again.Headers = nil
		}
		if err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("%+v\n%+v\n%+v: %v", r, l, again, err)
		}
	})
}

func TestForms(t *testing.T) {
	l := &Letter{
		Pipeline: "orders", Txid: 7, Kind: Bad, Partition: batch.Partition{Source: "in", Topic: "orders", Number: 2}, Offset: 41, Timestamp: 1_700_000_000_250,
		Step: "decode", Cause: `no "JSON" <here>`, Key: []byte("k"), Value: []byte{0xff, 0}, Headers: []batch.Header{{Key: "h", Value: []byte("1")}, {Key: "null"}},
	}
	const want = `{"pipeline":"orders","txid":7,"kind":"bad","source":"in","topic":"orders","partition":2,"offset":41,"timestamp":"2023-11-14T22:13:20.250Z","step":"decode",` +
		`"cause":"no \"JSON\" <here>","key":"k","value":{"base64":"/wA="},"headers":[{"key":"h","value":"1"},{"key":"null","value":null}]}`
	if got := string(l.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var r sink.Record
	l.Record(&r)
	var names []string
	for _, h := range r.Headers {
		names = append(names, h.Key+"="+string(h.Value))
	}
	const headers = `h=1 null= tridentd.pipeline=orders tridentd.txid=7 tridentd.kind=bad tridentd.source=in tridentd.topic=orders tridentd.partition=2 tridentd.offset=41 ` +
		`tridentd.timestamp=1700000000250 tridentd.step=decode tridentd.cause=no "JSON" <here>`
	if got := strings.Join(names, " "); got != headers {
		t.Errorf("got  %s\nwant %s", got, headers)
	}
	if string(r.Key) != "k" || !bytes.Equal(r.Value, l.Value) || l.Row() {
		t.Errorf("key %q, value %q, row %t", r.Key, r.Value, l.Row())
	}
}

func TestNoLetter(t *testing.T) {
	if _, err := Parse(nil, []byte("x"), []batch.Header{{Key: "tridentd.txid", Value: []byte("7")}}); !errors.Is(err, ErrNoLetter) {
		t.Errorf("a record without the headers: %v", err)
	}
	var r sink.Record
	(&Letter{Pipeline: "p", Txid: 1}).Record(&r)
	r.Headers[6].Value = []byte("x")
	if _, err := Parse(r.Key, r.Value, r.Headers); err == nil || !strings.Contains(err.Error(), `header tridentd.offset: "x" is not a whole number`) {
		t.Errorf("a wrong offset: %v", err)
	}
	for _, line := range []string{"", "x", "{}", `{"pipeline":"p","txid":1,"other":2}`, `{"pipeline":"p","txid":1,"value":7}`, `{"pipeline":"p","txid":1,"value":{}}`, `{"pipeline":"p","txid":1,"timestamp":"noon"}`} {
		if _, err := ParseJSON([]byte(line)); err == nil || !strings.Contains(err.Error(), "no dead letter") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestShortCause(t *testing.T) {
	if got := ShortCause("short"); got != "short" {
		t.Error(got)
	}
	for _, char := range []string{"x", "é", "€", "😀"} {
		got := ShortCause("a" + strings.Repeat(char, MaxCause))
		if len(got) > MaxCause || len(got) <= MaxCause-utf8.UTFMax || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, valid %t", char, len(got), utf8.ValidString(got))
		}
	}
}
