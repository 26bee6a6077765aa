package codec

import "strings"

const (
	// textChunk is what is allocated at once for the strings of records, in bytes.
	textChunk = 4096
	// longText is from where on a string gets memory of its own: the end of a chunk that it doesn't fit into is lost.
	longText = textChunk / 16
)

// texts makes the strings of one goroutine's records, many from one allocation. Who keeps one of them keeps its chunk.
type texts struct{ chunk strings.Builder }

func (t *texts) of(text []byte) string {
	switch n := len(text); {
	case n >= longText:
		return string(text)
	case t.chunk.Cap()-t.chunk.Len() < n:
		t.chunk.Reset()
		t.chunk.Grow(textChunk)
	}
	at := t.chunk.Len()
	t.chunk.Write(text)
	return t.chunk.String()[at:]
}
