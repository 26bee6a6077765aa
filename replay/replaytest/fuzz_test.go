package replaytest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/rerun"
)

// FuzzRecording: what isn't a recording is refused with the file's name; what is can be written and read again.
func FuzzRecording(f *testing.F) {
	const record = `{"topic":"t","partition":0,"offset":3,"timestamp":5,"key":null,"value":"a","headers":[{"key":"h","value":{"base64":"/w=="}}]}`
	const one = `{"txid":1,"time":"2026-01-01T00:00:00.001Z","seed":18446744073709551615,"joined":[{"source":"s","topic":"t","partition":0,"start":3}],` +
		`"ranges":[{"source":"s","topic":"t","partition":0,"start":3,"end":4}]}`
	const two = `{"txid":2,"time":"2026-01-01T00:00:01Z","seed":1,"ranges":[],"idle":[{"source":"s","topic":"t","partition":0}]}`
	f.Add([]byte(record), []byte(one+"\n"+two))
	f.Add([]byte(`{"fields":["a","b"]}`+"\n"+record), []byte{})
	f.Add([]byte(`{"value":{"base64":""}}`), []byte("{}"))
	f.Fuzz(func(t *testing.T, records, batches []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "s.jsonl"), records, 0o600); err != nil {
			t.Fatal(err)
		}
		if len(batches) > 0 {
			if err := os.WriteFile(filepath.Join(dir, batchesFile), batches, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		in, err := read(dir, []string{"s"})
		if err != nil {
			if batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent {
				t.Fatalf("%v", err)
			}
			return
		}
		copied := t.TempDir()
		if err := write(copied, in); err != nil {
			t.Fatal(err)
		}
		again, err := read(copied, []string{"s"})
		if err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		if len(again.Batches) != len(in.Batches) || len(again.Sources["s"].Parts) < len(partsWithRecords(in.Sources["s"])) {
			t.Errorf("%+v, was %+v", again, in)
		}
	})
}

func partsWithRecords(s *rerun.Source) (all []*rerun.Part) {
	for _, p := range s.Parts {
		if len(p.Records) > 0 {
			all = append(all, p)
		}
	}
	return all
}
