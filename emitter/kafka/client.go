package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxDial bounds the time to reach a broker, so that the next one is tried well within Config.Timeout.
const maxDial = 10 * time.Second

// ClientOptions returns the kgo options for the connection alone: brokers, TLS, SASL, time-outs and log. Other
// Kafka clients of a pipeline (sinks, the offset mirror) use them too.
func (c Config) ClientOptions(log hclog.Logger) ([]kgo.Opt, error) {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.ClientID == "" {
		c.ClientID = DefaultClientID
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.DialTimeout(min(c.Timeout, maxDial)),
		kgo.RequestTimeoutOverhead(c.Timeout),
		kgo.RetryTimeout(c.Timeout),
		kgo.DisableClientMetrics(),
		kgo.WithLogger(NewLogger(log)),
	}
	if c.TLS.enabled() {
		conf, err := c.TLS.config()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	if c.SASL.Mechanism != "" {
		m, err := c.SASL.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	return append(opts, c.Opts...), nil
}

func (t TLS) config() (*tls.Config, error) {
	conf := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the user's explicit choice
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, configError("tls.ca_file", "name a readable PEM file", "%w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, configError("tls.ca_file", "name a PEM file with certificates", "%s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &cert, err
		}
		if _, err := load(); err != nil {
			return nil, configError("tls.cert_file, tls.key_file", "name a PEM certificate and its key", "%w", err)
		}
		// Read at each handshake, so that a renewed certificate is taken up.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return conf, nil
}

func readSecret(field, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = fmt.Errorf("%s: %w", path, pe.Err)
		}
		return "", configError(field, "name a readable file", "%w", err)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" {
		return "", configError(field, "write what is meant into the file", "%s is empty", path)
	}
	return secret, nil
}
