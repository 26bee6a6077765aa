package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/txstate"
)

func TestFromEnv(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want string // in the error of Open; empty: none
	}{
		"brokers":          {map[string]string{"KAFKA_BROKERS": "a:1, b:2,"}, ""},
		"nothing":          {nil, "KAFKA_BROKERS"},
		"no port":          {map[string]string{"KAFKA_BROKERS": "a"}, `"a"`},
		"odd TLS":          {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_TLS": "perhaps"}, "KAFKA_TLS"},
		"TLS":              {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_TLS": "true"}, ""},
		"key alone":        {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_TLS_KEY_FILE": "k"}, "tls.cert_file"},
		"key, TLS off":     {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_TLS": "false", "KAFKA_TLS_KEY_FILE": "k"}, ""},
		"password":         {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USER": "u", "KAFKA_SASL_PASSWORD": "p"}, ""},
		"no password":      {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USER": "u"}, "sasl.password"},
		"no mechanism":     {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_SASL_USER": "u"}, "sasl.mechanism"},
		"unread mechanism": {map[string]string{"KAFKA_BROKERS": "a:1", "KAFKA_SASL_MECHANISM": "GSSAPX"}, "GSSAPX"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"BROKERS", "CLIENT_ID", "TLS", "TLS_CA_FILE", "TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_SERVER_NAME", "SASL_MECHANISM", "SASL_USER", "SASL_PASSWORD", "SASL_PASSWORD_FILE", "SASL_TOKEN_FILE"} {
				t.Setenv("KAFKA_"+v, tc.env["KAFKA_"+v])
			}
			_, err := FromEnv().Topics("t").Open("src", emitter.Lines, emitter.Env{})
			if tc.want == "" {
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return
			}
			var e *batch.Error
			if !errors.As(err, &e) || e.Kind != batch.Permanent || e.Code != batch.CodeConfiguration || e.Remedy == "" || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Open: %v, want a permanent configuration error about %s", err, tc.want)
			}
		})
	}
}

func TestCopies(t *testing.T) {
	base := New("a:1")
	secret := base.SASL(SASL{Mechanism: "PLAIN", User: "u", Password: "hush"}).TLS(TLS{ServerName: "name"}).Timeout(time.Second)
	if base.cfg.SASL != (SASL{}) || base.cfg.TLS != (TLS{}) || base.cfg.Timeout != 0 {
		t.Error("a derived cluster changed its base")
	}
	one := secret.Topics("x", "y")
	two := one.Start(Latest).Opaque().Group("g").ReadUncommitted()
	if one.cfg.Start != Earliest || one.cfg.Group != "" || one.cfg.Mode != two.cfg.Mode-1 {
		t.Error("a derived source changed its base")
	}
	for s, want := range map[*Source]string{&one: "kafka topics x, y (read_committed)", &two: "kafka topics x, y (read_uncommitted)"} {
		if got := s.Describe(); got != want {
			t.Errorf("Describe: %q, want %q", got, want)
		}
	}
	if got := secret.Pattern("ev.*").Describe(); got != "kafka topics like ev.* (read_committed)" {
		t.Errorf("Describe: %q", got)
	}
	if _, err := base.Topics("x").Start(Committed(Earliest)).Open("src", emitter.Lines, emitter.Env{}); err == nil || !strings.Contains(err.Error(), "group") {
		t.Errorf("committed without a group: %v", err)
	}
}

func TestSourceReads(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("hello")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	em, err := New(fake.ListenAddrs()...).Options(kgo.ClientID("mine")).Topics("t").Open("src", emitter.Lines, emitter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	starts, err := em.Open(ctx, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	em.Admit(starts)
	p := batch.Partition{Source: "src", Topic: "t"}
	for {
		r, ok := em.Plan(p, 0, emitter.Limit{})
		if !ok {
			select {
			case <-em.Ready():
				continue
			case <-ctx.Done():
				t.Fatal("nothing to plan")
			}
		}
		var got []string
		if err := em.Read(ctx, r, func(c *batch.Chunk) error {
			for _, rec := range c.Records {
				got = append(got, string(rec.Value))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0] != "hello" {
			t.Errorf("read %q", got)
		}
		break
	}
	if err := em.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestMirror(t *testing.T) {
	c := New("b:2", "a:1")
	for _, tc := range []struct {
		source Source
		name   string // of the mirror; empty: there is none
		writes []string
	}{
		{c.Topics("t", "u"), "kafka group tridentd-words, source lines", []string{
			"the offsets of topic t in consumer group tridentd-words at a:1, b:2", "the offsets of topic u in consumer group tridentd-words at a:1, b:2",
		}},
		{c.Pattern("t.*").Group("mine"), "kafka group mine, source lines", []string{"the offsets of topics like t.* in consumer group mine at a:1, b:2"}},
		{c.Topics("t").NoMirror(), "", nil},
	} {
		if got := tc.source.Mirrored("words"); !slices.Equal(got, tc.writes) {
			t.Errorf("writes %q, want %q", got, tc.writes)
		}
		m, err := tc.source.Mirror("words", "lines", emitter.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if m == nil != (tc.name == "") {
			t.Fatalf("the mirror is %v, want %q", m, tc.name)
		}
		if m == nil {
			continue
		}
		if m.Name() != tc.name {
			t.Errorf("the mirror is %q, want %q", m.Name(), tc.name)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []Source{c.Pattern("("), c.TLS(TLS{CAFile: "missing"}).Topics("t"), c.Topics("t")} {
		_, err := bad.Mirror("words", strings.Repeat("s", 5000), emitter.Env{}) // a name too long for metadata is the last one's mistake
		if batch.CodeOf(err) != batch.CodeConfiguration || batch.KindOf(err) != batch.Permanent {
			t.Errorf("%s: %v", bad.Describe(), err)
		}
	}
}

// TestMirrorShows runs a mirror made by a source against a cluster.
func TestMirrorShows(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "lines-a", "other"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	m, err := New(fake.ListenAddrs()...).Pattern("lines-.*").Mirror("words", "lines", emitter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	var positions []txstate.SavedPosition
	for _, topic := range []string{"lines-a", "other"} {
		p := batch.Position{Partition: batch.Partition{Source: "lines", Topic: topic}, Next: 20, LeaderEpoch: batch.NoEpoch}
		positions = append(positions, txstate.SavedPosition{Position: p, Txid: 3})
	}
	m.Committed(3, 1, positions)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := New(fake.ListenAddrs()...).Topics("lines-a", "other").Mirror("words", "lines", emitter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	carried, err := again.Carried(t.Context())
	want := txstate.Carried{Partition: positions[0].Partition, Next: 20, Txid: 3, Epoch: 1}
	if err != nil || len(carried) != 1 || carried[0] != want {
		t.Errorf("carried %v, %v, want %v", carried, err, want)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
