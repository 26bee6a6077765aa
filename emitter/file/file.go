// Package file reads batches from files: plain lines, JSON lines, or CSV behind a header line; plain, .gz (all
// members) or .zst.
//
// Every file is a partition, and a record's offset is its number in the file, from 0; the header line of CSV is no
// record. A position carries a fingerprint of all bytes below it, so that a file which isn't what it was when its
// records were processed is an error and never a different answer. What was once read as a record stays that record:
// a file may grow at its end, nothing else.
//
// # Where a record ends
//
// A line ends with LF or CRLF; neither belongs to the record. CSV records may hold line ends within quotes, and empty
// lines between them are passed over. A byte order mark at the beginning of a file is passed over too.
//
// A last line without a line end is a record in a compressed file, which is complete when it is there, and in any
// file once Ends has been asked, as a bounded run does: the file then counts as it is. Otherwise the line may still be
// in the writing, and waits for its end. If a line that was taken as a record goes on later, that is an error.
//
// # What may happen to a file
//
// While it is open a plain file is looked at every second: it goes on where it has grown; one that has become shorter,
// or that was replaced by another with other content, is an error. Compressed files are read once, to their end;
// what was appended (another gzip member) is found at the next start. Files that begin to match a pattern become
// partitions at their beginning; a compressed one does when it has stopped growing. Move files into place rather than
// write them there.
//
// A damaged file (cut off, garbled) stops the pipeline when all records before the damage have committed. With the
// file repaired, the next start goes on behind them.
package file

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// Source reads files.
type Source struct {
	globs []string
	tuning
}

// tuning are the figures that tests set otherwise.
type tuning struct {
	poll    time.Duration // between two looks at files and patterns
	block   int           // bytes read at once
	record  int           // bytes of the largest record
	ahead   int64         // bytes read and not planned yet, of all files
	open    int           // files open at a time
	workers int           // goroutines that read
}

var defaults = tuning{
	poll:    time.Second,
	block:   256 << 10,
	record:  16 << 20,
	ahead:   64 << 20,
	open:    4,
	workers: 2,
}

// Paths returns a source of the named files. A name with *, ? or [ is a pattern as filepath.Match knows it; it may
// match files that come later, or none. Relative names are relative to the pipeline's directory. The source's
// partitions are named after the files, as they were given.
func Paths(globs ...string) Source { return Source{globs: slices.Clone(globs), tuning: defaults} }

// Describe names the files.
func (s Source) Describe() string { return "files " + strings.Join(s.globs, ", ") }

// Inputs lists the files.
func (s Source) Inputs() []string { return slices.Clone(s.globs) }

// Open returns an emitter of the files.
func (s Source) Open(id string, framing emitter.Framing, env emitter.Env) (emitter.Emitter, error) {
	if len(s.globs) == 0 {
		return nil, configuration(fmt.Errorf("source %s names no file", id), "give at least one path")
	}
	for _, g := range s.globs {
		if err := checkPattern(g); err != nil {
			return nil, err
		}
	}
	if env.Logger == nil {
		env.Logger = hclog.NewNullLogger()
	}
	if s.poll == 0 {
		s.tuning = defaults
	}
	return newEmitter(id, s, framing, env), nil
}

func configuration(err error, remedy string) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "open", err, remedy)
}
