package rerun

import (
	"slices"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/sink"
)

// Outputs collects what batches have for sinks, for Circumstances.OnOutput.
type Outputs map[string]map[batch.Txid][]sink.Record

// Add takes a copy.
func (o Outputs) Add(name string, out *sink.Output) {
	if o[name] == nil {
		o[name] = map[batch.Txid][]sink.Record{}
	}
	var all []sink.Record
	for _, r := range out.All() {
		c := *r
		c.Key, c.Value, c.Headers = slices.Clone(r.Key), slices.Clone(r.Value), batch.CloneHeaders(r.Headers)
		if c.Timestamp == sink.NoTimestamp {
			c.Timestamp = out.Time.UnixMilli()
		}
		all = append(all, c)
	}
	o[name][out.Txid] = all
}
