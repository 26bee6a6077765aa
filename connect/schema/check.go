package schema

import (
	"context"

	"github.com/tridentd/tridentd/doctor"
)

// Check implements doctor.Checker: it asks whether the registry answers.
func (r *Registry) Check(ctx context.Context, _ doctor.Env) []doctor.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	client, err := r.connected()
	if err == nil {
		if _, err = client.SupportedTypes(ctx); err != nil {
			err = r.failure("its types of schemas", err)
		}
	}
	if err != nil {
		return []doctor.Finding{doctor.Of(r.Describe(), err)}
	}
	return []doctor.Finding{{Subject: r.Describe(), Text: "answers"}}
}
