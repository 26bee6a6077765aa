package pebblestate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// identitySize is the size of an identity in bytes, of which it is the hexadecimal text.
const identitySize = 16

// Identity tells this database apart from any other, of the same pipeline too: 32 random hexadecimal digits, given when it is first
// asked for and never changed. Copies (checkpoints, savepoints) carry it on. It is empty for a database that
// has none yet and is open for reading only. No result depends on it.
func (db *DB) Identity(ctx context.Context) (string, error) {
	id, err := db.identity()
	if id != "" || err != nil || db.opts.ReadOnly {
		return id, err
	}
	err = store{db}.write(ctx, func(w *writer) (func(), error) {
		var err error
		if id, err = db.identity(); id != "" || err != nil { // somebody else was asked at the same time
			return func() {}, err
		}
		var b [identitySize]byte
		_, _ = rand.Read(b[:]) // it never fails
		id = hex.EncodeToString(b[:])
		return func() {}, w.set(keyIdentity, []byte(id))
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// identity returns what has been written; empty if nothing has.
func (db *DB) identity() (string, error) {
	v, err := db.acquire()
	if err != nil {
		return "", err
	}
	defer db.release(v)
	b, closer, err := v.snap.Get(keyIdentity)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return "", nil
	case err != nil:
		return "", db.failedRead(err)
	}
	id := string(b)
	if err := closer.Close(); err != nil {
		return "", db.failedRead(err)
	}
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != identitySize {
		return "", db.garbled("the identity", fmt.Errorf("it is %q", id))
	}
	return id, nil
}
