package schema

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/columnar"
)

// Config says where a registry is and who asks it.
type Config struct {
	URLs         []string // http or https; the next is asked where one doesn't answer
	User         string
	Password     string
	PasswordFile string // read when the registry is first asked
	CAFile       string // certificate authorities to trust, in PEM form, instead of the system's
	CertFile     string // the client's certificate, in PEM form, and its key
	KeyFile      string
	Timeout      time.Duration // of one question; 0: 10 s
}

const defaultTimeout = 10 * time.Second

// maxAnswer bounds what a registry's answer may hold, in bytes.
const maxAnswer = 16 << 20

// ErrUnknown tells that the registry knows no schema of an id.
var ErrUnknown = errors.New("the registry doesn't know the schema")

// Registry asks a schema registry, and remembers the answers. It is safe for use by many goroutines at once.
type Registry struct {
	cfg Config

	mu     sync.Mutex
	client *sr.Client
	avro   map[int]*columnar.AvroSchema
	proto  map[int]*columnar.ProtoFile
}

// New checks the settings of a registry and contacts nobody.
func New(cfg Config) (*Registry, error) {
	wrong := func(remedy, format string, args ...any) error {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "schema registry", fmt.Errorf(format, args...), remedy)
	}
	if len(cfg.URLs) == 0 {
		return nil, wrong("name it, for example http://127.0.0.1:8081", "url: none is given")
	}
	for _, u := range cfg.URLs {
		p, err := url.Parse(u)
		if err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return nil, wrong("write it as http://host:port or https://host:port", "url: %q is no address of a registry", redacted(u))
		}
		if p.User != nil {
			return nil, wrong("give user and password", "url: %s holds credentials, which would be shown", redacted(u))
		}
	}
	switch {
	case cfg.Password != "" && cfg.PasswordFile != "":
		return nil, wrong("give one of them", "password, password_file: both are given")
	case cfg.User == "" && (cfg.Password != "" || cfg.PasswordFile != ""):
		return nil, wrong("give user as well", "user: a password without a user")
	case (cfg.CertFile == "") != (cfg.KeyFile == ""):
		return nil, wrong("give both", "tls.cert_file, tls.key_file: one without the other")
	}
	cfg.URLs = slices.Clone(cfg.URLs)
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Registry{cfg: cfg, avro: map[int]*columnar.AvroSchema{}, proto: map[int]*columnar.ProtoFile{}}, nil
}

func redacted(raw string) string {
	if p, err := url.Parse(raw); err == nil {
		return p.Redacted()
	}
	return "it"
}

// Describe names the registry, without secrets.
func (r *Registry) Describe() string { return "schema registry " + strings.Join(r.cfg.URLs, ",") }

// connected returns the client, which it makes when first asked. It is called with the lock held.
func (r *Registry) connected() (*sr.Client, error) {
	if r.client != nil {
		return r.client, nil
	}
	wrong := func(err error, remedy string) error {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "schema registry", err, remedy)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if r.cfg.CAFile != "" {
		pem, err := os.ReadFile(r.cfg.CAFile)
		if err != nil {
			return nil, wrong(fmt.Errorf("tls.ca_file: %w", err), "name a file that can be read")
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, wrong(fmt.Errorf("tls.ca_file: %s holds no certificate", r.cfg.CAFile), "name a file in PEM form")
		}
	}
	if r.cfg.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(r.cfg.CertFile, r.cfg.KeyFile)
		if err != nil {
			return nil, wrong(fmt.Errorf("tls.cert_file, tls.key_file: %w", err), "name a certificate and its key, in PEM form")
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{cert}
	}
	opts := []sr.ClientOpt{
		sr.URLs(r.cfg.URLs...), sr.UserAgent("tridentd"),
		sr.HTTPClient(&http.Client{Timeout: r.cfg.Timeout, Transport: bounded{t}}),
	}
	if r.cfg.User != "" {
		password := r.cfg.Password
		if r.cfg.PasswordFile != "" {
			b, err := os.ReadFile(r.cfg.PasswordFile)
			if err != nil {
				return nil, wrong(fmt.Errorf("password_file: %w", err), "name a file that can be read")
			}
			password = strings.TrimRight(string(b), "\r\n")
		}
		opts = append(opts, sr.BasicAuth(r.cfg.User, password))
	}
	client, err := sr.NewClient(opts...)
	if err != nil {
		return nil, wrong(err, "mend the settings")
	}
	r.client = client
	return client, nil
}

