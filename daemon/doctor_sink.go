package daemon

import (
	"context"
	"fmt"

	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/plan"
)

// checkSink asks a sink's target how it is, or at least what it holds.
func checkSink(ctx context.Context, s *plan.Sink, env doctor.Env) []doctor.Finding {
	if s.Check != nil {
		return s.Check(ctx, env)
	}
	subject := "sink " + s.Name
	out, err := s.Open(plan.Env{Logger: env.Logger})
	if err != nil {
		return []doctor.Finding{doctor.Of(subject, err)}
	}
	defer out.Close(ctx) //nolint:errcheck // it has been asked only
	p, err := out.Progress(ctx)
	switch {
	case err != nil:
		return []doctor.Finding{doctor.Of(subject, err)}
	case p.Txid == 0:
		return []doctor.Finding{{Subject: subject, Text: "has been given nothing yet"}}
	}
	return []doctor.Finding{{Subject: subject, Text: fmt.Sprintf("holds the output up to txid %d, of epoch %d", p.Txid, p.Epoch)}}
}
