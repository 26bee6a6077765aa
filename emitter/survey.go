package emitter

import (
	"context"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Survey is what a source holds of one partition right now, asked of its servers.
type Survey struct {
	batch.Partition
	Start  int64 // the lowest offset still held
	End    int64 // the offset after the last record that can be read (Kafka: the last stable offset)
	LogEnd int64 // above End while an open transaction holds the partition back
	// Begin is where a partition without a saved position would begin, by the source's start policy.
	Begin int64
	// At is the first offset with the time that was asked for, or a later one (End if there is none); -1 if none was asked.
	At int64
	// Oldest is the timestamp of the record at the saved position; zero if there is none, or it has none.
	Oldest time.Time
	// Identity and LeaderEpoch go into a position that is set to an offset of this survey; see batch.Position.
	Identity    string
	LeaderEpoch int32
	// Err is why the partition couldn't be asked; the offsets are -1 then.
	Err error
}

// SurveyQuery is what a survey is asked.
type SurveyQuery struct {
	Saved []batch.Position // what the store holds of the source
	Time  time.Time        // if not zero: Survey.At is to be filled in
	// Oldest asks for Survey.Oldest, which costs a read per partition that lags.
	Oldest bool
}

// Surveyed is a Source that can be asked without being opened.
type Surveyed interface {
	Source
	// Survey lists every partition that exists and is wanted, and every saved one, in batch.Partition order. It fails only
	// if nobody answers at all; it ends with ctx.
	Survey(ctx context.Context, pipeline, id string, env Env, q SurveyQuery) ([]Survey, error)
}
