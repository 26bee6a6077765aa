package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

func TestConfigMistakes(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no brokers":        {func(c *Config) { c.Brokers = nil }, "brokers: none are given"},
		"broker":            {func(c *Config) { c.Brokers = []string{"host"} }, `brokers: "host": not host:port`},
		"no port":           {func(c *Config) { c.Brokers = []string{"host:"} }, `brokers: "host:": host or port is missing`},
		"no topics":         {func(c *Config) { c.Topics = nil }, "topics: none are given"},
		"empty topic":       {func(c *Config) { c.Topics = []string{""} }, "topics: a name is empty"},
		"topic twice":       {func(c *Config) { c.Topics = []string{"a", "a"} }, `topics: "a" is named twice`},
		"both":              {func(c *Config) { c.Pattern = "a" }, "pattern: given together with topics"},
		"pattern":           {func(c *Config) { c.Topics, c.Pattern = nil, "(" }, "pattern: error parsing regexp"},
		"no group":          {func(c *Config) { c.Start = StartCommitted(Earliest) }, "group: none is given"},
		"fallback":          {func(c *Config) { c.Start = StartCommitted(StartAt(time.Now())) }, "start: the fallback"},
		"ancient":           {func(c *Config) { c.Start = StartAt(time.Unix(-1, 0)) }, "start: a timestamp before 1970"},
		"key without cert":  {func(c *Config) { c.TLS.KeyFile = "k" }, "tls.cert_file, tls.key_file"},
		"no CA file":        {func(c *Config) { c.TLS.CAFile = filepath.Join(empty, "x") }, "tls.ca_file"},
		"CA without certs":  {func(c *Config) { c.TLS.CAFile = empty }, "holds no certificate"},
		"mechanism":         {func(c *Config) { c.SASL = SASL{Mechanism: "plain", User: "u", Password: "p"} }, `sasl.mechanism: unknown mechanism "plain"`},
		"no user":           {func(c *Config) { c.SASL = SASL{Mechanism: "PLAIN", Password: "p"} }, "sasl.user"},
		"two passwords":     {func(c *Config) { c.SASL = SASL{Mechanism: "PLAIN", User: "u", Password: "p", PasswordFile: "f"} }, "sasl.password_file"},
		"no password file":  {func(c *Config) { c.SASL = SASL{Mechanism: "PLAIN", User: "u", PasswordFile: empty + "x"} }, "sasl.password_file"},
		"empty password":    {func(c *Config) { c.SASL = SASL{Mechanism: "SCRAM-SHA-512", User: "u", PasswordFile: empty} }, "is empty"},
		"token":             {func(c *Config) { c.SASL = SASL{Mechanism: "OAUTHBEARER"} }, "sasl.token_file"},
		"token for PLAIN":   {func(c *Config) { c.SASL = SASL{Mechanism: "PLAIN", User: "u", Password: "p", TokenFile: "f"} }, "sasl.token_file"},
		"user with a token": {func(c *Config) { c.SASL = SASL{Mechanism: "OAUTHBEARER", User: "u", TokenFile: "f"} }, "sasl.user"},
		"negative":          {func(c *Config) { c.MaxBuffer = -1 }, "max_buffer"},
		"negative timeout":  {func(c *Config) { c.Timeout = -1 }, "timeout"},
		"client option": {func(c *Config) {
			c.Opts = []kgo.Opt{kgo.ClientID("a"), kgo.MaxConcurrentFetches(-5), kgo.RecordDeliveryTimeout(-time.Second)}
		}, "kafka"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Brokers: []string{"host:9092"}, Topics: []string{"a"}}
			tc.change(&cfg)
			_, err := New("src", cfg, emitter.Env{})
			if err == nil || batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("New: %v, want a permanent configuration error with %q", err, tc.want)
			}
		})
	}
}

func TestParseStart(t *testing.T) {
	at := time.Date(2026, 1, 31, 10, 0, 0, 500e6, time.UTC)
	for text, want := range map[string]Start{
		"earliest":                              Earliest,
		"latest":                                Latest,
		"timestamp:2026-01-31T10:00:00.5Z":      StartAt(at),
		"timestamp:2026-01-31T11:00:00.5+01:00": StartAt(at),
		"committed:earliest":                    StartCommitted(Earliest),
		"committed:latest":                      StartCommitted(Latest),
	} {
		got, err := ParseStart(text)
		if err != nil || got.String() != want.String() {
			t.Errorf("ParseStart(%q) = %v, %v; want %v", text, got, err, want)
			continue
		}
		if again, err := ParseStart(got.String()); err != nil || again.String() != got.String() {
			t.Errorf("%v doesn't survive its own text: %v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", "Earliest", "end", "timestamp:", "timestamp:yesterday", "committed", "committed:", "committed:timestamp:2026-01-31T10:00:00Z", "earliest:x"} {
		if got, err := ParseStart(text); err == nil {
			t.Errorf("ParseStart(%q) = %v, want an error", text, got)
		}
	}
}

// certificate makes a self-signed one for 127.0.0.1 and writes it, with its key, as PEM.
func certificate(t *testing.T) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	for name, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cert, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return cert, certFile, keyFile
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	cert, certFile, keyFile := certificate(t)
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cfg := Config{Brokers: fake.ListenAddrs(), Topics: []string{"t"}, Timeout: 2 * time.Second, TLS: TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}}
	s := open(t, cfg)
	if len(s.starts) != 1 {
		t.Fatalf("starts %v", s.starts)
	}
	for name, bad := range map[string]TLS{"no TLS": {}, "unknown authority": {Enabled: true}, "no client certificate": {CAFile: certFile}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.TLS, cfg.Timeout = bad, 300*time.Millisecond
			if _, err := tryOpen(t, cfg); err == nil {
				t.Fatal("Open succeeded")
			}
		})
	}
}

func TestSASL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser(mechanism, "me", "secret"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(fake.Close)
			cfg := Config{Brokers: fake.ListenAddrs(), Topics: []string{"t"}, Timeout: 2 * time.Second, SASL: SASL{Mechanism: mechanism, User: "me", PasswordFile: file}}
			if s := open(t, cfg); len(s.starts) != 1 {
				t.Fatalf("starts %v", s.starts)
			}
			// Kafka says why it refuses, kfake only cuts the connection.
			cfg.SASL = SASL{Mechanism: mechanism, User: "me", Password: "wrong"}
			if _, err = tryOpen(t, cfg); batch.KindOf(err) != batch.Transient || !strings.Contains(err.Error(), "the user and the password") {
				t.Fatalf("Open with a wrong password: %v, want a hint", err)
			}
			fake.ControlKey(kmsg.SASLAuthenticate.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
				resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
				return resp, nil, true
			})
			_, err = tryOpen(t, cfg)
			if batch.CodeOf(err) != batch.CodeUnauthorized || batch.KindOf(err) != batch.Permanent || strings.Contains(err.Error(), "wrong") {
				t.Fatalf("Open with a wrong password: %v, want a permanent error, without the password", err)
			}
		})
	}
}

func TestACL(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("SCRAM-SHA-256", "root", "r"), kfake.User("SCRAM-SHA-256", "me", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cfg := Config{
		Brokers: fake.ListenAddrs(), Topics: []string{"t"}, Timeout: 3 * time.Second,
		Opts: []kgo.Opt{kgo.SASL(scram.Auth{User: "me", Pass: "secret"}.AsSha256Mechanism())},
	}
	_, err = tryOpen(t, cfg)
	if batch.CodeOf(err) != batch.CodeUnauthorized || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Fatalf("Open without rights: %v", err)
	}
}
