// Package zookeeper keeps a pipeline's record in ZooKeeper, or has it run under a lock there, for pipelines in Go:
//
//	zk := zookeeper.New("zk-1:2181", "zk-2:2181", "zk-3:2181").Chroot("/prod")
//	p := engine.New("words", engine.KeptBy(zk))
//
// It guarantees that what ZooKeeper holds never leads the pipeline's store, and that losing it loses nothing: see package
// txstate/zkstore. What is written where: docs/internals/zookeeper.md.
package zookeeper

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/zkconn"
	"github.com/tridentd/tridentd/txstate/zkstore"
)

// Config are the settings of a Keeper. The zero value of a field is its default, but for UpdateInterval; Servers has none.
type Config struct {
	Servers []string // host:port; an element may hold several, separated by commas
	Chroot  string   // below which everything lies
	Path    string   // default /trident
	ID      string   // default: the pipeline's name. Everything lies below <chroot><path>/<id>

	Lock      bool   // ZooKeeper also says who may run
	WhileAway string // continue or stall: what becomes of batches while it is away. Default continue; with Lock always stall
	// UpdateInterval is the least time between two writes of the record; 0: after each batch. See Defaults.
	UpdateInterval time.Duration
	SessionTimeout time.Duration // default 10 s; the server has the last word
	ConnectTimeout time.Duration // default 5 s
	CallTimeout    time.Duration // default 10 s

	RetryMin time.Duration // the first back-off after a failure; default 100 ms
	RetryMax time.Duration // the largest; default 30 s
	RetryFor time.Duration // for how long a failure may last before a run that stalls ends; default: for ever

	Auth Auth
	ACL  []string // of the nodes that are created: scheme:id:rights. Default: auth:cdrwa with Auth, else world:cdrwa
	TLS  TLS
}

// Defaults is the Config that New begins with.
func Defaults() Config { return Config{UpdateInterval: zkstore.DefaultUpdateInterval} }

// Auth is a digest identity.
type Auth struct {
	User         string
	Password     string
	PasswordFile string // instead of Password; line ends at the end are cut off
}

// TLS are the settings of an encrypted connection.
type TLS struct {
	Enabled            bool
	CAFile             string // PEM; empty: the system's roots
	CertFile, KeyFile  string // PEM; both or neither; a client certificate
	ServerName         string // if the certificates don't carry the servers' host names
	InsecureSkipVerify bool
}

// Keeper keeps the record of pipelines. Its methods that set something return changed copies.
type Keeper struct {
	cfg    Config
	shared *shared
}

var _ engine.Keeper = (*Keeper)(nil)

// New names the servers, host:port.
func New(servers ...string) *Keeper {
	cfg := Defaults()
	cfg.Servers = slices.Clone(servers)
	return FromConfig(cfg)
}

// FromConfig returns a Keeper with the given settings.
func FromConfig(cfg Config) *Keeper { return &Keeper{cfg: cfg, shared: &shared{}} }

func (k *Keeper) with(change func(*Config)) *Keeper {
	cfg := k.cfg
	change(&cfg)
	return FromConfig(cfg)
}

// Chroot sets the path below which everything lies.
func (k *Keeper) Chroot(path string) *Keeper { return k.with(func(c *Config) { c.Chroot = path }) }

// Path sets the path below the chroot; the default is /trident. It is what Storm calls zkPath.
func (k *Keeper) Path(path string) *Keeper { return k.with(func(c *Config) { c.Path = path }) }

// ID sets the name of the pipeline's node; the default is the pipeline's name. It is what Storm calls spoutId.
func (k *Keeper) ID(id string) *Keeper { return k.with(func(c *Config) { c.ID = id }) }

// Lock has the pipeline run only while it holds a lock in ZooKeeper.
func (k *Keeper) Lock() *Keeper { return k.with(func(c *Config) { c.Lock = true }) }

// Stall lets no batch commit while ZooKeeper is away.
func (k *Keeper) Stall() *Keeper {
	return k.with(func(c *Config) { c.WhileAway = zkstore.Stall.String() })
}

// UpdateInterval sets the least time between two writes of the record; 0: after each batch. The default is 2 s.
func (k *Keeper) UpdateInterval(d time.Duration) *Keeper {
	return k.with(func(c *Config) { c.UpdateInterval = d })
}

// Timeouts sets the session's time-out, that of a connection and that of a call; 0 keeps the default.
func (k *Keeper) Timeouts(session, connect, call time.Duration) *Keeper {
	return k.with(func(c *Config) { c.SessionTimeout, c.ConnectTimeout, c.CallTimeout = session, connect, call })
}

// Retry sets the first and the largest back-off after a failure, and for how long one may last before a run that stalls ends;
// 0 keeps the default.
func (k *Keeper) Retry(first, largest, lasting time.Duration) *Keeper {
	return k.with(func(c *Config) { c.RetryMin, c.RetryMax, c.RetryFor = first, largest, lasting })
}

// Auth sets a digest identity.
func (k *Keeper) Auth(a Auth) *Keeper { return k.with(func(c *Config) { c.Auth = a }) }

