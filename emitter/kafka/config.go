package kafka

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
)

// Defaults of Config.
const (
	DefaultClientID      = "tridentd"
	DefaultFetchMaxBytes = 1 << 20
	DefaultMaxBuffer     = 64 << 20
	DefaultTimeout       = 30 * time.Second
	DefaultDiscoverEvery = 10 * time.Second
)

// Mode says what a second attempt of a batch may hold.
type Mode uint8

const (
	// Transactional sources serve the recorded ranges again.
	Transactional Mode = iota
	// Opaque sources plan anew where nothing of the first attempt can have been applied.
	Opaque
)

func (m Mode) String() string {
	if m == Opaque {
		return "opaque"
	}
	return "transactional"
}

// Isolation says whether records of transactions that are open or were aborted are read.
type Isolation uint8

const (
	ReadCommitted Isolation = iota
	ReadUncommitted
)

func (i Isolation) String() string {
	if i == ReadUncommitted {
		return "read_uncommitted"
	}
	return "read_committed"
}

// wire is the value of Kafka's isolation level field.
func (i Isolation) wire() int8 {
	if i == ReadUncommitted {
		return 0
	}
	return 1
}

// TLS are the settings of an encrypted connection.
type TLS struct {
	Enabled            bool   // implied by any of the others
	CAFile             string // PEM; empty: the system's roots
	CertFile, KeyFile  string // PEM; both or neither; a client certificate (mutual TLS)
	ServerName         string // the name to verify; empty: the host that is dialled
	InsecureSkipVerify bool   // accept any certificate: only for trials
}

func (t TLS) enabled() bool { return t != TLS{} }

// Config says what to read. The zero value of a field is its default; Brokers and one of Topics and Pattern have
// none.
type Config struct {
	Brokers []string // host:port
	Topics  []string
	// Pattern is a regular expression that a topic's whole name must match. Internal topics never match. Topics
	// that appear later join from their beginning.
	Pattern string

	Start     Start // where partitions without a saved position begin when the source is opened for the first time
	Mode      Mode
	Group     string // the consumer group of Start "committed"
	Isolation Isolation

	TLS      TLS
	SASL     SASL
	ClientID string

	// FetchMaxBytes bounds what one request asks for from one partition, in compressed bytes. Larger values cost
	// memory and gain little.
	FetchMaxBytes int32
	// MaxBuffer bounds the record bytes that are kept over all partitions, from the fetch to the Ack, uncompressed.
	// A partition that has nothing to plan may exceed it by one fetch, so that none is starved.
	MaxBuffer int64
	// Timeout bounds each request to a broker, and Open as a whole.
	Timeout time.Duration
	// DiscoverEvery is the time between two looks for new partitions and topics.
	DiscoverEvery time.Duration

	Opts []kgo.Opt // applied last
}

// configError is a permanent error that names the field as a user writes it.
func configError(field, remedy, format string, args ...any) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka source", fmt.Errorf("%s: "+format, append([]any{field}, args...)...), remedy)
}

// validate checks c and fills in defaults. The pattern comes back compiled, nil without one.
func (c *Config) validate() (*regexp.Regexp, error) {
	if len(c.Brokers) == 0 {
		return nil, configError("brokers", "name the cluster's brokers as host:port", "none are given")
	}
	for _, b := range c.Brokers {
		if err := checkAddr(b); err != nil {
			return nil, configError("brokers", "write each broker as host:port", "%q: %w", b, err)
		}
	}
	var pattern *regexp.Regexp
	switch {
	case len(c.Topics) > 0 && c.Pattern != "":
		return nil, configError("pattern", "keep one of topics and pattern", "given together with topics")
	case c.Pattern != "":
		var err error
		if pattern, err = regexp.Compile(`^(?:` + c.Pattern + `)$`); err != nil {
			return nil, configError("pattern", "mend the regular expression", "%w", err)
		}
	case len(c.Topics) == 0:
		return nil, configError("topics", "name the topics to read, or give a pattern", "none are given")
	}
	seen := map[string]bool{}
	for _, t := range c.Topics {
		switch {
		case t == "":
			return nil, configError("topics", "name the topic", "a name is empty")
		case seen[t]:
			return nil, configError("topics", "name each topic once", "%q is named twice", t)
		}
		seen[t] = true
	}
	if err := c.Start.validate(); err != nil {
		return nil, configError("start", `write earliest, latest, timestamp:TIME or committed:FALLBACK`, "%w", err)
	}
	if c.Start.kind == startCommitted && c.Group == "" {
		return nil, configError("group", "name the consumer group whose offsets count", "none is given, and start is committed")
	}
	if c.Mode > Opaque {
		return nil, configError("mode", "write transactional or opaque", "unknown value %d", c.Mode)
	}
	if c.Isolation > ReadUncommitted {
		return nil, configError("isolation", "write read_committed or read_uncommitted", "unknown value %d", c.Isolation)
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return nil, configError("tls.cert_file, tls.key_file", "give both or neither", "one is given without the other")
	}
	if err := c.SASL.validate(); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"fetch_max_bytes", int64(c.FetchMaxBytes)},
		{"max_buffer", c.MaxBuffer},
		{"timeout", int64(c.Timeout)},
		{"discover_every", int64(c.DiscoverEvery)},
	} {
		if f.value < 0 {
			return nil, configError(f.name, "give a positive value, or leave it out", "%d is negative", f.value)
		}
	}
	if c.ClientID == "" {
		c.ClientID = DefaultClientID
	}
	if c.FetchMaxBytes == 0 {
		c.FetchMaxBytes = DefaultFetchMaxBytes
	}
	if c.MaxBuffer == 0 {
		c.MaxBuffer = DefaultMaxBuffer
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.DiscoverEvery == 0 {
		c.DiscoverEvery = DefaultDiscoverEvery
	}
	return pattern, nil
}

func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return errors.New("not host:port")
	case host == "" || port == "":
		return errors.New("host or port is missing")
	}
	return nil
}

// Describe names the topics, in one line, without what may change from one start to the next and still give the
// same records: addresses, secrets, where new partitions begin.
func (c Config) Describe() string {
	what := "topics " + strings.Join(c.Topics, ", ")
	if c.Pattern != "" {
		what = "topics like " + c.Pattern
	}
	return fmt.Sprintf("kafka %s (%s)", what, c.Isolation)
}

// Inputs lists the topics; none for a pattern.
func (c Config) Inputs() []string {
	if c.Pattern != "" {
		return nil
	}
	return slices.Clone(c.Topics)
}
