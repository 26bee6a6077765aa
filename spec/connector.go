package spec

import (
	"context"
	"strings"

	connect "github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/txstate"
)

// connector opens one source of a plan.
type connector struct {
	describe string
	inputs   []string // topics or files, as describe has them
	open     func(id string, env emitter.Env) (emitter.Emitter, error)
	kafka    *kafka.Config // nil for other sources
	// survey asks the source's servers; nil: it can't be asked.
	survey func(ctx context.Context, id string, env emitter.Env, q emitter.SurveyQuery) ([]emitter.Survey, error)
	// check asks the source's servers how they are; nil: it has none.
	check func(ctx context.Context, env doctor.Env) []doctor.Finding
	// resend sends records to the source's topics; nil: nothing can be sent there.
	resend func(ctx context.Context, env emitter.Env, records []emitter.Resent) (int, error)
	// exporter makes what writes the source's offsets to a group on purpose; nil: nothing can.
	exporter func(id, group string, env emitter.Env) (txstate.Mirror, error)
	// mirror makes what shows the source's committed offsets; nil: nothing does. mirrored names what that writes.
	mirror   func(id string, env emitter.Env) (txstate.Mirror, error)
	mirrored []string
}

// framing is how a byte stream is cut for a way of decoding.
func framing(decode string) emitter.Framing {
	if decode == "csv" {
		return emitter.CSV
	}
	return emitter.Lines
}

// connect makes the connector of a source, and reports settings that exclude each other or can't be used.
func (c *checker) connect(d *sourceDecl) connector {
	switch d.connector {
	case "kafka":
		con := c.connectKafka(d)
		con.check = checkRegistry(d.decode.schema, con.check)
		return con
	case "file":
		return fileConnector(d.settings.get("paths"), d.decode.kind)
	case "generate":
		return c.connectGenerator(d)
	}
	return connector{}
}

func (c *checker) connectStatic(d *staticDecl) connector {
	if d.paths == nil {
		return connector{}
	}
	return fileConnector(d.paths, d.decode.kind)
}

func fileConnector(paths *node, decode string) connector {
	return plain(file.Paths(paths.texts()...), decode)
}

// plain is the connector of a source that shows its offsets nowhere.
func plain(src emitter.Surveyed, decode string) connector {
	var check func(ctx context.Context, env doctor.Env) []doctor.Finding
	if ch, ok := src.(doctor.Checker); ok {
		check = ch.Check
	}
	var inputs []string
	if l, ok := src.(emitter.Listing); ok {
		inputs = l.Inputs()
	}
	return connector{
		check:    check,
		describe: src.Describe(), inputs: inputs,
		open: func(id string, env emitter.Env) (emitter.Emitter, error) {
			return src.Open(id, framing(decode), env)
		},
		survey: func(ctx context.Context, id string, env emitter.Env, q emitter.SurveyQuery) ([]emitter.Survey, error) {
			return src.Survey(ctx, id, framing(decode), env, q)
		},
	}
}

func (c *checker) connectKafka(d *sourceDecl) connector {
	n := d.settings
	cfg, from, ok := c.cluster(n, d.at, "source "+d.name)
	if !ok {
		return connector{}
	}
	cfg.Topics, cfg.Pattern, cfg.Group = n.get("topics").texts(), n.get("pattern").str(), n.get("group").str()
	unmirrored := cfg.Group == noGroup
	switch cfg.Group {
	case noGroup:
		cfg.Group = ""
	case "":
		cfg.Group = connect.DefaultGroup(c.m.name)
	}
	if s := n.get("start"); s != nil {
		start, err := kafka.ParseStart(s.text)
		if err != nil {
			c.add(s.at, "", "start: %v", err)
			return connector{}
		}
		cfg.Start = start
	}
	if n.get("mode").str() == "opaque" {
		cfg.Mode = kafka.Opaque
	}
	if n.get("isolation").str() == "read_uncommitted" {
		cfg.Isolation = kafka.ReadUncommitted
	}
	if len(from.failed)+len(n.failed) > 0 {
		return connector{} // reported already
	}
	// New checks the settings and contacts nobody.
	probe, err := kafka.New(d.name, cfg, emitter.Env{})
	if err != nil {
		c.kafkaError(d, from, err)
		return connector{}
	}
	if err := probe.Close(context.Background()); err != nil {
		panic("spec: an emitter that was never opened doesn't close: " + err.Error())
	}
	con := connector{
		describe: cfg.Describe(), inputs: cfg.Inputs(), kafka: &cfg,
		open: func(id string, env emitter.Env) (emitter.Emitter, error) { return kafka.New(id, cfg, env) },
		survey: func(ctx context.Context, id string, env emitter.Env, q emitter.SurveyQuery) ([]emitter.Survey, error) {
			return kafka.Survey(ctx, cfg, id, env, q)
		},
		check: func(ctx context.Context, env doctor.Env) []doctor.Finding {
			return connect.Check(ctx, cfg, !unmirrored, env)
		},
		resend: func(ctx context.Context, env emitter.Env, records []emitter.Resent) (int, error) {
			return connect.Resend(ctx, cfg, env, records)
		},
		exporter: func(id, group string, env emitter.Env) (txstate.Mirror, error) {
			return connect.NewExporter(cfg, c.m.name, id, group, env)
		},
	}
	if unmirrored {
		return con
	}
	con.mirrored = connect.Mirrored(cfg, c.m.name)
	con.mirror = func(id string, env emitter.Env) (txstate.Mirror, error) {
		return connect.NewMirror(cfg, c.m.name, id, env)
	}
	c.unshared(d, con.mirrored)
	return con
}

