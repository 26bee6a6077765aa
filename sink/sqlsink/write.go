package sqlsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// chunkBytes is how much is sent with one statement.
const chunkBytes = 4 << 20

// placed is a record and where it comes from.
type placed struct {
	batch.Partition
	*sink.Record
}

// write sends the records of a batch, many with each statement.
func (s *Sink) write(ctx context.Context, tx *transaction, out *sink.Output) error {
	var array []byte
	var records []placed
	var ends []int // in array, of each record
	deletes := false
	flush := func() error {
		if len(records) == 0 {
			return nil
		}
		err := s.send(ctx, tx, array, records, ends, deletes)
		array, records, ends, deletes = array[:0], records[:0], ends[:0], false
		return err
	}
	for p, r := range out.All() {
		if len(array) > 0 && len(array)+len(r.Key)+len(r.Value) > chunkBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		open := byte(',')
		if len(array) == 0 {
			open = '['
		}
		var err error
		if array, err = s.appendObject(append(array, open), r); err != nil {
			return badRecord(placed{p, r}, err, "write an object with the columns' values; to delete a row write null, with its key")
		}
		records, ends, deletes = append(records, placed{p, r}), append(ends, len(array)), deletes || r.Value == nil
	}
	return flush()
}

func badRecord(r placed, err error, remedy string) error {
	return batch.NewError(batch.Permanent, batch.CodeBadRecord, "write", err, remedy).At(r.Partition, r.Offset)
}

// appendObject appends what the statements take of a record.
func (s *Sink) appendObject(dst []byte, r *sink.Record) ([]byte, error) {
	if r.Value != nil {
		if len(r.Value) == 0 || r.Value[0] != '{' || !json.Valid(r.Value) {
			return dst, errors.New("the value is no JSON object")
		}
		return append(dst, r.Value...), nil
	}
	if len(s.cfg.Key) == 0 {
		return dst, errors.New("the value is null, which deletes the row with the record's key, and the sink has no key")
	}
	fields := map[string]json.RawMessage{}
	if len(r.Key) > 0 && r.Key[0] == '{' && json.Unmarshal(r.Key, &fields) == nil {
		for _, k := range s.cfg.Key {
			if v, ok := fields[k]; !ok || string(v) == "null" {
				return dst, fmt.Errorf("the value is null, and the key has no %s", k)
			}
		}
	} else {
		if len(s.cfg.Key) > 1 || r.Key == nil {
			return dst, errors.New("the value is null, and the key is no JSON object with the key's columns")
		}
		text, err := json.Marshal(string(r.Key))
		if err != nil {
			return dst, err
		}
		fields = map[string]json.RawMessage{s.cfg.Key[0]: text}
	}
	fields[deleted] = json.RawMessage("true")
	object, err := json.Marshal(fields) // it sorts the names
	return append(dst, object...), err
}

// send writes the records of an array, which lacks its closing bracket. Where the database refuses a value it is found which record's.
func (s *Sink) send(ctx context.Context, tx *transaction, array []byte, records []placed, ends []int, deletes bool) error {
	const before = "tridentd"
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+before); err != nil {
		return err
	}
	try := func(n int) error {
		ctx, cancel := s.limit(ctx)
		defer cancel()
		text := string(array[:ends[n-1]]) + "]"
		if deletes && s.stmts.remove != "" {
			if _, err := tx.ExecContext(ctx, s.stmts.remove, text); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, s.stmts.write, text)
		return err
	}
	err := try(len(records))
	if err == nil {
		_, err = tx.ExecContext(ctx, "RELEASE SAVEPOINT "+before)
		return err
	}
	if failed := s.db.Failure("write", err); failed.Code != batch.CodeBadRecord {
		return failed
	}
	// The shortest beginning that is refused ends with the record.
	var other error
	n := 1 + sort.Search(len(records)-1, func(i int) bool {
		if other != nil {
			return true
		}
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+before); err != nil {
			other = err
			return true
		}
		tried := try(i + 1)
		if tried != nil {
			err = tried
		}
		return tried != nil
	})
	if other != nil {
		return other
	}
	failed := s.db.Failure("write", err)
	if failed.Code != batch.CodeBadRecord {
		return failed
	}
	return failed.At(records[n-1].Partition, records[n-1].Offset)
}
