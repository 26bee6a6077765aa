package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/state"
)

// Windowed is the key of a state with tumbling windows.
type Windowed[K comparable] struct {
	Start time.Time // UTC
	Key   K
}

func (w *Windowed[K]) decode(key []byte) error {
	start, rest, err := value.DecodeKey(key)
	if err != nil {
		return err
	}
	codec, err := value.KeyOf[K]()
	if err != nil {
		return err
	}
	w.Start = time.Unix(0, start.Nanos()).UTC()
	w.Key, err = codec.Decode(rest)
	return err
}

// Spanned is the key of a state with windows that overlap, sessions, or windows of so many values: one whose rows show where a window
// ends.
type Spanned[K comparable] struct {
	Window Span
	Key    K
}

func (s *Spanned[K]) decode(key []byte) error {
	start, rest, err := value.DecodeKey(key)
	if err != nil {
		return err
	}
	end, rest, err := value.DecodeKey(rest)
	switch {
	case err != nil:
		return err
	case start.Kind() == value.Time && end.Kind() == value.Time:
		s.Window = timeSpan(start.Nanos(), end.Nanos())
	case start.Kind() == value.Int && end.Kind() == value.Int:
		s.Window = Span{First: start.Int(), Limit: end.Int()}
	default:
		return errors.New("it begins with no window")
	}
	codec, err := value.KeyOf[K]()
	if err == nil {
		s.Key, err = codec.Decode(rest)
	}
	return err
}

func (w *Windowed[K]) leads(s *state.Schema) bool { return s.Window != nil && s.Window.Slide == 0 }
func (s *Spanned[K]) leads(of *state.Schema) bool { return spanned(of) }

// spanned tells of a state whose rows show where a window begins and ends.
func spanned(s *state.Schema) bool {
	return len(s.Key) > 1 && s.Key[0].Name == "window_start" && s.Key[1].Name == "window_end"
}

type windowedKey interface {
	decode(key []byte) error
	leads(s *state.Schema) bool // whether a state has such keys
}

// Snapshot returns a view of all states as of the last committed batch. The caller closes it.
func (h *Handle) Snapshot() (*pebblestate.Snapshot, error) {
	db, err := h.asked()
	if err != nil {
		return nil, err
	}
	snap, err := db.Snapshot()
	return snap, h.meanwhile(err)
}

// ReadState returns all rows of a state as of the txid that it also returns. K is the type of the group's key,
// Windowed or Spanned of it for a windowed state. V is the value of a state with one aggregate, a struct of accumulators as given to
// agg.Fields, or what PartitionPersist keeps.
func ReadState[K comparable, V any](ctx context.Context, h *Handle, name string) (map[K]V, batch.Txid, error) {
	snap, err := h.Snapshot()
	if err != nil {
		return nil, 0, err
	}
	defer snap.Close() //nolint:errcheck // it only reads
	rows, err := ReadSnapshot[K, V](ctx, snap, name)
	return rows, snap.Txid(), err
}

// ReadSnapshot is ReadState on a snapshot.
func ReadSnapshot[K comparable, V any](ctx context.Context, snap *pebblestate.Snapshot, name string) (map[K]V, error) {
	schema, err := schemaOf(snap, name)
	if err != nil {
		return nil, err
	}
	decodeValue, err := valueDecoder[V](schema)
	if err != nil {
		return nil, fmt.Errorf("state %s: %w", name, err)
	}
	decodeKey, err := keyDecoder[K](schema)
	if err != nil {
		return nil, fmt.Errorf("state %s: %w", name, err)
	}
	rows := map[K]V{}
	for row, err := range snap.Scan(ctx, name, nil, nil) {
		if err != nil {
			return nil, err
		}
		k, err := decodeKey(row.Key)
		if err != nil {
			return nil, fmt.Errorf("state %s: key %x: %w", name, row.Key, err)
		}
		var v V
		if err := decodeValue(row.Value, &v); err != nil {
			return nil, fmt.Errorf("state %s: value of %v: %w", name, k, err)
		}
		rows[k] = v
	}
	return rows, nil
}

func schemaOf(snap *pebblestate.Snapshot, name string) (state.Schema, error) {
	schemas, err := snap.Schemas()
	if err != nil {
		return state.Schema{}, err
	}
	for _, s := range schemas {
		if s.Name == name {
			return s, nil
		}
	}
	return state.Schema{}, fmt.Errorf("no state %q has been written yet", name)
}

func keyDecoder[K comparable](schema state.Schema) (func([]byte) (K, error), error) {
	var probe K
	key, windowed := any(&probe).(windowedKey)
	switch {
	case !windowed && spanned(&schema):
		return nil, errors.New("it has windows; read its keys as engine.Spanned")
	case !windowed && schema.Window != nil:
		return nil, errors.New("it has windows; read its keys as engine.Windowed")
	case windowed && !key.leads(&schema) && spanned(&schema):
		return nil, errors.New("its windows show their ends; read its keys as engine.Spanned")
	case windowed && !key.leads(&schema) && schema.Window != nil:
		return nil, errors.New("its windows tumble; read its keys as engine.Windowed")
	case windowed && !key.leads(&schema):
		return nil, errors.New("it has no windows; its key is neither Windowed nor Spanned")
	case windowed:
		return func(key []byte) (k K, err error) {
			err = any(&k).(windowedKey).decode(key)
			return k, err
		}, nil
	}
	codec, err := value.KeyOf[K]()
	if err != nil {
		return nil, err
	}
	return codec.Decode, nil
}

func valueDecoder[V any](schema state.Schema) (func([]byte, *V) error, error) {
	if schema.Kind == "aggregate" {
		return agg.Decoder[V](schema.Values)
	}
	row, err := value.RowOf[V]()
	if err != nil {
		return nil, err
	}
	return func(b []byte, v *V) (err error) {
		*v, err = row.Decode(b)
		return err
	}, nil
}
