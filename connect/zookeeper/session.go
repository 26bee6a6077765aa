package zookeeper

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/zkconn"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/zkstore"
)

// acquire opens the session, unless the run's other part has; release gives it up.
func (k *Keeper) acquire(s *settings, env emitter.Env) (conn *zkconn.Conn, release func(context.Context) error, err error) {
	k.shared.mu.Lock()
	defer k.shared.mu.Unlock()
	if k.shared.conn == nil {
		cfg, err := k.connConfig(s, env)
		if err != nil {
			return nil, nil, err
		}
		if k.shared.conn, err = zkconn.New(cfg); err != nil {
			return nil, nil, err
		}
	}
	k.shared.users++
	conn = k.shared.conn
	return conn, func(ctx context.Context) error {
		k.shared.mu.Lock()
		k.shared.users--
		last := k.shared.users == 0
		if last {
			k.shared.conn = nil
		}
		k.shared.mu.Unlock()
		if last {
			return conn.Close(ctx)
		}
		return nil
	}, nil
}

// connConfig completes the settings with what lies in files.
func (k *Keeper) connConfig(s *settings, env emitter.Env) (zkconn.Config, error) {
	cfg := s.conn
	cfg.Logger = env.Logger
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	at := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(env.Dir, path)
	}
	if f := k.cfg.Auth.PasswordFile; f != "" {
		b, err := os.ReadFile(at(f))
		if err != nil {
			return cfg, configError("auth.password_file", "name a readable file", "%w", err)
		}
		if cfg.Password = strings.TrimRight(string(b), "\r\n"); cfg.Password == "" {
			return cfg, configError("auth.password_file", "put the password into it", "%s is empty", f)
		}
	}
	if !k.cfg.TLS.Enabled {
		return cfg, nil
	}
	t := k.cfg.TLS
	cfg.TLS = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the user's explicit choice
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(at(t.CAFile))
		if err != nil {
			return cfg, configError("tls.ca_file", "name a readable PEM file", "%w", err)
		}
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return cfg, configError("tls.ca_file", "name a PEM file with certificates", "%s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(at(t.CertFile), at(t.KeyFile))
			return &cert, err
		}
		if _, err := load(); err != nil {
			return cfg, configError("tls.cert_file", "name a PEM certificate and its key", "%w", err)
		}
		// Read at each handshake, so that a renewed certificate is taken up.
		cfg.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return cfg, nil
}

// NewRecord implements engine.Keeper.
func (k *Keeper) NewRecord(pipeline string, env emitter.Env) (txstate.Mirror, error) {
	s, err := k.settings(pipeline)
	if err != nil {
		return nil, err
	}
	conn, release, err := k.acquire(s, env)
	if err != nil {
		return nil, err
	}
	s.store.Logger = env.Logger
	r, err := zkstore.New(s.store, conn, release)
	if err != nil {
		panic("zookeeper: settings that were checked are refused: " + err.Error())
	}
	return r, nil
}
