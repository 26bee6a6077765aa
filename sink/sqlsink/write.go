package sqlsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/jsonscan"
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
		return append(dst, r.Value...), s.fits(r.Value)
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

// fits looks through a value: whether it is an object, has its key, and is kept as it is.
func (s *Sink) fits(value []byte) error {
	found := s.found
	if err := s.scan.Scan(value, found); err != nil {
		return fmt.Errorf("the value is no JSON object that a row can be made of: %w", err)
	}
	if found[len(s.cfg.Columns)].Kind != jsonscan.Missing {
		return fmt.Errorf("the value has a field %q", deleted)
	}
	for i, name := range s.cfg.Columns {
		if slices.Contains(s.cfg.Key, name) && (found[i].Kind == jsonscan.Missing || found[i].Kind == jsonscan.Null) {
			return fmt.Errorf("%s is in the sink's key, and is null", name)
		}
		if why := s.dialect.unfit(s.columns[i], found[i]); why != "" {
			return fmt.Errorf("column %s: %s", name, why)
		}
	}
	return nil
}

// send writes the records of an array, which lacks its closing bracket. Where the database refuses a value it is found which record's.
func (s *Sink) send(ctx context.Context, tx *transaction, array []byte, records []placed, ends []int, deletes bool) error {
	const before = "tridentd"
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+before); err != nil {
		return err
	}
	// try reads the first n records, and writes the first m of them.
	try := func(n, m int) error {
		ctx, cancel := s.limit(ctx)
		defer cancel()
		text := string(array[:ends[n-1]]) + "]"
		if deletes {
			if _, err := tx.ExecContext(ctx, s.stmts.remove, text, m); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, s.stmts.write, text, m)
		return err
	}
	all := len(records)
	err := try(all, all)
	if err == nil {
		_, err = tx.ExecContext(ctx, "RELEASE SAVEPOINT "+before)
		return err
	}
	refused := func(err error) bool { return err != nil && s.db.Failure("write", err).Code == batch.CodeBadRecord }
	again := func(n, m int) error {
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+before); err != nil {
			return err
		}
		return try(n, m)
	}
	if !refused(err) {
		return err
	}
	// A value that can't be read as its column's type is refused wherever it stands, one that breaks a rule of the table only if it is
	// written, which a later record of its key prevents. So the shortest beginning that can't be read ends with the record; where all
	// can be, the shortest that can't be written while the rest is there.
	at := func(n int) error { return again(all, n) }
	if refused(again(all, 0)) {
		at = func(n int) error { return again(n, 0) }
	}
	n := 1 + sort.Search(all-1, func(i int) bool {
		tried := at(i + 1)
		if tried != nil {
			err = tried
		}
		return tried != nil
	})
	failed := s.db.Failure("write", err)
	if failed.Code != batch.CodeBadRecord {
		return failed
	}
	return failed.At(records[n-1].Partition, records[n-1].Offset)
}
