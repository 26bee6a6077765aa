// Package kafka connects pipelines to a Kafka cluster.
//
//	c := kafka.New("broker-1:9092", "broker-2:9092")
//	lines := engine.From(p, "lines", c.Topics("lines"), codec.String())
//
// Records are read exactly once, in the sense of the engine's guarantees: each batch covers recorded offset ranges,
// which are committed together with its results. Nothing is contacted before the pipeline runs; mistakes in the
// settings are reported then, at the field that is wrong.
package kafka

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/kafka"
)

// TLS are the settings of encrypted connections.
type TLS = kafka.TLS

// SASL are the settings of authentication.
type SASL = kafka.SASL

// Start says where partitions begin when a pipeline runs for the first time. Partitions that appear later begin at
// their beginning.
type Start = kafka.Start

// Starts; the default is Earliest.
var (
	Earliest = kafka.Earliest
	Latest   = kafka.Latest
)

// At starts at the first record with this timestamp or a later one.
func At(t time.Time) Start { return kafka.StartAt(t) }

// Committed starts where the source's Group has committed, and at fallback, Earliest or Latest, where it has not.
func Committed(fallback Start) Start { return kafka.StartCommitted(fallback) }

// Cluster is a Kafka cluster. Its methods return changed copies, so that one may be the base of others.
type Cluster struct {
	cfg kafka.Config
	err error // found while the settings were gathered; reported when a source is opened
}

// New names a cluster by some of its brokers, host:port. There is no default: a guess would read the wrong cluster.
func New(brokers ...string) *Cluster {
	return &Cluster{cfg: kafka.Config{Brokers: slices.Clone(brokers)}}
}

// FromEnv takes the settings from the environment: KAFKA_BROKERS (host:port, separated by commas), KAFKA_CLIENT_ID;
// KAFKA_TLS (true or false), KAFKA_TLS_CA_FILE, KAFKA_TLS_CERT_FILE, KAFKA_TLS_KEY_FILE, KAFKA_TLS_SERVER_NAME;
// KAFKA_SASL_MECHANISM, KAFKA_SASL_USER, KAFKA_SASL_PASSWORD, KAFKA_SASL_PASSWORD_FILE, KAFKA_SASL_TOKEN_FILE;
// KAFKA_SASL_PRINCIPAL, KAFKA_SASL_KEYTAB_FILE, KAFKA_SASL_KRB5_CONF, KAFKA_SASL_SERVICE. AWS_MSK_IAM takes AWS's own variables.
//
// What is missing or wrong is an error of the sources that are opened, so that a pipeline can be built, and tested
// with records of its own, where no cluster is.
func FromEnv() *Cluster {
	c := New()
	for b := range strings.SplitSeq(os.Getenv("KAFKA_BROKERS"), ",") {
		if b = strings.TrimSpace(b); b != "" {
			c.cfg.Brokers = append(c.cfg.Brokers, b)
		}
	}
	if len(c.cfg.Brokers) == 0 {
		c.err = envError("KAFKA_BROKERS", "is not set", "set it to the cluster's brokers, host:port, separated by commas")
	}
	c.cfg.ClientID = os.Getenv("KAFKA_CLIENT_ID")
	c.cfg.TLS = TLS{
		CAFile:     os.Getenv("KAFKA_TLS_CA_FILE"),
		CertFile:   os.Getenv("KAFKA_TLS_CERT_FILE"),
		KeyFile:    os.Getenv("KAFKA_TLS_KEY_FILE"),
		ServerName: os.Getenv("KAFKA_TLS_SERVER_NAME"),
	}
	if v := os.Getenv("KAFKA_TLS"); v != "" {
		on, err := strconv.ParseBool(v)
		switch {
		case err != nil:
			c.err = envError("KAFKA_TLS", fmt.Sprintf("%q is neither true nor false", v), "set it to true or false")
		case on:
			c.cfg.TLS.Enabled = true
		default:
			c.cfg.TLS = TLS{}
		}
	}
	c.cfg.SASL = SASL{
		Mechanism:    os.Getenv("KAFKA_SASL_MECHANISM"),
		User:         os.Getenv("KAFKA_SASL_USER"),
		Password:     os.Getenv("KAFKA_SASL_PASSWORD"),
		PasswordFile: os.Getenv("KAFKA_SASL_PASSWORD_FILE"),
		TokenFile:    os.Getenv("KAFKA_SASL_TOKEN_FILE"),
		Principal:    os.Getenv("KAFKA_SASL_PRINCIPAL"),
		KeytabFile:   os.Getenv("KAFKA_SASL_KEYTAB_FILE"),
		KRB5Conf:     os.Getenv("KAFKA_SASL_KRB5_CONF"),
		Service:      os.Getenv("KAFKA_SASL_SERVICE"),
	}
	return c
}

