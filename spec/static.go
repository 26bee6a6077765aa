package spec

import (
	"errors"
	"fmt"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/vec"
)

// staticTable is a static table's content: its columns in use, and the rows by encoded key. It is immutable.
type staticTable struct {
	cols  []*vec.Column // as static.cols; nil where nothing reads the column
	index map[string]int32
}

// build reads the table's content. Unlike a stream's bad record, one here stops the pipeline whatever the policy: the
// rows that would look in vain for it are many.
func (s *static) build(parts []plan.StaticPart) (any, error) {
	rows := 0
	for i := range parts {
		rows += len(parts[i].Chunk.Records)
	}
	t := &staticTable{cols: make([]*vec.Column, len(s.cols)), index: make(map[string]int32, rows)}
	var mem vec.Arena
	var fields []target
	for i, c := range s.cols {
		if !c.used && !c.check {
			continue
		}
		t.cols[i] = new(vec.Column)
		t.cols[i].Reset(c.typ.Type, rows)
		fields = append(fields, target{name: c.name, typ: c.typ.Type, col: t.cols[i]})
	}
	dec := newDecoder(&s.decl.decode, fields, &mem)
	n := 0
	var key []byte
	for _, part := range parts {
		op := "static table " + s.decl.name
		if len(part.Chunk.Records) == 0 {
			continue
		}
		if err := dec.header(part.Chunk.Fields); err != nil {
			if e, ok := errors.AsType[*batch.Error](err); ok {
				return nil, e.At(part.Partition, batch.NoOffset)
			}
			return nil, err
		}
		for i := range part.Chunk.Records {
			rec := &part.Chunk.Records[i]
			bad := func(err error) error {
				return batch.NewError(batch.Permanent, batch.CodeBadRecord, op, err, "mend the table's file").At(part.Partition, rec.Offset)
			}
			if err := dec.decode(rec, n); err != nil {
				return nil, bad(err)
			}
			k := t.cols[s.key]
			if k.IsNull(n) {
				return nil, bad(fmt.Errorf("the key %s is null", s.decl.key.text))
			}
			key = appendKey(key[:0], k, n)
			if _, twice := t.index[string(key)]; twice {
				return nil, bad(fmt.Errorf("the key %s occurs twice", k.Value(n)))
			}
			t.index[string(key)] = int32(n)
			n++
		}
	}
	return t, nil
}
