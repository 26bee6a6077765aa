package storm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Committed returns the offset that storm-kafka-client's KafkaSpout goes on with, of what it committed to a consumer group,
// and the topology that did.
//
// The rule: from 1.1.2, and 1.0.6, on (class OffsetManager, findNextCommitOffset) the committed offset is the one to be read
// next, and the metadata is JSON that names the topology (class CommitMetadata). Releases before that committed the last offset
// that had been acknowledged, and went on one behind it (class KafkaSpout, doSeek; STORM-2666); their metadata is the text of a
// KafkaSpoutMessageId, which is no JSON. Metadata of any other form isn't the spout's.
func Committed(offset int64, metadata string) (int64, string, error) {
	if offset < 0 {
		return 0, "", fmt.Errorf("offset %d is negative", offset)
	}
	if rest, ok := strings.CutPrefix(metadata, "{topic-partition="); ok {
		if !strings.Contains(rest, fmt.Sprintf(", offset=%d, ", offset)) {
			return 0, "", fmt.Errorf("offset %d is not the one in its metadata %q", offset, clip([]byte(metadata)))
		}
		n, err := next(offset)
		return n, "", err
	}
	var m struct {
		TopologyID *string `json:"topologyId"`
	}
	if err := json.Unmarshal([]byte(metadata), &m); err != nil || m.TopologyID == nil {
		return 0, "", errNotSpout
	}
	return offset, *m.TopologyID, nil
}

var errNotSpout = errors.New("the commit isn't a KafkaSpout's")

// Inclusive tells whether a commit's metadata says that its offset has been processed already: see Committed.
func Inclusive(metadata string) bool { return strings.HasPrefix(metadata, "{topic-partition=") }
