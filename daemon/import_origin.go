package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/zkconn"
	"github.com/tridentd/tridentd/migrate/storm"
	"github.com/tridentd/tridentd/txstate"
)

// The origins of an import.
const (
	fromStormZK   = "storm-zk"
	fromTridentZK = "trident-zk"
	fromClient    = "storm-client"
	fromGroup     = "kafka-group"
	fromFile      = "file"
	fromStart     = "start" // only with rows of a state: the sources' own start settings
)

// originFlags say where an import comes from.
type originFlags struct {
	from     string
	servers  []string
	chroot   string
	zkPath   string
	ids      []string
	authFile string
	group    string
	path     string
}

func (o *originFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.from, "from", "", "where from: see above")
	cmd.Flags().StringSliceVar(&o.servers, "servers", nil, "ZooKeeper's servers, host:port")
	cmd.Flags().StringVar(&o.chroot, "chroot", "", "ZooKeeper's chroot, /a/b")
	cmd.Flags().StringVar(&o.zkPath, "zk-path", "", "storm-zk: the spout's zkRoot; trident-zk: transactional.zookeeper.root (default /transactional)")
	cmd.Flags().StringSliceVar(&o.ids, "spout-id", nil, "storm-zk: the spout's id; trident-zk: the name given to newStream, several of one topology")
	cmd.Flags().StringVar(&o.authFile, "zk-auth-file", "", "file that holds user:password, for digest authentication at ZooKeeper")
	cmd.Flags().StringVar(&o.group, "group", "", "storm-client, kafka-group: the consumer group")
	cmd.Flags().StringVar(&o.path, "path", "", "file: its path")
}

// check tells what is missing, and what belongs to another origin.
func (o *originFlags) check(withState bool) error {
	zk := o.from == fromStormZK || o.from == fromTridentZK
	group := o.from == fromClient || o.from == fromGroup
	switch {
	case o.from == "":
		return usagef("say where from: --from storm-zk, trident-zk, storm-client, kafka-group or file")
	case !zk && !group && o.from != fromFile && o.from != fromStart:
		return usagef("--from %q: it is storm-zk, trident-zk, storm-client, kafka-group or file", o.from)
	case o.from == fromStart && !withState:
		return usagef("--from start brings no positions along: it is for rows of a state; without any, just run the pipeline")
	}
	for _, f := range []struct {
		name  string
		given bool
		fits  bool
		must  bool
	}{
		{"--servers", len(o.servers) > 0, zk, true},
		{"--spout-id", len(o.ids) > 0, zk, true},
		{"--zk-path", o.zkPath != "", zk, false},
		{"--chroot", o.chroot != "", zk, false},
		{"--zk-auth-file", o.authFile != "", zk, false},
		{"--group", o.group != "", group, true},
		{"--path", o.path != "", o.from == fromFile, true},
	} {
		switch {
		case f.given && !f.fits:
			return usagef("%s has no meaning with --from %s", f.name, o.from)
		case f.must && f.fits && !f.given:
			return usagef("--from %s needs %s", o.from, f.name)
		}
	}
	if o.chroot != "" && (!strings.HasPrefix(o.chroot, "/") || strings.HasSuffix(o.chroot, "/")) {
		return usagef("--chroot %q: it is a path like /a/b", o.chroot)
	}
	if len(o.ids) > 1 && o.from == fromStormZK {
		return usagef("--spout-id: --from storm-zk takes one")
	}
	for _, s := range o.servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			return usagef("--servers %q: it is host:port", s)
		}
	}
	return nil
}

// text says where from, for people and the ledger, without secrets.
func (o *originFlags) text() string {
	switch o.from {
	case fromStormZK, fromTridentZK:
		return fmt.Sprintf("%s %s%s %s", o.from, strings.Join(o.servers, ","), o.root(), strings.Join(o.ids, ","))
	case fromClient, fromGroup:
		return o.from + " " + o.group
	case fromFile:
		return o.from + " " + o.path
	}
	return o.from
}

