package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/csvscan"
)

// block is a run of records of one file with the bytes that hold them.
type block struct {
	base    int64 // number of the first record
	records []span
	raw     []byte
	fields  []string // the header line's columns; nil for lines
	values  int64    // bytes of all records' values

	pos int64         // raw bytes of the file before raw
	sum xxhash.Digest // of them
}

// span is one record within a block's raw bytes.
type span struct {
	start, end uint32 // its value
	next       uint32 // behind its line end, if it has one
}

func (b *block) next() int64 { return b.base + int64(len(b.records)) }

// identity is the file's fingerprint at record n, which is behind the block's first and at most next.
func (b *block) identity(n int64) string {
	to := b.records[n-b.base-1].next
	return b.fingerprint(to).String()
}

func (b *block) fingerprint(to uint32) fingerprint {
	sum := b.sum
	_, _ = sum.Write(b.raw[:to]) // never fails
	return fingerprint{bytes: b.pos + int64(to), sum: sum.Sum64()}
}

// append appends the records [from, to) to rs.
func (b *block) append(rs []batch.Record, from, to int64) []batch.Record {
	for i := from; i < to; i++ {
		s := b.records[i-b.base]
		rs = append(rs, batch.Record{Offset: i, Value: b.raw[s.start:s.end:s.end]})
	}
	return rs
}

// fingerprint identifies the beginning of a file: the xxHash64 of its first bytes, decompressed.
type fingerprint struct {
	bytes int64
	sum   uint64
}

func (f fingerprint) String() string { return fmt.Sprintf("%d:%016x", f.bytes, f.sum) }

func parseFingerprint(s string) (fingerprint, error) {
	n, sum, ok := strings.Cut(s, ":")
	var f fingerprint
	var err, err2 error
	f.bytes, err = strconv.ParseInt(n, 10, 64)
	f.sum, err2 = strconv.ParseUint(sum, 16, 64)
	if !ok || err != nil || err2 != nil || f.bytes < 0 || f.String() != s {
		return fingerprint{}, fmt.Errorf("%q is no fingerprint of a file", s)
	}
	return f, nil
}

// cutter reads a file from its beginning and cuts it into records. Between two calls it may be detached from the file
// and attached again: what it has consumed doesn't change.
type cutter struct {
	path    string
	framing emitter.Framing
	size    int // of a block's buffer, in bytes
	most    int // bytes of a record

	s    *stream
	info os.FileInfo // of the file that pos and sum come from
	buf  []byte
	have []byte // read and not consumed: a part of buf

	pos    int64         // raw bytes consumed
	sum    xxhash.Digest // of them
	next   int64         // number of the next record
	header []string
	tail   bool // the last record ended with the file: what comes next must be its line end
}

var byteOrderMark = []byte("\ufeff")

func newCutter(path string, framing emitter.Framing, size, most int) *cutter {
	c := &cutter{path: path, framing: framing, size: size, most: most}
	c.sum.Reset()
	return c
}

// attach opens the file where the cutter stands. It may be another file by now (a rotated log): then everything
// consumed must stand in it too.
func (c *cutter) attach(ctx context.Context) error {
	if c.s != nil {
		return nil
	}
	s, err := openStream(c.path)
	if err != nil {
		return err
	}
	c.have = nil
	same := c.info != nil && os.SameFile(c.info, s.info) && !compressed(c.path)
	switch {
	case same && s.info.Size() < c.pos:
		err = &changed{at: fingerprint{c.pos, c.sum.Sum64()}, now: fingerprint{bytes: s.info.Size()}}
	case same:
		_, err = s.f.Seek(c.pos, io.SeekStart)
	default:
		err = skip(ctx, s, fingerprint{c.pos, c.sum.Sum64()}, nil)
	}
	if err != nil {
		return errors.Join(err, s.close())
	}
	c.s, c.info = s, s.info
	return nil
}

// detach closes the file.
func (c *cutter) detach() error {
	if c.s == nil {
		return nil
	}
	err := c.s.close()
	c.s, c.have, c.buf = nil, nil, nil
	return err
}

