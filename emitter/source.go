package emitter

import "github.com/hashicorp/go-hclog"

// Framing says how a byte stream is cut into records. Sources with records of their own (Kafka) ignore it.
type Framing uint8

const (
	Lines Framing = iota // one record per line
	CSV                  // RFC 4180 records behind a header line
)

// Env is what a source is opened with.
type Env struct {
	Logger hclog.Logger
	// Buffer bounds what the source fetches before batches take it, in bytes; 0: the source's own default. A source that is told of a
	// lower bound keeps that.
	Buffer int64
	Dir    string // what relative paths are relative to; empty: the working directory
}

// Source describes where a pipeline reads; each run of the pipeline opens an emitter of its own from it.
type Source interface {
	// Describe names the source in a plan, in one line, without secrets. Equal descriptions read the same data.
	Describe() string
	Open(id string, framing Framing, env Env) (Emitter, error)
}
