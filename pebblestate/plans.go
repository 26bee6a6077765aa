package pebblestate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/tridentd/tridentd/internal/enc"
)

// Plan is a pipeline's definition as the store keeps it: the hash by which ledger entries name it, and its description, a
// JSON document that the store doesn't look into. Descriptions of earlier plans stay, so that what an entry was made by can
// be told for as long as the entry is there.
type Plan struct {
	Sum        uint64
	Definition json.RawMessage
}

const planVersion = 1

// appendPlan appends what the key of a plan doesn't hold.
func appendPlan(b []byte, p *Plan) []byte {
	b = append(b, planVersion)
	b = enc.AppendBytes(b, p.Definition)
	return enc.AppendUint64(b, p.check())
}

// check covers the key, too: no description passes for that of another plan.
func (p *Plan) check() uint64 {
	return xxhash.Sum64(append(enc.AppendUint64(nil, p.Sum), p.Definition...))
}

func decodePlan(key, b []byte) (Plan, error) {
	k := enc.NewReader(key[1:])
	p := Plan{Sum: k.Uint64()}
	if err := k.Done(); err != nil {
		return p, err
	}
	r := enc.NewReader(b)
	if err := readVersion(r, "plan", planVersion); err != nil {
		return p, err
	}
	p.Definition = bytes.Clone(r.Bytes())
	check := r.Uint64()
	switch err := r.Done(); {
	case err != nil:
		return p, err
	case check != p.check():
		return p, fmt.Errorf("%w: its checksum is wrong", enc.ErrMalformed)
	case !json.Valid(p.Definition):
		return p, fmt.Errorf("%w: its description is no JSON", enc.ErrMalformed)
	}
	return p, nil
}

func planKey(sum uint64) []byte { return enc.AppendUint64([]byte{kindPlan}, sum) }

// Plan returns the plan that the store's states are those of; ok is false in a store that nobody has told one.
func (db *DB) Plan(ctx context.Context) (p Plan, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return p, false, err
	}
	v, err := db.acquire()
	if err != nil {
		return p, false, err
	}
	defer db.release(v)
	b, ok, err := db.read(v, keyPlan)
	if err != nil || !ok {
		return p, false, err
	}
	r := enc.NewReader(b)
	sum := r.Uint64()
	if err := r.Done(); err != nil {
		return p, false, db.garbled("the plan's hash", err)
	}
	p, ok, err = db.planWith(v, sum)
	if err == nil && !ok {
		err = db.garbled(fmt.Sprintf("plan %016x", sum), errors.New("its description is missing"))
	}
	return p, ok, err
}

// PlanWith returns the plan of a hash, which a ledger entry may name; ok is false if the store doesn't know it.
func (db *DB) PlanWith(ctx context.Context, sum uint64) (p Plan, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return p, false, err
	}
	v, err := db.acquire()
	if err != nil {
		return p, false, err
	}
	defer db.release(v)
	return db.planWith(v, sum)
}

func (db *DB) planWith(v *version, sum uint64) (p Plan, ok bool, err error) {
	key := planKey(sum)
	b, ok, err := db.read(v, key)
	if err != nil || !ok {
		return p, false, err
	}
	if p, err = decodePlan(key, b); err != nil {
		return p, false, db.garbled(fmt.Sprintf("plan %016x", sum), err)
	}
	return p, true, nil
}

// read returns a copy of the value of a key.
func (db *DB) read(v *version, key []byte) ([]byte, bool, error) {
	b, closer, err := v.snap.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, db.failedRead(err)
	}
	return bytes.Clone(b), true, closer.Close()
}

// SetPlan tells the store the plan that its next batches are made by, in one synced write.
func (db *DB) SetPlan(ctx context.Context, p Plan) error {
	return store{db}.write(ctx, func(w *writer) (func(), error) { return func() {}, w.putPlan(&p) })
}

func (w *writer) putPlan(p *Plan) error {
	if !json.Valid(p.Definition) {
		panic(fmt.Sprintf("pebblestate: plan %016x is described by no JSON", p.Sum))
	}
	if err := w.set(planKey(p.Sum), appendPlan(nil, p)); err != nil {
		return err
	}
	return w.set(keyPlan, enc.AppendUint64(nil, p.Sum))
}
