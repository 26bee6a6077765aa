package schema

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/connect/schema/schematest"
	"github.com/tridentd/tridentd/doctor"
)

const (
	avroText  = `{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}`
	protoText = `syntax = "proto3"; message A { message B { int64 id = 1; } }`
)

func newRegistry(t *testing.T, url string) *Registry {
	t.Helper()
	r, err := New(Config{URLs: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSubjectHead asks a stand-in for a registry what stands in front of records.
func TestSubjectHead(t *testing.T) {
	reg := schematest.New(t)
	r := newRegistry(t, reg.URL)
	check := func(s *Subject) string {
		t.Helper()
		var all []string
		for _, f := range s.Check(t.Context(), doctor.Env{}) {
			all = append(all, f.Level.String()+" "+strings.TrimPrefix(f.Subject, r.Describe()+", ")+": "+f.Text)
		}
		return strings.Join(all, "\n")
	}
	head := func(s *Subject, want string) {
		t.Helper()
		for range 2 {
			got, err := s.Head(t.Context())
			if err != nil || string(got) != want {
				t.Fatalf("head %x, %v, want %x", got, err, want)
			}
		}
	}

	must := r.AvroSubject("orders-value", avroText, false)
	if _, err := must.Head(t.Context()); batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), "it doesn't hold the schema of the file") {
		t.Errorf("a subject that isn't there: %v", err)
	}
	if got := check(must); !strings.HasPrefix(got, "error subject orders-value: ") || !strings.Contains(got, "it doesn't hold the schema of the file") {
		t.Errorf("doctor says %s", got)
	}
	reg.Add("orders-value", "AVRO", strings.Replace(avroText, "long", "int", 1))
	if _, err := must.Head(t.Context()); batch.CodeOf(err) != batch.CodeConfiguration || !strings.Contains(err.Error(), "Schema not found") {
		t.Errorf("a subject with another schema: %v", err)
	}

	adds := r.AvroSubject("orders-value", avroText, true)
	if got, want := check(adds), "ok subject orders-value: doesn't hold the schema yet; the first run registers it"; got != want {
		t.Errorf("doctor says %s, want %s", got, want)
	}
	if n := reg.Asked("POST /subjects/orders-value/versions"); n != 0 {
		t.Errorf("doctor has registered it %d times", n)
	}
	head(adds, "\x00\x00\x01\x11\x72") // 70002
	if n := reg.Asked("POST /subjects/orders-value/versions"); n != 1 {
		t.Errorf("it was registered %d times", n)
	}
	head(must, "\x00\x00\x01\x11\x72")
	if got, want := check(must), "ok subject orders-value: holds the schema under the id 70002"; got != want {
		t.Errorf("doctor says %s, want %s", got, want)
	}
	head(newRegistry(t, reg.URL).AvroSubject("orders-value", avroText, true), "\x00\x00\x01\x11\x72")

	head(r.ProtoSubject("clicks", protoText, []int{0}, true), "\x00\x00\x01\x11\x73\x00")
	head(r.ProtoSubject("clicks", protoText, []int{0, 0}, false), "\x00\x00\x01\x11\x73\x04\x00\x00")
}

func TestSubjectFailures(t *testing.T) {
	reg := schematest.New(t)
	for _, c := range []struct {
		status int
		kind   batch.Kind
		code   batch.Code
		want   string
	}{
		{http.StatusConflict, batch.Permanent, batch.CodeConfiguration, "doesn't go with those that it holds"},
		{http.StatusUnprocessableEntity, batch.Permanent, batch.CodeConfiguration, "doesn't take the schema"},
		{http.StatusForbidden, batch.Permanent, batch.CodeUnauthorized, "subject x"},
		{http.StatusServiceUnavailable, batch.Transient, batch.CodeUnavailable, "subject x"},
	} {
		reg.Fail(c.status)
		_, err := newRegistry(t, reg.URL).AvroSubject("x", avroText, true).Head(t.Context())
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Kind != c.kind || e.Code != c.code || e.Remedy == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v", c.status, err)
		}
	}
}
