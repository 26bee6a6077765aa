package server

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
)

// rowsType is the form in which Client asks for rows. It keeps every value as it is, which JSON doesn't: a decimal
// stays a decimal. It is a sequence of frames, each a kind (one byte), a length (uvarint) and as many bytes:
//
//	h  once, first: rowsHead as JSON
//	r  one row: its values one after the other, as value.AppendBinary writes them
//	e  in place of the rest, if something failed: ErrorStatus as JSON
//	.  once, last: empty. An answer without it was cut off.
const rowsType = "application/vnd.tridentd.rows"

const (
	frameHead  = 'h'
	frameRow   = 'r'
	frameError = 'e'
	frameEnd   = '.'
)

// maxFrame bounds what a reader believes of a frame's length.
const maxFrame = 256 << 20

type rowsHead struct {
	Txid    batch.Txid     `json:"txid"`
	Columns []state.Column `json:"columns"`
}

// rowEncoder writes the answer to a query in one form.
type rowEncoder interface {
	RowWriter
	end()
	fail(error) // after Begin
}

// jsonRows writes an array of objects, whose fields are in the order of the columns.
type jsonRows struct {
	*stream
	list  jsonList
	names [][]byte // `{"a":`, `,"b":`, …
	buf   []byte
}

func (j *jsonRows) Begin(txid batch.Txid, columns []state.Column) error {
	for i, c := range columns {
		name, err := json.Marshal(c.Name)
		if err != nil {
			return fmt.Errorf("server: column name %q: %w", c.Name, err)
		}
		lead := byte(',')
		if i == 0 {
			lead = '{'
		}
		j.names = append(j.names, append(append([]byte{lead}, name...), ':'))
	}
	j.w.Header().Set(TxidHeader, strconv.FormatUint(uint64(txid), 10))
	j.list.stream = j.stream
	j.list.start()
	return nil
}

func (j *jsonRows) Row(values []value.Value) error {
	checkWidth(len(values), len(j.names))
	if err := j.list.next(); err != nil {
		return err
	}
	b := j.buf[:0]
	for i, v := range values {
		b = append(b, j.names[i]...)
		b = value.AppendJSON(b, v)
	}
	b = append(b, '}', '\n')
	j.buf = b
	_, err := j.Write(b)
	return err
}

func (j *jsonRows) end() { j.list.end() }

// fail has no place in an array of rows to tell the error.
func (j *jsonRows) fail(error) { j.abort() }

// binaryRows writes frames: see rowsType.
type binaryRows struct {
	*stream
	columns int
	buf     []byte
}

func (b *binaryRows) Begin(txid batch.Txid, columns []state.Column) error {
	b.columns = len(columns)
	b.begin(rowsType)
	return b.frameJSON(frameHead, rowsHead{Txid: txid, Columns: columns})
}

func (b *binaryRows) Row(values []value.Value) error {
	checkWidth(len(values), b.columns)
	b.buf = b.buf[:0]
	for _, v := range values {
		b.buf = value.AppendBinary(b.buf, v)
	}
	return b.frame(frameRow, b.buf)
}

func (b *binaryRows) end() {
	// An error stays with the buffer until the flush, which means that the reader has gone.
	_ = b.frame(frameEnd, nil)
	b.stream.end()
}

func (b *binaryRows) fail(err error) {
	_ = b.frameJSON(frameError, ErrorStatusOf(err, time.Time{}))
	b.stream.end()
}

func (b *binaryRows) frameJSON(kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("server: %T as JSON: %v", v, err))
	}
	return b.frame(kind, text)
}

func (b *binaryRows) frame(kind byte, body []byte) error {
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = kind
	n := 1 + binary.PutUvarint(head[1:], uint64(len(body)))
	if _, err := b.Write(head[:n]); err != nil {
		return err
	}
	_, err := b.Write(body)
	return err
}

func checkWidth(values, columns int) {
	if values != columns {
		panic(fmt.Sprintf("server: a row of %d values for %d columns", values, columns))
	}
}

// readRows reads frames into w.
func readRows(in io.Reader, w RowWriter) error {
	r := bufio.NewReaderSize(in, streamBuffer)
	kind, body, err := readFrame(r, nil)
	if err != nil {
		return err
	}
	if kind != frameHead {
		return fmt.Errorf("server: rows begin with frame %q", kind)
	}
	var head rowsHead
	if err := json.Unmarshal(body, &head); err != nil {
		return fmt.Errorf("server: head of rows: %w", err)
	}
	if err := w.Begin(head.Txid, head.Columns); err != nil {
		return err
	}
	row := make([]value.Value, len(head.Columns))
	for {
		if kind, body, err = readFrame(r, body); err != nil {
			return err
		}
		switch kind {
		case frameEnd:
			return nil
		case frameError:
			var st ErrorStatus
			if err := json.Unmarshal(body, &st); err != nil {
				return fmt.Errorf("server: error among rows: %w", err)
			}
			return st.Err()
		case frameRow:
			rest := body
			for i := range row {
				if row[i], rest, err = value.DecodeBinary(rest); err != nil {
					return fmt.Errorf("server: column %s of a row: %w", head.Columns[i].Name, err)
				}
			}
			if len(rest) > 0 {
				return fmt.Errorf("server: a row has %d bytes too many", len(rest))
			}
			if err := w.Row(row); err != nil {
				return err
			}
		default:
			return fmt.Errorf("server: unknown frame %q among rows", kind)
		}
	}
}

func readFrame(r *bufio.Reader, buf []byte) (kind byte, body []byte, err error) {
	if kind, err = r.ReadByte(); err == nil {
		var n uint64
		if n, err = binary.ReadUvarint(r); err == nil {
			if n > maxFrame {
				return 0, nil, fmt.Errorf("server: a frame of %d bytes", n)
			}
			if uint64(cap(buf)) < n {
				buf = make([]byte, n)
			}
			body = buf[:n]
			_, err = io.ReadFull(r, body)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, nil, fmt.Errorf("server: the answer was cut off: %w", io.ErrUnexpectedEOF)
	}
	return kind, body, err
}