// ACL sets that of the nodes that are created: entries scheme:id:rights, such as auth:cdrwa and world:r.
func (k *Keeper) ACL(entries ...string) *Keeper {
	return k.with(func(c *Config) { c.ACL = slices.Clone(entries) })
}

// TLS encrypts connections.
func (k *Keeper) TLS(t TLS) *Keeper {
	t.Enabled = true
	return k.with(func(c *Config) { c.TLS = t })
}

// Describe implements engine.Keeper.
func (k *Keeper) Describe(pipeline string) string {
	s, err := k.settings(pipeline)
	if err != nil {
		return "zookeeper: settings that can't be used"
	}
	role := "record"
	if k.cfg.Lock {
		role = "record and lock"
	}
	every := "after each batch"
	if s.store.UpdateInterval > 0 {
		every = "every " + s.store.UpdateInterval.String()
	}
	return fmt.Sprintf("zookeeper: %s at %s%s, written %s; while it is away: %s", role, s.store.Chroot, s.store.Base(), every, s.store.WhileAway)
}

// Validate checks the settings, for a pipeline of the given name. It contacts nobody and reads no file. The errors' texts
// begin with the setting's name.
func (k *Keeper) Validate(pipeline string) error {
	_, err := k.settings(pipeline)
	return err
}

// settings are what the packages below are given.
type settings struct {
	store zkstore.Config
	conn  zkconn.Config // without TLS, password file and logger
}

func (k *Keeper) settings(pipeline string) (*settings, error) {
	c := &k.cfg
	var servers []string
	for _, list := range c.Servers {
		for s := range strings.SplitSeq(list, ",") {
			s = strings.TrimSpace(s)
			if s == "" {
				continue
			}
			if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
				return nil, configError("servers", "write each as host:port", "%q is not host:port", s)
			}
			if slices.Contains(servers, s) {
				return nil, configError("servers", "name it once", "%s is listed twice", s)
			}
			servers = append(servers, s)
		}
	}
	if len(servers) == 0 {
		return nil, configError("servers", "name the servers of the ensemble, host:port", "none is given")
	}
	chroot := c.Chroot
	if chroot == "/" {
		chroot = ""
	}
	if chroot != "" {
		if err := zkstore.CheckPath(chroot); err != nil {
			return nil, configError("chroot", "write it like /a/b", "%w", err)
		}
	}
	policy, err := c.policy()
	if err != nil {
		return nil, err
	}
	if a := c.Auth; a != (Auth{}) {
		switch {
		case a.User == "" || strings.Contains(a.User, ":"):
			return nil, configError("auth.user", "name a user, without a colon", "%q can't be a digest user", a.User)
		case (a.Password == "") == (a.PasswordFile == ""):
			return nil, configError("auth.password", "give either password or password_file", "there must be exactly one of password and password_file")
		}
	}
	if t := c.TLS; t.Enabled && (t.CertFile == "") != (t.KeyFile == "") {
		return nil, configError("tls.cert_file", "give both, or neither", "cert_file and key_file belong together")
	}
	acl, err := zkstore.ParseACL(c.ACL, c.Auth.User != "" || c.TLS.Enabled && c.TLS.CertFile != "")
	if err != nil {
		return nil, err
	}
	s := &settings{
		store: zkstore.Config{
			Pipeline: pipeline, Chroot: chroot, Path: c.Path, ID: c.ID, WhileAway: policy, UpdateInterval: c.UpdateInterval,
			RetryMin: c.RetryMin, RetryMax: c.RetryMax, RetryFor: c.RetryFor, ACL: acl,
		},
		conn: zkconn.Config{
			Servers: servers, Chroot: chroot, SessionTimeout: c.SessionTimeout, ConnectTimeout: c.ConnectTimeout, CallTimeout: c.CallTimeout,
			User: c.Auth.User, Password: c.Auth.Password,
		},
	}
	if s.store.ID == "" {
		s.store.ID = pipeline
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"session_timeout", &s.conn.SessionTimeout, zkconn.DefaultSessionTimeout},
		{"connect_timeout", &s.conn.ConnectTimeout, zkconn.DefaultConnectTimeout},
		{"call_timeout", &s.conn.CallTimeout, zkconn.DefaultCallTimeout},
	} {
		if *d.value < 0 {
			return nil, configError(d.name, "give a positive duration, or leave it out", "%s is negative", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if err := s.store.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *Config) policy() (zkstore.Policy, error) {
	def := zkstore.Continue
	if c.Lock {
		def = zkstore.Stall
	}
	if c.WhileAway == "" {
		return def, nil
	}
	p, err := zkstore.ParsePolicy(c.WhileAway)
	switch {
	case err != nil:
		return p, configError("while_away", "choose continue or stall", "%w", err)
	case c.Lock && p == zkstore.Continue:
		return p, configError("while_away", "leave it out, or choose the role record", "a pipeline under a lock can't continue while it doesn't know whether it holds it")
	}
	return p, nil
}

func configError(field, remedy, format string, args ...any) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "zookeeper", fmt.Errorf("%s: "+format, append([]any{field}, args...)...), remedy)
}

// shared is the session that the record and the lock of one run use together.
type shared struct {
	mu    sync.Mutex
	conn  *zkconn.Conn
	users int
}
