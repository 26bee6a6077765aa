package schema

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
)

// Subject is a schema that records are written by, under a name in a registry. Its id stands in front of each record.
//
// The id is no part of what a pipeline's digests are over: a registry that was set up anew may give another one, and a batch that is made again is
// the same batch all the same.
type Subject struct {
	registry *Registry
	name     string
	schema   sr.Schema
	index    []int // of Protobuf: where the message lies in the schema
	register bool

	mu   sync.Mutex
	head []byte // nil: not known yet
}

// AvroSubject returns the schema in text under a name. With register it is added to the subject if it isn't there; otherwise it must be.
func (r *Registry) AvroSubject(name, text string, register bool) *Subject {
	return &Subject{registry: r, name: name, schema: sr.Schema{Schema: text, Type: sr.TypeAvro}, register: register}
}

// ProtoSubject is AvroSubject for a .proto file. index is where the message lies in it.
func (r *Registry) ProtoSubject(name, text string, index []int, register bool) *Subject {
	return &Subject{registry: r, name: name, schema: sr.Schema{Schema: text, Type: sr.TypeProtobuf}, index: index, register: register}
}

// Head is what stands in front of each record. The registry is asked, and the schema registered, when Head is first called; once it has
// answered it isn't asked again.
func (s *Subject) Head(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head != nil {
		return s.head, nil
	}
	id, err := s.id(ctx, s.register)
	if err != nil {
		return nil, err
	}
	s.head = AppendID(nil, id)
	if s.schema.Type == sr.TypeProtobuf {
		s.head = AppendIndex(s.head, s.index)
	}
	return s.head, nil
}

func (s *Subject) op() string { return "subject " + s.name }

func (s *Subject) id(ctx context.Context, register bool) (int, error) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	client, err := r.connected()
	if err != nil {
		return 0, err
	}
	var id int
	if register {
		id, err = client.RegisterSchema(ctx, s.name, s.schema, -1, -1)
	} else {
		var found sr.SubjectSchema
		found, err = client.LookupSchema(ctx, s.name, s.schema)
		id = found.ID
	}
	if err != nil {
		return 0, s.failure(err)
	}
	return id, nil
}

// failure tells what an error of the client means for a schema that is to be written by.
func (s *Subject) failure(err error) error {
	wrong := func(cause error, remedy string) error {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "schema registry: "+s.op(), cause, remedy)
	}
	e, ok := errors.AsType[*sr.ResponseError](err)
	switch {
	case ok && (e.ErrorCode == sr.ErrSubjectNotFound.Code || e.ErrorCode == sr.ErrSchemaNotFound.Code):
		return wrong(fmt.Errorf("it doesn't hold the schema of the file: %w", err), "register the schema, name the subject that holds it, or let the sink do it: register: true")
	case ok && e.StatusCode == http.StatusConflict:
		return wrong(fmt.Errorf("the schema of the file doesn't go with those that it holds: %w", err), "change the file so that it is compatible with them, or write to another subject")
	case ok && e.StatusCode == http.StatusUnprocessableEntity:
		return wrong(fmt.Errorf("the registry doesn't take the schema of the file: %w", err), "see what it says, and mend the file")
	}
	return s.registry.failure(s.op(), err)
}

// Check implements doctor.Checker: it asks for the schema's id, and registers nothing.
func (s *Subject) Check(ctx context.Context, _ doctor.Env) []doctor.Finding {
	subject := s.registry.Describe() + ", " + s.op()
	id, err := s.id(ctx, false)
	if err == nil {
		return []doctor.Finding{{Subject: subject, Text: fmt.Sprintf("holds the schema under the id %d", id)}}
	}
	if e, ok := errors.AsType[*sr.ResponseError](err); s.register && ok && e.StatusCode == http.StatusNotFound {
		return []doctor.Finding{{Subject: subject, Text: "doesn't hold the schema yet; the first run registers it"}}
	}
	return []doctor.Finding{doctor.Of(subject, err)}
}
