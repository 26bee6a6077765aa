package kafkagroup

import (
	"encoding/json"

	"github.com/tridentd/tridentd/batch"
)

// maxMetadata is the brokers' default limit of an offset's metadata (offset.metadata.max.bytes).
const maxMetadata = 4096

// stampVersion is the version of the metadata's form. Readers accept later ones, which only add fields.
const stampVersion = 1

// stamp is the metadata of an offset.
type stamp struct {
	Version  int         `json:"tridentd"`
	Pipeline string      `json:"pipeline"`
	Source   string      `json:"source"`
	Txid     batch.Txid  `json:"txid"`
	Epoch    batch.Epoch `json:"epoch"`
}

func (s stamp) encode() string {
	s.Version = stampVersion
	b, err := json.Marshal(s)
	if err != nil {
		panic("kafkagroup: metadata of plain fields doesn't encode: " + err.Error())
	}
	return string(b)
}

// parseStamp returns nil for metadata that no tridentd has written.
func parseStamp(metadata string) *stamp {
	var s stamp
	if err := json.Unmarshal([]byte(metadata), &s); err != nil || s.Version < 1 || s.Pipeline == "" {
		return nil
	}
	return &s
}
