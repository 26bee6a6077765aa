package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/tridentd/tridentd/batch"
)

// compressed tells by its name whether a file is read through a decompressor. Such a file is complete when it is
// there; a plain one may grow.
func compressed(path string) bool {
	return strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".zst")
}

// stream is an opened file, decompressed.
type stream struct {
	io.Reader
	f    *os.File
	zr   *zstd.Decoder
	info os.FileInfo
}

// damage marks an error of a decompressor: the file's content is at fault, not the reading of it. It doesn't unwrap,
// as an io.EOF inside means anything but a good end.
type damage struct{ err error }

func (d *damage) Error() string {
	if errors.Is(d.err, io.ErrUnexpectedEOF) || errors.Is(d.err, io.EOF) {
		return "the file is cut off in the middle of its compressed data"
	}
	return "the compressed data is garbled: " + d.err.Error()
}

// openStream opens a regular file at its beginning.
func openStream(path string) (s *stream, err error) {
	// A pipe would block in Open for as long as nobody writes to it.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, &irregular{path: path, mode: info.Mode()}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	s = &stream{Reader: f, f: f}
	if s.info, err = f.Stat(); err != nil {
		return nil, err
	}
	switch {
	case strings.HasSuffix(path, ".gz"):
		zr, err := gzip.NewReader(bufio.NewReaderSize(f, 64<<10))
		if err != nil {
			return nil, decompressing(err)
		}
		s.Reader = reader(zr.Read)
	case strings.HasSuffix(path, ".zst"):
		// Several goroutines for one file would only take cores from other files and from the pipeline.
		if s.zr, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1)); err != nil {
			return nil, err
		}
		s.Reader = reader(s.zr.Read)
	}
	return s, nil
}

// reader makes the errors of a decompressor known as such.
type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) {
	n, err := r(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = decompressing(err)
	}
	return n, err
}

func decompressing(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return &damage{err}
}

func (s *stream) close() error {
	if s.zr != nil {
		s.zr.Close()
	}
	return s.f.Close()
}

// irregular is the error for what is no file.
type irregular struct {
	path string
	mode fs.FileMode
}

func (e *irregular) Error() string {
	if e.mode.IsDir() {
		return e.path + " is a directory"
	}
	return fmt.Sprintf("%s is no regular file (%s)", e.path, e.mode.Type())
}

// located makes err an error of one file at a record. What is known about it already stays.
func (f *partition) located(op string, record int64, err error) error {
	var known *batch.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known) && known.Partition == batch.Partition{}:
		return known.At(f.id, record)
	case known != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	e := batch.NewError(batch.Transient, batch.CodeUnavailable, op, err, "")
	var dam *damage
	var irr *irregular
	var ch *changed
	switch {
	case errors.As(err, &ch):
		e.Kind, e.Code = batch.Permanent, batch.CodeFileChanged
		e.Remedy = "put the file back as it was (it may have grown at its end), give the new content another name, or start over in an empty data directory"
	case errors.As(err, &dam):
		e.Kind, e.Code = batch.Permanent, batch.CodeFileDamaged
		switch {
		case op == "open":
			e.Err = fmt.Errorf("damaged before record %d, where reading was to go on: %w", record, err)
		case record == 0:
			e.Err = fmt.Errorf("damaged before its first record: %w", err)
		default:
			e.Err = fmt.Errorf("damaged behind record %d: %w", record-1, err)
		}
		e.Remedy = "put a whole copy of the file in its place and start again; what was committed stays, and reading goes on behind it"
	case errors.As(err, &irr):
		e.Kind, e.Code = batch.Permanent, batch.CodeConfiguration
		e.Remedy = "name files, or use a pattern such as dir/*.csv"
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Code = batch.Permanent, batch.CodeFileMissing
		e.Err = fmt.Errorf("%s does not exist", f.path)
		e.Remedy = "put the file back, or take it off the list"
		if near, ok := nearest(f.path); ok {
			e.Remedy = fmt.Sprintf("did you mean %s?", near)
		}
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Code = batch.Permanent, batch.CodeUnauthorized
		e.Remedy = "give this process the right to read it"
	}
	return e.At(f.id, record)
}
