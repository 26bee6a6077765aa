package filesink

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// Form is what rows become in a file.
type Form string

// The forms. A record's value is JSON in all of them: a line as it is in one of JSON lines, and otherwise an object of which the columns
// are taken.
const (
	FormJSON    Form = "json"
	FormCSV     Form = "csv"
	FormParquet Form = "parquet"
)

// Format is the form of files and how they are packed. Its zero value is JSON lines, not packed.
type Format struct {
	Form Form
	// Columns of CSV and Parquet, in their order.
	Columns []Column
	// Compression is none, gzip or zstd, of Parquet snappy too; empty: none, of Parquet snappy.
	Compression string
}

// Column is one field of the rows.
type Column struct {
	Name string
	Type Type // CSV doesn't ask
	Elem Type // of a list
	// Scale is how many digits behind the point a decimal has in Parquet; more of them than that aren't taken. 0 to MaxScale.
	Scale int
}

// Type is what a column of Parquet holds. Null may stand in each.
type Type uint8

// The types, with what stands for them in JSON.
const (
	TypeBool      Type = iota
	TypeInt            // of 64 bits
	TypeUint           // of 64 bits
	TypeFloat          // a number, "NaN", "+Inf" or "-Inf"
	TypeDecimal        // a string or a number
	TypeString         //
	TypeBytes          // base64
	TypeTimestamp      // RFC 3339
	TypeJSON           // any value: its text
	TypeList           // an array of Elem, which is none
)

var typeNames = [...]string{"bool", "int", "uint", "float", "decimal", "string", "bytes", "timestamp", "json", "list"}

func (t Type) String() string { return typeNames[t] }

// A decimal of Parquet has at most Precision digits, Scale of them behind the point.
const (
	Precision    = 38
	MaxScale     = Precision
	DefaultScale = 9
)

// Check says what is wrong with the format.
func (f *Format) Check() error {
	packs := []string{"", "none", "gzip", "zstd"}
	switch f.Form {
	case "", FormJSON:
	case FormCSV:
	case FormParquet:
		packs = append(packs, "snappy")
	default:
		return fmt.Errorf("encode: %q is not one of json, csv, parquet", f.Form)
	}
	if !slices.Contains(packs, f.Compression) {
		return fmt.Errorf("compression: %q is not one of %s", f.Compression, strings.Join(packs[1:], ", "))
	}
	if f.Form != FormCSV && f.Form != FormParquet {
		return nil
	}
	if len(f.Columns) == 0 {
		return errors.New("the rows have no fields")
	}
	for i, c := range f.Columns {
		switch {
		case slices.ContainsFunc(f.Columns[:i], func(d Column) bool { return d.Name == c.Name }):
			return fmt.Errorf("two fields are named %s", c.Name)
		case c.Scale < 0 || c.Scale > MaxScale:
			return fmt.Errorf("scale: %d is not within 0 and %d", c.Scale, MaxScale)
		}
	}
	return nil
}

// Text names the form and the packing.
func (f *Format) Text() string {
	text := string(f.Form)
	if text == "" {
		text = string(FormJSON)
	}
	if f.packed() {
		text += " " + f.Compression
	}
	return text
}

func (f *Format) packed() bool { return f.Compression != "" && f.Compression != "none" }

// extension of the files' names.
func (f *Format) extension() string {
	if f.Form == FormParquet {
		return ".parquet" // its pages are packed, the file isn't
	}
	ext := ".jsonl"
	if f.Form == FormCSV {
		ext = ".csv"
	}
	switch f.Compression {
	case "gzip":
		ext += ".gz"
	case "zstd":
		ext += ".zst"
	}
	return ext
}

// rows writes the rows of one file. The same rows make the same bytes.
type rows interface {
	add(r *sink.Record) error // batch.CodeBadRecord: the row can't be written
	end() error
}

// begin begins a file.
func (f *Format) begin(w io.Writer) (rows, error) {
	if f.Form == FormParquet {
		return newParquetRows(w, f)
	}
	out := &lines{w: bufio.NewWriterSize(w, 64<<10)}
	switch f.Compression {
	case "gzip":
		out.pack = gzip.NewWriter(out.w)
	case "zstd":
		// One goroutine: where blocks are cut mustn't depend on how many there are.
		z, err := zstd.NewWriter(out.w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		out.pack = z
	}
	if f.Form == FormCSV {
		return newCSVRows(out, f.Columns)
	}
	return &jsonRows{lines: out}, nil
}

// lines is a text, packed or not.
type lines struct {
	w    *bufio.Writer
	pack io.WriteCloser // nil: none
}

func (l *lines) Write(b []byte) (int, error) {
	if l.pack != nil {
		return l.pack.Write(b)
	}
	return l.w.Write(b)
}

func (l *lines) end() error {
	if l.pack != nil {
		if err := l.pack.Close(); err != nil {
			return err
		}
	}
	return l.w.Flush()
}

// jsonRows writes values as lines, as they are.
type jsonRows struct {
	*lines
	line []byte
}

func (j *jsonRows) add(r *sink.Record) error {
	j.line = append(j.line[:0], r.Value...)
	if r.Value == nil {
		j.line = append(j.line, "null"...)
	}
	if slices.Contains(j.line, '\n') {
		return badRow(errors.New("the value holds a line break, which ends a record in the file"), "write it as JSON")
	}
	_, err := j.Write(append(j.line, '\n'))
	return err
}

func badRow(err error, remedy string) error {
	return batch.NewError(batch.Permanent, batch.CodeBadRecord, "write", err, remedy)
}

// Fits returns what says why a row can't be written in the format, to be asked where a row may still be turned away. It is nil if each row
// with the columns' types can be written. Many goroutines may call it at once.
func (f *Format) Fits() func(row []byte) error {
	if f.Form != FormParquet {
		return nil
	}
	var doubtful []Column
	for _, c := range f.Columns {
		t := c.Type
		if t == TypeList {
			t = c.Elem
		}
		if t == TypeDecimal || t == TypeTimestamp {
			doubtful = append(doubtful, c)
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	pool := sync.Pool{New: func() any { return newDocument(doubtful) }}
	return func(row []byte) error {
		d := pool.Get().(*document)
		defer pool.Put(d)
		if err := d.read(row); err != nil {
			return err
		}
		for i := range doubtful {
			if _, err := d.value(i); err != nil {
				return err
			}
		}
		return nil
	}
}
