package codec

import (
	"errors"
	"fmt"

	"github.com/tridentd/tridentd/batch"
)

// Entry is a record of a table: its key, and its value, which is null where the record removes the key.
type Entry[K, V any] struct {
	Key   K
	Value Null[V]
}

// KeyValue takes a record as an entry of a table: key decodes the record's key, val its value. A record without a value, a
// tombstone, is an entry whose value is null. Columns of CSV are no keys.
func KeyValue[K, V any](key Decoder[K], val Decoder[V]) Decoder[Entry[K, V]] {
	return keyValue[K, V]{key, val}
}

type keyValue[K, V any] struct {
	key Decoder[K]
	val Decoder[V]
}

func (d keyValue[K, V]) Describe() string {
	return "key " + d.key.Describe() + ", value " + d.val.Describe()
}
func (d keyValue[K, V]) CSV() bool { return false }
func (d keyValue[K, V]) New() Decode[Entry[K, V]] {
	return &keyValueDecode[K, V]{key: d.key.New(), val: d.val.New()}
}

func (d keyValue[K, V]) Err() error {
	if d.key.CSV() || d.val.CSV() {
		return errors.New("codec.KeyValue: records of CSV have no keys")
	}
	return errors.Join(d.key.Err(), d.val.Err())
}

type keyValueDecode[K, V any] struct {
	key Decode[K]
	val Decode[V]
	rec batch.Record
}

func (d *keyValueDecode[K, V]) Begin(fields []string) error {
	return errors.Join(d.key.Begin(fields), d.val.Begin(fields))
}

func (d *keyValueDecode[K, V]) Decode(r *batch.Record, into *Entry[K, V]) error {
	d.rec = *r
	d.rec.Value = r.Key
	if err := d.key.Decode(&d.rec, &into.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if r.Value == nil {
		into.Value = Null[V]{}
		return nil
	}
	into.Value.Valid = true
	return d.val.Decode(r, &into.Value.V)
}