// cluster takes the settings of a connection: those of n, which what is, or the shared ones. from is where the brokers are named.
func (c *checker) cluster(n *node, at pos, what string) (cfg kafka.Config, from *node, ok bool) {
	shared := c.m.connections.get("kafka")
	// Whoever names brokers of its own is at another cluster: the shared one's secrets are not sent there.
	from = shared
	if n.has("brokers") {
		from = n
	} else if shared == nil {
		c.add(at, "for example brokers: [\"${KAFKA_BROKERS}\"]", "%s names no brokers, and there is no kafka under connections", what)
		return cfg, nil, false
	}
	for _, b := range from.get("brokers").texts() {
		for b := range strings.SplitSeq(b, ",") {
			if b = strings.TrimSpace(b); b != "" {
				cfg.Brokers = append(cfg.Brokers, b)
			}
		}
	}
	tls, sasl := from.get("tls"), from.get("sasl")
	if v := n.get("tls"); v != nil {
		tls = v
	}
	if v := n.get("sasl"); v != nil {
		sasl = v
	}
	if tls != nil {
		cfg.TLS = kafka.TLS{
			Enabled: true, CAFile: tls.get("ca_file").str(), CertFile: tls.get("cert_file").str(), KeyFile: tls.get("key_file").str(),
			ServerName: tls.get("server_name").str(), InsecureSkipVerify: tls.get("insecure_skip_verify") != nil && tls.get("insecure_skip_verify").yes,
		}
		if e := tls.get("enabled"); e != nil && !e.yes {
			cfg.TLS = kafka.TLS{}
		}
	}
	if sasl != nil {
		cfg.SASL = kafka.SASL{
			Mechanism: sasl.get("mechanism").str(), User: sasl.get("user").str(), Password: sasl.get("password").str(),
			PasswordFile: sasl.get("password_file").str(), TokenFile: sasl.get("token_file").str(),
			Principal: sasl.get("principal").str(), KeytabFile: sasl.get("keytab_file").str(), KRB5Conf: sasl.get("krb5_conf").str(),
			Service: sasl.get("service").str(), DisableFAST: sasl.get("disable_fast") != nil && sasl.get("disable_fast").yes,
			AccessKey: sasl.get("access_key").str(), SecretKey: sasl.get("secret_key").str(), SessionToken: sasl.get("session_token").str(),
			CredentialsFile: sasl.get("credentials_file").str(), Profile: sasl.get("profile").str(),
		}
	}
	return cfg, from, true
}

// noGroup is the setting group of a source whose offsets are shown in no consumer group.
const noGroup = "off"

// unshared reports what another source writes too.
func (c *checker) unshared(d *sourceDecl, mirrored []string) {
	for _, what := range mirrored {
		if other, ok := c.mirrored[what]; ok {
			c.add(d.at, "give one of them group: NAME, or group: off", "sources %s and %s would both write %s", other, d.name, what)
			return
		}
	}
	for _, what := range mirrored {
		c.mirrored[what] = d.name
	}
}

// kafkaError reports what the Kafka source says of its settings, at the setting that it names.
func (c *checker) kafkaError(d *sourceDecl, shared *node, err error) {
	msg, hint := saying(err)
	field, _, _ := strings.Cut(msg, ":")
	at := d.settings.keyAt
	for _, root := range []*node{d.settings, shared} {
		n := root
		for part := range strings.SplitSeq(strings.TrimSpace(strings.Split(field, ",")[0]), ".") {
			if v := n.get(part); v != nil {
				n = v
			}
		}
		if n != root && n != nil {
			at = n.at
			break
		}
	}
	c.add(at, hint, "%s", msg)
}
