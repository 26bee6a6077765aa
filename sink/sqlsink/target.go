package sqlsink

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/sink"
)

// Target writes a stream's values to a table, those of each batch in one transaction: an engine.Target. Each column takes the field of its
// name: snake_case names, or those that tags say, as codec.JSON has them. Its methods return changed copies.
type Target[T any] struct {
	cfg    Config
	encode codec.Encode[T]
	remove func(T) bool
	err    error
}

// Postgres writes to a table of PostgreSQL. The URL is postgres://user:password@host:port/database?sslmode=…, or a string of settings
// (host=… user=…).
func Postgres[T any](url, table string, columns ...string) Target[T] {
	return newTarget[T](Config{URL: url, Table: table, Columns: columns})
}

// SQLite writes to a table of the database in a file, which must be there. A relative path is relative to the pipeline's file where it has
// one, to the working directory otherwise.
func SQLite[T any](path, table string, columns ...string) Target[T] {
	return newTarget[T](Config{Path: path, Table: table, Columns: columns})
}

func newTarget[T any](cfg Config) Target[T] {
	cfg.Columns = slices.Clone(cfg.Columns)
	enc, err := codec.EncodeJSON[T]()
	if err != nil {
		err = configError("give the type fields that JSON can hold", "table %s: %w", cfg.Table, err)
	} else {
		err = missing[T](&cfg)
	}
	return Target[T]{cfg: cfg, encode: enc, err: err}
}

// missing names a column that a struct has no field for. What other types have is known of their values only.
func missing[T any](cfg *Config) error {
	fields, err := codec.Fields[T]()
	if err != nil {
		return nil //nolint:nilerr // it is no struct
	}
	for _, c := range cfg.Columns {
		if !slices.ContainsFunc(fields, func(f codec.Field) bool { return f.Name == c }) {
			return configError("name the column as the field, or tag the field trident:\""+c+"\"", "table %s: %s has no field for the column %s", cfg.Table, reflect.TypeFor[T](), c)
		}
	}
	return nil
}

// Key are the columns that tell rows apart: a value replaces the row with its key. Without it each value is a row of its own.
func (t Target[T]) Key(columns ...string) Target[T] { t.cfg.Key = slices.Clone(columns); return t }

// Remove deletes the row with a value's key where f is true of the value, instead of writing one. It needs a Key.
func (t Target[T]) Remove(f func(T) bool) Target[T] { t.remove = f; return t }

// PasswordFile holds the password to PostgreSQL, and is read for each connection. A relative path is taken as SQLite's.
func (t Target[T]) PasswordFile(path string) Target[T] { t.cfg.PasswordFile = path; return t }

// Describe names the table and what is written to it.
func (t Target[T]) Describe() string { return t.cfg.Describe() }

// Encode makes a record of a value.
func (t Target[T]) Encode(v T, r *sink.Record) (err error) {
	if t.err != nil {
		return t.err
	}
	if r.Value, err = t.encode(nil, v); err != nil || t.remove == nil || !t.remove(v) {
		return err
	}
	r.Key, err = keyOf(r.Value, t.cfg.Key)
	r.Value = nil
	return err
}

// keyOf makes an object of the key's fields of a value.
func keyOf(value []byte, key []string) ([]byte, error) {
	found := make([]jsonscan.Field, len(key))
	if err := jsonscan.New(key).Scan(value, found); err != nil {
		return nil, fmt.Errorf("the value is no JSON object with a key: %w", err)
	}
	object := map[string]json.RawMessage{}
	for i, f := range found {
		switch f.Kind {
		case jsonscan.Missing:
		case jsonscan.String:
			object[key[i]] = json.RawMessage(`"` + string(f.Raw) + `"`)
		default:
			object[key[i]] = f.Raw
		}
	}
	return json.Marshal(object) // it sorts the names
}

// Open returns the sink of one run. It contacts nobody.
func (t Target[T]) Open(pipeline, name string, env emitter.Env) (sink.Sink, error) {
	cfg, err := t.config(pipeline, name, env.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Logger = env.Logger
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

var _ doctor.Checker = Target[struct{}]{}

// Check implements doctor.Checker.
func (t Target[T]) Check(ctx context.Context, env doctor.Env) []doctor.Finding {
	cfg, err := t.config(env.Pipeline, env.Sink, env.Dir)
	if err != nil {
		return []doctor.Finding{doctor.Of("sink "+env.Sink, err)}
	}
	return Check(ctx, cfg)
}

// config returns the settings of one run.
func (t Target[T]) config(pipeline, name, dir string) (Config, error) {
	cfg := t.cfg.In(dir)
	cfg.Pipeline, cfg.Sink = pipeline, name
	switch {
	case t.err != nil:
		return cfg, t.err
	case t.remove != nil && len(cfg.Key) == 0:
		return cfg, configError("name the key's columns with Key", "table %s: rows are to be removed, and there is no key", cfg.Table)
	}
	return cfg, nil
}

// In returns the settings with paths that are relative to a folder.
func (c Config) In(dir string) Config {
	for _, p := range []*string{&c.Path, &c.PasswordFile} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	return c
}
