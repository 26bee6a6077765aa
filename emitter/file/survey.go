package file

import (
	"context"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

var _ emitter.Surveyed = Source{}

// Survey counts the records of the files that there are now, which takes reading them. As for Ends, a last line without
// a line end counts. Files that were read and are gone don't show; records have no time.
func (s Source) Survey(ctx context.Context, id string, framing emitter.Framing, env emitter.Env, _ emitter.SurveyQuery) ([]emitter.Survey, error) {
	em, err := s.Open(id, framing, env)
	if err != nil {
		return nil, err
	}
	e := em.(*Emitter)
	defer e.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing of it has been started
	files, err := expand(e.dir, e.source.globs)
	if err != nil {
		return nil, configuration(err, "correct the pattern")
	}
	all := make([]emitter.Survey, 0, len(files))
	for _, file := range files {
		f := e.newPartition(file)
		n, err := int64(0), check(file.path)
		if err != nil {
			err = f.located("survey", batch.NoOffset, err)
		} else {
			n, err = e.count(ctx, f)
		}
		if err != nil {
			all = append(all, emitter.Unasked(f.id, err))
			continue
		}
		all = append(all, emitter.Survey{Partition: f.id, End: n, LogEnd: n, At: -1})
	}
	return all, nil
}