// bounded cuts answers that no registry gives.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// failure tells what an error of the client means.
func (r *Registry) failure(op string, err error) error {
	op = "schema registry: " + op
	where := strings.Join(r.cfg.URLs, ",")
	e, ok := errors.AsType[*sr.ResponseError](err)
	if !ok {
		return batch.NewError(batch.Transient, batch.CodeUnavailable, op, err, "see that the registry at "+where+" runs and can be reached")
	}
	switch {
	case e.StatusCode == http.StatusUnauthorized:
		return batch.NewError(batch.Permanent, batch.CodeUnauthorized, op, err, "give the user and the password that the registry at "+where+" takes")
	case e.StatusCode == http.StatusForbidden:
		return batch.NewError(batch.Permanent, batch.CodeUnauthorized, op, err, "give the user the right to do this")
	case e.StatusCode >= 500, e.StatusCode == http.StatusTooManyRequests, e.StatusCode == http.StatusRequestTimeout:
		return batch.NewError(batch.Transient, batch.CodeUnavailable, op, err, "see what is wrong with the registry at "+where)
	}
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, op, err, "see that the address is that of a registry")
}

// load returns the schema of an id with the texts that it refers to: by the names under which it does so, and in the order in which each
// comes after what it uses.
func (r *Registry) load(ctx context.Context, id int) (a answer, err error) {
	client, err := r.connected()
	if err != nil {
		return a, err
	}
	op := fmt.Sprintf("schema %d", id)
	if a.Schema, err = client.SchemaByID(ctx, id); err != nil {
		if e, ok := errors.AsType[*sr.ResponseError](err); ok && e.StatusCode == http.StatusNotFound {
			if e.ErrorCode == sr.ErrSchemaNotFound.Code || e.ErrorCode == sr.ErrSubjectNotFound.Code {
				return a, fmt.Errorf("schema %d: %w", id, ErrUnknown)
			}
		}
		return a, r.failure(op, err)
	}
	a.texts = map[string]string{}
	var follow func(refs []sr.SchemaReference, depth int) error
	follow = func(refs []sr.SchemaReference, depth int) error {
		const deepest = 32
		if depth > deepest {
			return fmt.Errorf("schema %d: references more than %d deep", id, deepest)
		}
		for _, ref := range refs {
			if _, ok := a.texts[ref.Name]; ok {
				continue
			}
			sub, err := client.SchemaByVersion(ctx, ref.Subject, ref.Version)
			if err != nil {
				return r.failure(fmt.Sprintf("schema %d refers to version %d of %s", id, ref.Version, ref.Subject), err)
			}
			if err := follow(sub.References, depth+1); err != nil {
				return err
			}
			a.texts[ref.Name] = sub.Schema.Schema
			a.names = append(a.names, ref.Name)
		}
		return nil
	}
	return a, follow(a.References, 0)
}

// answer is what a registry says of an id: the schema, and the texts that it refers to (see load).
type answer struct {
	sr.Schema
	names []string
	texts map[string]string
}

// remembered returns what parse makes of the answer to an id, and keeps it in known.
func remembered[T any](ctx context.Context, r *Registry, known map[int]*T, id int, typ sr.SchemaType, format string, parse func(answer) (*T, error)) (*T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := known[id]; s != nil {
		return s, nil
	}
	a, err := r.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if a.Type != typ {
		return nil, fmt.Errorf("schema %d is of %s, not of %s", id, a.Type, format)
	}
	s, err := parse(a)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", id, err)
	}
	known[id] = s
	return s, nil
}

// Avro returns the schema of an id. ErrUnknown and a schema that can't be used are no *batch.Error: the record is to blame.
func (r *Registry) Avro(ctx context.Context, id int) (*columnar.AvroSchema, error) {
	return remembered(ctx, r, r.avro, id, sr.TypeAvro, "Avro", func(a answer) (*columnar.AvroSchema, error) {
		var refs []string
		for _, name := range a.names {
			refs = append(refs, a.texts[name])
		}
		return columnar.ParseAvro(a.Schema.Schema, refs...)
	})
}

// Proto is Avro for a file of Protobuf.
func (r *Registry) Proto(ctx context.Context, id int) (*columnar.ProtoFile, error) {
	return remembered(ctx, r, r.proto, id, sr.TypeProtobuf, "Protobuf", func(a answer) (*columnar.ProtoFile, error) {
		const root = "registry.proto"
		a.texts[root] = a.Schema.Schema
		return columnar.ParseProtoText(root, a.texts)
	})
}