// root is the path below which the ids lie, the chroot included: nothing is made that isn't there.
func (o *originFlags) root() string {
	path := o.zkPath
	if path == "" && o.from == fromTridentZK {
		path = "/transactional" // Storm's default
	}
	if path = strings.Trim(path, "/"); path != "" {
		path = "/" + path
	}
	return o.chroot + path
}

// read asks the origin. The sources are those that may take the positions.
func (o *originFlags) read(ctx context.Context, pl *plan.Plan) (left *storm.Left, err error) {
	switch o.from {
	case fromStormZK, fromTridentZK:
		return o.readZooKeeper(ctx)
	case fromClient, fromGroup:
		return o.readGroup(ctx, pl)
	case fromFile:
		f, err := os.Open(o.path)
		if err != nil {
			return nil, usagef("--path: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		return storm.ReadFile(o.path, f)
	}
	return &storm.Left{}, nil
}

func (o *originFlags) readZooKeeper(ctx context.Context) (left *storm.Left, err error) {
	cfg := zkconn.Config{Servers: o.servers, Logger: hclog.NewNullLogger()}
	if o.authFile != "" {
		b, err := os.ReadFile(o.authFile)
		if err != nil {
			return nil, usagef("--zk-auth-file: %w", err)
		}
		user, password, ok := strings.Cut(strings.TrimRight(string(b), "\r\n"), ":")
		if !ok || user == "" {
			return nil, usagef("--zk-auth-file %s holds no user:password", o.authFile)
		}
		cfg.User, cfg.Password = user, password
	}
	nodes, err := storm.Connect(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, nodes.Close(closing))
	}()
	if o.from == fromStormZK {
		return storm.ReadSpout(ctx, nodes, o.root(), o.ids[0])
	}
	return storm.ReadTrident(ctx, nodes, o.root(), o.ids...)
}

// readGroup asks each source's cluster for what the group holds of the source's topics.
func (o *originFlags) readGroup(ctx context.Context, pl *plan.Plan) (*storm.Left, error) {
	left := &storm.Left{}
	type place struct {
		topic     string
		partition int32
	}
	seen := map[place]bool{} // two sources of one topic are told apart later
	var errs []error
	asked := 0
	for _, s := range pl.Sources {
		if s.Exporter == nil {
			continue
		}
		asked++
		shown, err := mirrorShows(ctx, func() (txstate.Mirror, error) { return s.Exporter(plan.Env{Logger: hclog.NewNullLogger()}, o.group) })
		if err != nil {
			return nil, err
		}
		for _, sh := range shown {
			at := place{sh.Topic, sh.Number}
			if seen[at] {
				continue
			}
			seen[at] = true
			p, err := o.committed(&sh)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			left.Positions = append(left.Positions, p)
		}
	}
	switch {
	case asked == 0:
		return nil, usagef("pipeline %s has no such source that reads Kafka: there is nothing for a consumer group", pl.Name)
	case len(errs) > 0:
		return nil, few(errs)
	case len(left.Positions) == 0:
		return nil, usagef("group %s holds no offset of a topic that the pipeline reads", o.group)
	}
	return left, nil
}

// committed is what a group's offset means.
func (o *originFlags) committed(sh *txstate.Shown) (storm.Position, error) {
	p := storm.Position{Topic: sh.Topic, Partition: sh.Number, Next: sh.Next, From: "group " + o.group}
	refuse := func(remedy, format string, args ...any) error {
		return batch.NewError(batch.Permanent, batch.CodeConfiguration, "import", fmt.Errorf("group %s: "+format, append([]any{o.group}, args...)...), remedy).
			At(sh.Partition, sh.Next)
	}
	if o.from == fromGroup {
		if storm.Inclusive(sh.Metadata) {
			return p, refuse("say --from storm-client", "an old storm-kafka-client committed it, whose offsets have been processed already")
		}
		return p, nil
	}
	var err error
	if p.Next, p.Topology, err = storm.Committed(sh.Next, sh.Metadata); err != nil {
		return p, refuse("say --from kafka-group, if the offset is the one to be read next", "%w", err)
	}
	return p, nil
}
