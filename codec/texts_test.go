package codec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/codec"
)

// TestStrings: the strings of records stay what they were, whatever is decoded after them, and share allocations.
func TestStrings(t *testing.T) {
	type visit struct {
		User codec.Null[string]
		Tags []string
	}
	json, csv, plain := codec.JSON[visit]().New(), codec.CSV[struct{ User string }]().New(), codec.String().New()
	if err := csv.Begin([]string{"user"}); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for i := range 3000 {
		text := strings.Repeat("é", i%200) + fmt.Sprint(i) // up to 404 bytes: short ones, then long ones
		var v visit
		if err := json.Decode(record(`{"user":"`+text+`","tags":["`+text+`1","\n`+text+`"]}`), &v); err != nil {
			t.Fatal(err)
		}
		var row struct{ User string }
		if err := csv.Decode(record(text), &row); err != nil {
			t.Fatal(err)
		}
		var line string
		if err := plain.Decode(record(text), &line); err != nil {
			t.Fatal(err)
		}
		got = append(got, v.User.V, v.Tags[0], v.Tags[1], row.User, line)
		want = append(want, text, text+"1", "\n"+text, text, text)
	}
	if !slices.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("string %d of %d is %q, want %q", i, len(got), got[i], want[i])
			}
		}
	}

	type user struct{ Name, Page string }
	d, r := codec.JSON[user]().New(), record(`{"name":"u0012345","page":"/products/771"}`)
	var v user
	const runs = 1000
	if n := testing.AllocsPerRun(1, func() {
		for range runs {
			if err := d.Decode(r, &v); err != nil {
				t.Fatal(err)
			}
		}
	}); n > runs/20 {
		t.Errorf("%v allocations for %d records of two short strings", n, runs)
	}
}
