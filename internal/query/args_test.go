package query_test

import (
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/state"
)

func TestArgs(t *testing.T) {
	params := []state.Column{
		{Name: "page", Type: "string"},
		{Name: "depth", Type: "int"},
		{Name: "share", Type: "float"},
		{Name: "amount", Type: "decimal"},
		{Name: "all", Type: "bool"},
		{Name: "at", Type: "timestamp"},
		{Name: "raw", Type: "bytes"},
		{Name: "tags", Type: "any"},
	}
	for _, c := range []struct {
		words []string
		want  string
		err   string
	}{
		{nil, `{}`, ""},
		{[]string{"/a", "3"}, `{"page":"/a","depth":3}`, ""},
		{[]string{"page=x=y", "2"}, `{"page":"x=y","depth":2}`, ""},
		{[]string{"depth=2", "a=b"}, `{"depth":2,"page":"a=b"}`, ""},
		{[]string{"null", "null"}, `{"page":"null","depth":null}`, ""},
		{[]string{`page=a"b`, "amount=12345678901234567890.25", "share=0.5", "all=true"}, `{"page":"a\"b","amount":"12345678901234567890.25","share":0.5,"all":true}`, ""},
		{[]string{"at=2026-01-01T00:00:00Z", "raw=aGk=", `tags=[1, {"x": 2}]`}, `{"at":"2026-01-01T00:00:00Z","raw":"aGk=","tags":[1,{"x":2}]}`, ""},
		{[]string{"depth=x"}, "", `depth: "x" is not an integer`},
		{[]string{"tags=["}, "", "tags: it isn't JSON"},
		{[]string{"page=a", "page=b"}, "", "page is given twice"},
		{[]string{"1", "2", "3", "4", "true", "2026-01-01T00:00:00Z", "aGk=", "1", "9"}, "", `"9": 8 arguments have values already`},
	} {
		args, err := query.ParseArgs(params, c.words)
		var got []byte
		if err == nil {
			got, err = query.ArgsJSON(params, args)
		}
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "the query takes page string, depth int") {
				t.Errorf("%q: error %v, want %q", c.words, err, c.err)
			}
		case err != nil || string(got) != c.want:
			t.Errorf("%q: %s, %v, want %s", c.words, got, err, c.want)
		}
	}
	if _, err := query.ArgsJSON(params, []query.Arg{{Name: "pag", Text: "x"}}); err == nil || !strings.Contains(err.Error(), "did you mean page?") {
		t.Errorf("%v", err)
	}
}
