package filesink

import (
	"bytes"

	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/sink"
)

// csvRows writes rows as CSV by RFC 4180, lines ended by LF, behind a line of the columns' names. Null has no characters, an empty
// string is "".
type csvRows struct {
	*lines
	doc  *document
	line []byte
}

func newCSVRows(out *lines, columns []Column) (*csvRows, error) {
	c := &csvRows{lines: out, doc: newDocument(columns)}
	for i := range columns {
		c.separate(i)
		c.field([]byte(columns[i].Name))
	}
	return c, c.flush()
}

func (c *csvRows) add(r *sink.Record) error {
	if err := c.doc.read(r.Value); err != nil {
		return badRow(err, "")
	}
	for i, f := range c.doc.fields {
		c.separate(i)
		switch {
		case isNull(f) && len(c.doc.fields) == 1:
			c.field(nil) // readers pass over empty lines
		case isNull(f):
		case f.Kind == jsonscan.String:
			text, err := c.doc.str(f)
			if err != nil {
				return badRow(err, "")
			}
			c.field(text)
		default:
			c.field(f.Raw)
		}
	}
	return c.flush()
}

func (c *csvRows) separate(i int) {
	if i > 0 {
		c.line = append(c.line, ',')
	}
}

func (c *csvRows) field(text []byte) {
	if len(text) > 0 && !bytes.ContainsAny(text, ",\"\r\n") {
		c.line = append(c.line, text...)
		return
	}
	c.line = append(c.line, '"')
	for {
		i := bytes.IndexByte(text, '"')
		if i < 0 {
			break
		}
		c.line = append(append(c.line, text[:i+1]...), '"')
		text = text[i+1:]
	}
	c.line = append(append(c.line, text...), '"')
}

func (c *csvRows) flush() error {
	_, err := c.Write(append(c.line, '\n'))
	c.line = c.line[:0]
	return err
}
