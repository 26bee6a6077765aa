package zkstore

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
)

// Defaults of Config.
const (
	DefaultPath           = "/trident"
	DefaultUpdateInterval = 2 * time.Second
	DefaultRetryMin       = 100 * time.Millisecond
	DefaultRetryMax       = 30 * time.Second
)

// Policy says what becomes of batches while the record can't be written.
type Policy uint8

const (
	Continue Policy = iota // they go on, and the record catches up
	Stall                  // none commits
)

func (p Policy) String() string {
	if p == Stall {
		return "stall"
	}
	return "continue"
}

// ParsePolicy reads what String writes.
func ParsePolicy(text string) (Policy, error) {
	for _, p := range []Policy{Continue, Stall} {
		if p.String() == text {
			return p, nil
		}
	}
	return Continue, fmt.Errorf("%q is neither continue nor stall", text)
}

// Config says what is kept, and where. Pipeline and ID have no default.
type Config struct {
	Pipeline string
	// Chroot is where paths begin, for messages only: the connection adds it.
	Chroot string
	// Path and ID name the node below which everything lies: <Path>/<ID>, below the chroot.
	Path      string
	ID        string
	WhileAway Policy
	// UpdateInterval is the least time between two writes; 0: each batch is written (those that commit during a write
	// together), and under Stall a batch commits only once the one before has been.
	UpdateInterval time.Duration
	RetryMin       time.Duration // the first back-off after a failure
	RetryMax       time.Duration // the largest back-off
	// RetryFor bounds for how long a failure may last; 0: for ever. After that a run that stalls ends; one that continues goes on.
	RetryFor time.Duration
	// ACL is that of the nodes that are created. Default: everybody may do everything.
	ACL    []zk.ACL
	Logger hclog.Logger
	// Guard returns the checks that each write is to be conditional on, for example on a lock's epoch. May be nil.
	Guard func() []any
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Base is the node below which everything lies.
func (c *Config) Base() string { return strings.TrimSuffix(c.Path, "/") + "/" + c.ID }

// Validate checks c and fills in defaults.
func (c *Config) Validate() error {
	if c.Path == "" {
		c.Path = DefaultPath
	}
	if err := CheckPath(c.Path); err != nil {
		return configError("path", "write it like /trident", "%w", err)
	}
	if !idPattern.MatchString(c.ID) || c.ID == "." || c.ID == ".." {
		return configError("id", "use letters, digits, dots, - and _", "%q can't be the name of a node here", c.ID)
	}
	if c.Pipeline == "" {
		return configError("pipeline", "name it", "none is given")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"update_interval", &c.UpdateInterval, 0},
		{"retry.min", &c.RetryMin, DefaultRetryMin},
		{"retry.max", &c.RetryMax, DefaultRetryMax},
		{"retry.for", &c.RetryFor, 0},
	} {
		if *d.value < 0 {
			return configError(d.name, "give a positive duration, or leave it out", "%s is negative", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.RetryMin > c.RetryMax {
		return configError("retry.min", "lower it, or raise retry.max", "%s is above retry.max %s", c.RetryMin, c.RetryMax)
	}
	if len(c.ACL) == 0 {
		c.ACL = zk.WorldACL(zk.PermAll)
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// CheckPath tells whether path can be an absolute path of ZooKeeper's.
func CheckPath(path string) error {
	if path == "/" {
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%q doesn't begin with /", path)
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		switch {
		case name == "":
			return fmt.Errorf("%q has an empty part", path)
		case name == "." || name == "..":
			return fmt.Errorf("%q is not absolute: it has a part %s", path, name)
		case strings.ContainsFunc(name, func(r rune) bool {
			return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
		}):
			return fmt.Errorf("%q has a character that ZooKeeper takes in no path", path)
		}
	}
	if path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/") {
		return fmt.Errorf("%q belongs to ZooKeeper itself", path)
	}
	return nil
}

func configError(field, remedy, format string, args ...any) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "zookeeper", fmt.Errorf("%s: "+format, append([]any{field}, args...)...), remedy)
}

var rights = map[rune]int32{'c': zk.PermCreate, 'd': zk.PermDelete, 'r': zk.PermRead, 'w': zk.PermWrite, 'a': zk.PermAdmin}

// DefaultACL is what nodes are created with where nothing is said: whoever is authenticated may do everything with his own;
// without authentication everybody may.
func DefaultACL(authenticated bool) []string {
	if authenticated {
		return []string{"auth:cdrwa"}
	}
	return []string{"world:cdrwa"}
}

// ParseACL reads entries scheme:id:rights, where rights are letters of cdrwa. For the schemes world and auth the id may be left
// out. Without entries it is that of DefaultACL.
func ParseACL(entries []string, authenticated bool) ([]zk.ACL, error) {
	if len(entries) == 0 {
		entries = DefaultACL(authenticated)
	}
	var all []zk.ACL
	for _, entry := range entries {
		a, err := parseEntry(entry, authenticated)
		if err != nil {
			return nil, configError("acl", `write entries like "auth:cdrwa", "world:r" or "digest:user:hash:cdrw"`, "%q: %w", entry, err)
		}
		all = append(all, a)
	}
	return all, nil
}

func parseEntry(entry string, authenticated bool) (a zk.ACL, err error) {
	end := strings.LastIndexByte(entry, ':')
	scheme, id, _ := strings.Cut(entry[:max(end, 0)], ":")
	if end < 0 || scheme == "" {
		return a, errors.New("it has no rights")
	}
	letters := entry[end+1:]
	if letters == "" {
		return a, errors.New("it has no rights")
	}
	for _, l := range letters {
		p, ok := rights[l]
		if !ok {
			return a, fmt.Errorf("%q is no right; there are c, d, r, w and a", string(l))
		}
		if a.Perms&p != 0 {
			return a, fmt.Errorf("the right %q is given twice", string(l))
		}
		a.Perms |= p
	}
	a.Scheme, a.ID = scheme, id
	switch scheme {
	case "world":
		if id != "" && id != "anyone" {
			return a, errors.New("the scheme world has only the id anyone")
		}
		a.ID = "anyone"
	case "auth":
		switch {
		case id != "":
			return a, errors.New("the scheme auth has no id: it stands for who connects")
		case !authenticated:
			return a, errors.New("there is no identity to give rights to without auth")
		}
	case "digest", "ip", "x509", "sasl":
		if id == "" {
			return a, fmt.Errorf("the scheme %s needs an id", scheme)
		}
		if user, hash, ok := strings.Cut(id, ":"); scheme == "digest" && (!ok || user == "" || hash == "") {
			return a, errors.New("the scheme digest needs user:hash")
		}
	default:
		return a, fmt.Errorf("there is no scheme %q; there are world, auth, digest, ip, x509 and sasl", scheme)
	}
	return a, nil
}
