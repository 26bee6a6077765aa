package spec

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/tridentd/tridentd/internal/csvscan"
)

// maxHeader bounds the header line of a CSV file, in bytes.
const maxHeader = 1 << 20

// readHeaders looks at the header lines of CSV files, so that a misspelt column is a mistake of the pipeline's file
// and not of its run. What can't be looked at now (a file that is yet to come, or that is damaged) is left to the
// run, which tells what is wrong with it.
func (m *model) readHeaders(dir string) {
	for _, s := range m.sources {
		if s.connector == "file" && s.decode.kind == "csv" {
			s.header = m.headerOf("source "+s.name, dir, s.settings.get("paths").texts())
		}
	}
	for _, s := range m.statics {
		if s.decode.kind == "csv" {
			s.header = m.headerOf("state "+s.name, dir, s.paths.texts())
		}
	}
}

// headerOf returns the columns that all of the files have; nil if there is no file yet.
func (m *model) headerOf(what, dir string, patterns []string) []string {
	var common []string
	for _, p := range patterns {
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		paths, err := filepath.Glob(p)
		if err != nil {
			continue
		}
		for _, path := range paths {
			h, err := headerLine(path)
			if err != nil {
				m.notes = append(m.notes, fmt.Sprintf("%s: the header line of %s can't be read yet: %v", what, path, err))
				continue
			}
			if common == nil {
				common = h
				continue
			}
			common = slices.DeleteFunc(common, func(c string) bool { return !slices.Contains(h, c) })
		}
	}
	if common == nil {
		m.notes = append(m.notes, what+": no file could be looked at: its columns are checked when it runs")
	}
	return common
}

func headerLine(path string) (columns []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	var r io.Reader = f
	switch {
	case strings.HasSuffix(path, ".gz"):
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		r = z
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	}
	return firstRecord(bufio.NewReader(io.LimitReader(r, maxHeader)))
}

// firstRecord reads the first CSV record of r, behind a byte order mark and empty lines.
func firstRecord(r *bufio.Reader) ([]string, error) {
	var text []byte
	for first := true; ; first = false {
		line, err := r.ReadBytes('\n')
		if first {
			line = trimMark(line)
		}
		text = append(text, line...)
		rec, size := csvscan.Cut(text)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, err
			}
			rec, size = csvscan.Rest(text), len(text)
			if size == 0 {
				return nil, errors.New("it is empty")
			}
		}
		if size == 0 {
			continue
		}
		if len(rec) == 0 {
			text = text[:0]
			continue
		}
		fields, _, err := csvscan.Split(rec, nil, nil)
		if err != nil {
			return nil, err
		}
		var columns []string
		for _, f := range fields {
			columns = append(columns, string(f))
		}
		return columns, nil
	}
}

func trimMark(line []byte) []byte {
	const mark = "\xef\xbb\xbf"
	if strings.HasPrefix(string(line), mark) {
		return line[len(mark):]
	}
	return line
}
