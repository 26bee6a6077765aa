package storm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Format is how Trident stores the values of a map state.
type Format uint8

const (
	// Plain values are stored as they are: NonTransactionalMap and JSONNonTransactionalSerializer, or an extract made by hand.
	Plain Format = iota
	// Transactional values are [txid, value]: TransactionalMap and JSONTransactionalSerializer.
	Transactional
	// Opaque values are [txid, current, previous]: OpaqueMap and JSONOpaqueSerializer.
	Opaque
)

var formats = [...]string{Plain: "plain", Transactional: "transactional", Opaque: "opaque"}

func (f Format) String() string { return formats[f] }

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	for f, n := range formats {
		if n == name {
			return Format(f), nil
		}
	}
	return 0, fmt.Errorf("%q: it is plain, transactional or opaque", name)
}

// Settle returns what a stored value was before transaction current, the first that isn't known to have committed: the value
// that belongs to the positions that ReadTrident returns. ok is false if the key wasn't there yet.
//
// The rule (class OpaqueValue, get): a value stamped with a transaction before current is itself; one stamped with current
// counts that transaction in, and the previous one is taken; a later stamp is of another history. A transactional value has no
// previous one: once stamped with current it can't be taken back, and the topology must commit first.
func (f Format) Settle(stored json.RawMessage, current int64) (value json.RawMessage, ok bool, err error) {
	if f == Plain {
		return stored, true, nil
	}
	if current < 1 {
		return nil, false, errors.New("no transaction is known that it could be judged by: take the positions from Trident's nodes too")
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(stored, &parts); err != nil || len(parts) != int(f)+1 {
		return nil, false, fmt.Errorf("%s is no %s value: %s", clip(stored), f, shapes[f])
	}
	txid, err := strconv.ParseInt(string(bytes.TrimSpace(parts[0])), 10, 64)
	switch {
	case err != nil || txid < 0:
		return nil, false, fmt.Errorf("%s begins with no txid: %s", clip(stored), shapes[f])
	case txid < current:
		return parts[1], true, nil
	case txid > current:
		return nil, false, fmt.Errorf("it is of txid %d, and txid %d is the first that hasn't committed: it belongs to other offsets", txid, current)
	case f == Transactional:
		return nil, false, fmt.Errorf("it counts in txid %d, which hasn't committed, and doesn't tell what it was before", txid)
	}
	return parts[2], !bytes.Equal(bytes.TrimSpace(parts[2]), []byte("null")), nil
}

var shapes = [...]string{Transactional: "it is [txid, value]", Opaque: "it is [txid, current, previous]"}