// changed says that a file's beginning isn't what it was.
type changed struct {
	at, now fingerprint // now has fewer bytes if the file is shorter
	tail    bool        // the last line was taken as a record and goes on now
}

func (c *changed) Error() string {
	switch {
	case c.tail:
		return fmt.Sprintf("the last line was read as a record at byte %d, and the file now goes on within that line", c.at.bytes)
	case c.now.bytes < c.at.bytes:
		return fmt.Sprintf("%d bytes were read before, now the file holds %d", c.at.bytes, c.now.bytes)
	}
	return fmt.Sprintf("the first %d bytes differ from what was read before: their fingerprint was %016x, now it is %016x", c.at.bytes, c.at.sum, c.now.sum)
}

// skip reads the bytes that fp covers and compares. sum, unless nil, is left at fp's end.
func skip(ctx context.Context, r io.Reader, fp fingerprint, sum *xxhash.Digest) error {
	if sum == nil {
		sum = xxhash.New()
	}
	sum.Reset()
	buf := make([]byte, min(fp.bytes, 256<<10))
	for n := int64(0); n < fp.bytes; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		m, err := r.Read(buf[:min(fp.bytes-n, int64(len(buf)))])
		_, _ = sum.Write(buf[:m])
		n += int64(m)
		switch {
		case err == io.EOF && n < fp.bytes:
			return &changed{at: fp, now: fingerprint{n, sum.Sum64()}}
		case err != nil && err != io.EOF:
			return err
		}
	}
	if got := sum.Sum64(); got != fp.sum {
		return &changed{at: fp, now: fingerprint{fp.bytes, got}}
	}
	return nil
}

// resume puts a new cutter behind the record next-1, to which fp belongs, after comparing all that lies before.
func (c *cutter) resume(ctx context.Context, next int64, fp fingerprint) error {
	if c.framing == emitter.CSV {
		// The header line lies below. A reading of its own keeps the other one free of framing.
		h := newCutter(c.path, c.framing, min(c.size, 64<<10), c.most)
		err := h.attach(ctx)
		if err == nil {
			_, err = h.cut(ctx, true)
		}
		if err := errors.Join(err, h.detach()); h.header == nil && err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		c.header = h.header
	}
	s, err := openStream(c.path)
	if err != nil {
		return err
	}
	last := &lastByte{r: s}
	if err := skip(ctx, last, fp, &c.sum); err != nil {
		return errors.Join(err, s.close())
	}
	c.s, c.info, c.pos, c.next = s, s.info, fp.bytes, next
	if c.tail = last.b != '\n'; c.tail {
		if err := c.fill(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, _, err := c.endTail(c.have); err != nil {
			return err
		}
	}
	return nil
}

// lastByte remembers the last byte that went through it.
type lastByte struct {
	r io.Reader
	b byte
}

func (l *lastByte) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if n > 0 {
		l.b = p[n-1]
	}
	return n, err
}

// fill reads until the buffer is full or the file ends, which is io.EOF: a file that grows may go on later.
func (c *cutter) fill() error {
	if len(c.buf) == 0 {
		c.buf = make([]byte, c.size)
		c.have = c.buf[:copy(c.buf, c.have)]
	}
	for len(c.have) < len(c.buf) {
		n, err := c.s.Read(c.buf[len(c.have):])
		c.have = c.buf[:len(c.have)+n]
		if err != nil {
			return err
		}
	}
	return nil
}

// cut returns the next records, at least one, or io.EOF if there is none. final says that the file is complete: a last
// line without a line end is a record then. On any other error the records before it have been returned already.
func (c *cutter) cut(ctx context.Context, final bool) (*block, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		err := c.fill()
		if err != nil && !errors.Is(err, io.EOF) {
			// What was read before the fault is whole, and counts.
			if b, cutErr := c.take(false); b != nil || cutErr != nil {
				return b, cutErr
			}
			return nil, err
		}
		ended := err != nil
		b, cutErr := c.take(ended && final)
		switch {
		case b != nil || cutErr != nil:
			return b, cutErr
		case ended:
			return nil, io.EOF
		case len(c.have) == len(c.buf): // a record that is larger than the buffer
			if len(c.buf) > c.most {
				return nil, c.tooLong()
			}
			c.grow()
		}
	}
}

