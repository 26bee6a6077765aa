// Package doctor holds what a check of the servers around a pipeline finds: one Finding per fact, with what to do about it.
//
// A source or a store of the master's record that can be checked implements Checker. Checks change nothing, but for probe
// nodes that they remove again, and end with their context.
package doctor

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
)

// Level says how much a finding matters.
type Level uint8

const (
	OK    Level = iota // as it should be
	Warn               // works now, and may not later
	Error              // must be mended
)

func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	case Error:
		return "error"
	}
	return "unknown"
}

// Finding is one fact about one server, topic, group or path.
type Finding struct {
	Level   Level
	Subject string     // what it is about: "kafka 127.0.0.1:9092", "kafka topic lines", "zookeeper 127.0.0.1:2181/trident"
	Code    batch.Code // empty for OK
	Text    string     // what is so
	Remedy  string     // an imperative sentence; empty for OK
}

// Env is what a check is given.
type Env struct {
	Pipeline string
	Source   string // the source's id; empty for what isn't a source
	Sink     string // the sink's name; empty for what isn't a sink
	Dir      string // what relative paths are relative to; empty: the working directory
	Locked   bool   // the pipeline runs under a lock, so that its offsets go through transactions
	Running  bool   // a process runs the pipeline at the moment, so that positions move
	Logger   hclog.Logger
	// Positions are those that the store holds of the source; nil if there is no store yet.
	Positions []batch.Position
}

// Checker can be checked. The order of its findings is always the same; within ctx it reports what it could find out, and
// what hung.
type Checker interface {
	Check(ctx context.Context, env Env) []Finding
}

// Of makes a finding of an error that stands in the way: at the level Error, with its cause and remedy.
func Of(subject string, err error) Finding {
	f := Finding{Level: Error, Subject: subject, Code: batch.CodeOf(err), Text: err.Error()}
	if e, ok := errors.AsType[*batch.Error](err); ok {
		f.Remedy = e.Remedy
		if e.Err != nil {
			f.Text = e.Err.Error()
		}
	}
	if f.Remedy == "" {
		f.Remedy = "look into the cause, and try again"
	}
	return f
}
