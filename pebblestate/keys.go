package pebblestate

import (
	"encoding/binary"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/enc"
)

// The first byte of every key. docs/internals/format.md describes what follows.
const (
	kindMeta      = 0x01 // name
	kindState     = 0x02 // state's name
	kindPosition  = 0x03 // source, topic, partition
	kindLedger    = 0x04 // txid
	kindRecorded  = 0x05 // txid
	kindStatic    = 0x06 // table's name, version
	kindStaticRow = 0x07 // table's name, version, part, chunk
	kindChanges   = 0x08 // txid, chunk
	kindPlan      = 0x09 // hash
	kindRow       = 0x10 // state's id, shard, key
)

var (
	keyFormat    = []byte{kindMeta, 'f', 'o', 'r', 'm', 'a', 't'}
	keyEpoch     = []byte{kindMeta, 'e', 'p', 'o', 'c', 'h'}
	keyCommitted = []byte{kindMeta, 'c', 'o', 'm', 'm', 'i', 't', 't', 'e', 'd'}
	keyTrimmed   = []byte{kindMeta, 't', 'r', 'i', 'm', 'm', 'e', 'd'}
	keyPlan      = []byte{kindMeta, 'p', 'l', 'a', 'n'}
	keyStates    = []byte{kindMeta, 's', 't', 'a', 't', 'e', 's'}
	keyIdentity  = []byte{kindMeta, 'i', 'd', 'e', 'n', 't', 'i', 't', 'y'}
)

func stateKey(name string) []byte { return append([]byte{kindState}, name...) }

func positionKey(p batch.Partition) []byte {
	k := enc.AppendKeyString([]byte{kindPosition}, p.Source)
	k = enc.AppendKeyString(k, p.Topic)
	return enc.AppendKeyInt32(k, p.Number)
}

func decodePositionKey(k []byte) (batch.Partition, error) {
	r := enc.NewReader(k[1:])
	p := batch.Partition{Source: r.KeyString(), Topic: r.KeyString(), Number: r.KeyInt32()}
	return p, r.Done()
}

// txidKey is a key of kindLedger or kindRecorded, and leads those of kindChanges.
func txidKey(kind byte, txid batch.Txid) []byte { return enc.AppendUint64([]byte{kind}, uint64(txid)) }

func decodeTxidKey(k []byte) (batch.Txid, error) {
	r := enc.NewReader(k[1:])
	txid := batch.Txid(r.Uint64())
	return txid, r.Done()
}

func staticPrefix(kind byte, name string) []byte { return enc.AppendKeyString([]byte{kind}, name) }

func staticKey(name string, version uint64) []byte {
	return enc.AppendUint64(staticPrefix(kindStatic, name), version)
}

func staticRowKey(name string, version uint64, part, chunk int) []byte {
	k := enc.AppendUint64(staticPrefix(kindStaticRow, name), version)
	k = binary.BigEndian.AppendUint32(k, uint32(part))
	return binary.BigEndian.AppendUint32(k, uint32(chunk))
}

// rowPrefix leads the keys of one state.
func rowPrefix(id uint64) []byte { return enc.AppendUvarint([]byte{kindRow}, id) }

// appendShard appends the shard to a state's prefix.
func appendShard(dst []byte, shard int) []byte {
	return binary.BigEndian.AppendUint16(dst, uint16(shard))
}