func (c *cutter) tooLong() error {
	e := batch.NewError(batch.Permanent, batch.CodeBadRecord, "read", fmt.Errorf("a record of more than %d bytes at byte %d of the file", c.most, c.pos),
		"check where the file's lines end")
	if c.framing == emitter.CSV {
		e.Remedy = "check the file for a quote that is opened and not closed"
	}
	return e
}

func (c *cutter) grow() {
	buf := make([]byte, min(2*len(c.buf), c.most+1))
	c.have = buf[:copy(buf, c.have)]
	c.buf = buf
}

// take cuts what was read. It returns nil if that holds no complete record.
func (c *cutter) take(final bool) (*block, error) {
	data := c.have
	at := 0 // consumed of data
	if c.pos == 0 && bytes.HasPrefix(data, byteOrderMark) {
		at = len(byteOrderMark)
	}
	if c.tail {
		n, ended, err := c.endTail(data)
		if err != nil || !ended {
			return nil, err
		}
		at, c.tail = n, false
	}
	b := &block{base: c.next}
	for at < len(data) {
		rec, size := c.record(data[at:])
		whole := size > 0
		if !whole {
			if !final {
				break
			}
			rec, size = csvscan.Rest(data[at:]), len(data)-at
		}
		start := at
		at += size
		if c.framing == emitter.CSV {
			if len(rec) == 0 {
				continue // an empty line is no record
			}
			if c.header == nil {
				if err := c.readHeader(rec); err != nil {
					return nil, err
				}
				continue
			}
		}
		b.records = append(b.records, span{start: uint32(start), end: uint32(start + len(rec)), next: uint32(at)})
		b.values += int64(len(rec))
		c.tail = !whole
	}
	b.raw, b.pos, b.sum, b.fields = data[:at:at], c.pos, c.sum, c.header
	c.pos += int64(at)
	_, _ = c.sum.Write(b.raw)
	c.next = b.next()
	rest := data[at:]
	switch {
	case len(b.records) == 0:
		c.have = c.buf[:copy(c.buf, rest)]
		return nil, nil
	case at < len(c.buf)/2: // a block holds no more memory than twice its bytes
		b.raw = bytes.Clone(b.raw)
		c.have = c.buf[:copy(c.buf, rest)]
	default:
		c.buf, c.have = nil, rest
	}
	return b, nil
}

// endTail finds the line end of a record that ended with the file when it was read. ended is false if it isn't there
// yet.
func (c *cutter) endTail(data []byte) (n int, ended bool, err error) {
	switch {
	case len(data) == 0:
		return 0, false, nil
	case data[0] == '\n':
		return 1, true, nil
	case data[0] == '\r' && len(data) == 1:
		return 0, false, nil
	case data[0] == '\r' && data[1] == '\n':
		return 2, true, nil
	}
	return 0, false, &changed{at: fingerprint{c.pos, c.sum.Sum64()}, tail: true}
}

func (c *cutter) record(data []byte) (rec []byte, size int) {
	if c.framing == emitter.CSV {
		return csvscan.Cut(data)
	}
	lf := bytes.IndexByte(data, '\n')
	if lf < 0 {
		return nil, 0
	}
	return csvscan.Rest(data[:lf]), lf + 1
}

func (c *cutter) readHeader(rec []byte) error {
	fields, _, err := csvscan.Split(rec, nil, nil)
	if err != nil {
		return batch.NewError(batch.Permanent, batch.CodeBadRecord, "read", fmt.Errorf("header line: %w", err), "correct the file's first line")
	}
	c.header = make([]string, len(fields))
	for i, f := range fields {
		c.header[i] = string(f)
	}
	return nil
}