func envError(name, what, remedy string) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka", fmt.Errorf("environment variable %s: %s", name, what), remedy)
}

func (c *Cluster) with(change func(*kafka.Config)) *Cluster {
	d := *c
	change(&d.cfg)
	return &d
}

// TLS encrypts connections.
func (c *Cluster) TLS(t TLS) *Cluster {
	t.Enabled = true
	return c.with(func(cfg *kafka.Config) { cfg.TLS = t })
}

// SASL authenticates at the brokers.
func (c *Cluster) SASL(s SASL) *Cluster {
	return c.with(func(cfg *kafka.Config) { cfg.SASL = s })
}

// Timeout bounds each request to a broker; the default is 30 s.
func (c *Cluster) Timeout(d time.Duration) *Cluster {
	return c.with(func(cfg *kafka.Config) { cfg.Timeout = d })
}

// Options adds options of the client, which have the last word.
func (c *Cluster) Options(opts ...kgo.Opt) *Cluster {
	return c.with(func(cfg *kafka.Config) { cfg.Opts = append(slices.Clone(cfg.Opts), opts...) })
}

// Topics reads topics by name. One that doesn't exist is an error; topics are never created by reading them.
func (c *Cluster) Topics(names ...string) Source {
	cfg := c.cfg
	cfg.Topics = slices.Clone(names)
	return Source{cfg: cfg, err: c.err}
}

// Pattern reads the topics whose whole name matches a regular expression, those that are made later included.
func (c *Cluster) Pattern(re string) Source {
	cfg := c.cfg
	cfg.Pattern = re
	return Source{cfg: cfg, err: c.err}
}

// Source reads topics of a cluster. Its methods return changed copies.
type Source struct {
	cfg        kafka.Config
	err        error
	unmirrored bool
}

var _ emitter.Source = Source{}

// Start says where partitions begin when the pipeline runs for the first time.
func (s Source) Start(at Start) Source { s.cfg.Start = at; return s }

// Group names the consumer group in which the committed offsets are shown, and to which Committed refers. The default
// is tridentd-<pipeline>.
func (s Source) Group(name string) Source { s.cfg.Group = name; return s }

// NoMirror keeps the committed offsets out of any consumer group. Committed needs a Group nevertheless.
func (s Source) NoMirror() Source { s.unmirrored = true; return s }

// Opaque lets a second attempt of a batch hold other records than the first, where nothing of the first can have
// been applied. The default is transactional: the same records.
func (s Source) Opaque() Source { s.cfg.Mode = kafka.Opaque; return s }

// ReadUncommitted reads records of transactions that are open or were aborted, too.
func (s Source) ReadUncommitted() Source { s.cfg.Isolation = kafka.ReadUncommitted; return s }

// DiscoverEvery is the time between two looks for new partitions and topics; the default is 10 s.
func (s Source) DiscoverEvery(d time.Duration) Source { s.cfg.DiscoverEvery = d; return s }

// Describe names the source in one line, without addresses and secrets.
func (s Source) Describe() string { return s.cfg.Describe() }

// Inputs lists the topics.
func (s Source) Inputs() []string { return s.cfg.Inputs() }

// Open returns an emitter for one run of a pipeline. Framing is of no concern: Kafka has records of its own.
func (s Source) Open(id string, _ emitter.Framing, env emitter.Env) (emitter.Emitter, error) {
	if s.err != nil {
		return nil, s.err
	}
	e, err := kafka.New(id, s.cfg, env)
	if err != nil {
		return nil, err
	}
	return e, nil
}
