package daemon

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/internal/query"
	"github.com/tridentd/tridentd/migrate/storm"
	"github.com/tridentd/tridentd/state"
)

// FuzzImportedRows: a file of rows is taken whole or refused with its name and line; no key is taken twice.
func FuzzImportedRows(f *testing.F) {
	enc, err := query.NewEncoder(state.Schema{
		Name: "s", Kind: "rows", Key: []state.Column{{Name: "word", Type: "string"}}, Values: []state.Column{{Name: "n", Type: "int"}},
	}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"word":"a","n":1}`+"\n"+`{"word":"b","n":2}`), uint8(storm.Plain))
	f.Add([]byte(`{"word":"a","n":[3,1]}`+"\n"), uint8(storm.Transactional))
	f.Add([]byte(`{"word":"a","n":[4,1,null]}`+"\n\n"), uint8(storm.Opaque))
	f.Add([]byte("[1]"), uint8(9))
	f.Fuzz(func(t *testing.T, b []byte, form uint8) {
		rows, err := readRows(bytes.NewReader(b), "rows.jsonl", enc, storm.Format(form%3), 4)
		if err != nil {
			if !strings.Contains(err.Error(), "rows.jsonl:") {
				t.Errorf("%v doesn't name file and line", err)
			}
			return
		}
		keys := map[string]bool{}
		for _, r := range rows {
			if len(r.Key) == 0 || keys[string(r.Key)] {
				t.Errorf("key %x is empty, or taken twice", r.Key)
			}
			keys[string(r.Key)] = true
		}
	})
}
