package kafkagroup

import "testing"

// FuzzStamp: the metadata of an offset is ours only if it says of which pipeline, and then reads back as it was written.
func FuzzStamp(f *testing.F) {
	f.Add(stamp{Pipeline: "words", Source: "lines", Txid: 7, Epoch: 2}.encode())
	f.Add(`{"tridentd":1}`)
	f.Add("")
	f.Add("null")
	f.Fuzz(func(t *testing.T, metadata string) {
		s := parseStamp(metadata)
		if s == nil {
			return
		}
		if s.Pipeline == "" {
			t.Fatal("a stamp of nobody")
		}
		s.Version = stampVersion
		if again := parseStamp(s.encode()); again == nil || *again != *s {
			t.Errorf("%+v came back as %+v", s, again)
		}
	})
}
