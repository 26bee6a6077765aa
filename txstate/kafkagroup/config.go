package kafkagroup

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
)

// Defaults of Config.
const (
	DefaultInterval = 200 * time.Millisecond
	DefaultReread   = 5 * time.Second
	DefaultRefresh  = time.Hour
	DefaultTimeout  = 10 * time.Second
	DefaultRetryMin = 100 * time.Millisecond
	DefaultRetryMax = 30 * time.Second
)

// DefaultGroup is the group of a pipeline whose sources name none.
func DefaultGroup(pipeline string) string { return "tridentd-" + pipeline }

// Config says what is mirrored, and where to. Group, Pipeline, Source and Reads have no default.
type Config struct {
	Group    string
	Pipeline string
	Source   string
	// Reads tells whether the source reads a topic: others' offsets in the group are of no concern.
	Reads func(topic string) bool
	// Client are the options for connecting: brokers, TLS, SASL.
	Client []kgo.Opt
	Logger hclog.Logger

	Interval time.Duration // the least time between two writes
	Reread   time.Duration // after which the group is read again, in case others write to it
	Refresh  time.Duration // after which unchanged offsets are written again
	Timeout  time.Duration // of one round: a read and a write
	RetryMin time.Duration // the first back-off after a failure
	RetryMax time.Duration // the largest back-off
}

// validate checks c and fills in defaults.
func (c *Config) validate() error {
	for _, f := range []struct{ name, value string }{{"group", c.Group}, {"pipeline", c.Pipeline}, {"source", c.Source}} {
		if f.value == "" {
			return configError(f.name, "name it", "none is given")
		}
	}
	if c.Reads == nil {
		panic("kafkagroup: Config.Reads is nil")
	}
	s := stamp{Pipeline: c.Pipeline, Source: c.Source, Txid: ^batch.Txid(0), Epoch: ^batch.Epoch(0)}
	if n := len(s.encode()); n >= maxMetadata {
		return configError("pipeline, source", "take shorter names", "the metadata of an offset would have %d bytes, brokers take less than %d", n, maxMetadata)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"interval", &c.Interval, DefaultInterval},
		{"reread", &c.Reread, DefaultReread},
		{"refresh", &c.Refresh, DefaultRefresh},
		{"timeout", &c.Timeout, DefaultTimeout},
		{"retry min", &c.RetryMin, DefaultRetryMin},
		{"retry max", &c.RetryMax, DefaultRetryMax},
	} {
		if *d.value < 0 {
			return configError(d.name, "give a positive duration, or leave it out", "%s is negative", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return nil
}

func configError(field, remedy, format string, args ...any) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "kafka group", fmt.Errorf("%s: "+format, append([]any{field}, args...)...), remedy)
}
