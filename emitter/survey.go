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
	End    int64 // the offset after the last record that can be read (Kafka: the last stable offset); -1 if the source has no end
	LogEnd int64 // above End while an open transaction holds the partition back
	// Begin is where a partition without a saved position would begin, by the source's start policy.
	Begin int64
	// At is the first offset with the time that was asked for, or a later one (End if there is none); -1 if none was asked,
	// or the source's records have no time.
	At int64
	// Oldest is the timestamp of the first record that isn't processed yet; zero if there is none, or it has none.
	Oldest time.Time
	// Identity goes into a position that is set to an offset of this survey; see batch.Position. It is empty where it isn't
	// the same for every offset: such a position is believed by its number alone.
	Identity string
	// Err is why the partition couldn't be asked; the offsets are -1 then.
	Err error
}

// SurveyQuery is what a survey is asked.
type SurveyQuery struct {
	// Saved is what the store holds of the source, the position without a topic included that only tells that it has been
	// opened before. Without any, partitions would begin by the start policy, otherwise at their beginning.
	Saved []batch.Position
	Time  time.Time // if not zero: Survey.At is to be filled in
	// Oldest asks for Survey.Oldest, which costs a read per partition that lags.
	Oldest bool
}

// Unasked is the survey of a partition that couldn't be asked.
func Unasked(p batch.Partition, err error) Survey {
	return Survey{Partition: p, Start: -1, End: -1, LogEnd: -1, Begin: -1, At: -1, Err: err}
}

// From is where processing would go on: next, what the store holds (-1 for nothing), or else Begin. What the source doesn't
// hold any more isn't counted.
func (s *Survey) From(next int64) int64 {
	if next < 0 {
		next = s.Begin
	}
	return max(next, s.Start)
}

// Listing is a Source that reads a list of things, which may grow and shrink: topics, files.
type Listing interface {
	Source
	// Inputs is the list, as it stands in Describe: joined by ", ".
	Inputs() []string
}

// Surveyed is a Source that can be asked without being opened.
type Surveyed interface {
	Source
	// Survey lists every partition that exists and is wanted, and those saved ones that should exist, in batch.Partition order. It fails only
	// if nobody answers at all; it ends with ctx. id and framing are those that the source would be opened with.
	Survey(ctx context.Context, id string, framing Framing, env Env, q SurveyQuery) ([]Survey, error)
}
