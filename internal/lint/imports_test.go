package lint

import (
	"slices"
	"strings"
	"testing"
)

// rule says what a package may import besides the standard library, itself excepted.
type rule struct {
	ours    []string // names within the module; "…/*" stands for all below
	clients []string // prefixes of other modules' import paths
	// bare packages may import neither batch nor the helpers; all others may.
	bare bool
	// any lifts all limits: programs and what ties everything together.
	any bool
}

// helpers are packages without side effects that everyone but the bare may use.
var helpers = []string{
	"batch", "decimal", "doctor",
	"internal/csvscan", "internal/enc", "internal/invariant", "internal/jsonscan", "internal/names", "internal/value",
}

// Modules that many packages use, and that are no client of anything.
const (
	hclog  = "github.com/hashicorp/go-hclog"
	xxhash = "github.com/cespare/xxhash/v2"
	xsync  = "golang.org/x/sync"
	pebble = "github.com/cockroachdb/pebble/v2"
	franz  = "github.com/twmb/franz-go"
	zk     = "github.com/go-zookeeper/zk"
	yaml   = "github.com/goccy/go-yaml"
	lz     = "github.com/klauspost/compress"
	rapid  = "pgregory.net/rapid"
	data   = "github.com/cockroachdb/datadriven"
	leak   = "go.uber.org/goleak"
)

// table is the order of the packages: each may import what stands in its row. Clients of servers stay in the packages
// named after them; pebble is pebblestate's alone, but for the file systems that the test kit gives it.
var table = map[string]rule{
	// Values and interfaces.
	"batch":       {bare: true},
	"coordinator": {ours: []string{"batch"}, bare: true},
	"decimal":     {clients: []string{"github.com/cockroachdb/apd/v3"}, bare: true},
	"doctor":      {clients: []string{hclog}, bare: true, ours: []string{"batch"}},
	"window":      {bare: true},
	"txstate":     {},
	"emitter":     {clients: []string{hclog}},
	"codec":       {ours: []string{"emitter"}},
	"state":       {ours: []string{"window"}, clients: []string{xxhash}, bare: true},
	"agg":         {ours: []string{"state"}, clients: []string{xxhash}},
	"sink":        {},

	// Helpers.
	"internal/csvscan":   {bare: true},
	"internal/enc":       {},
	"internal/invariant": {bare: true},
	"internal/jsonscan":  {bare: true},
	"internal/names":     {bare: true},
	"internal/scratch":   {bare: true},
	"internal/value":     {ours: []string{"state"}},
	"internal/vec":       {},
	"internal/columnar":  {ours: []string{"internal/vec"}, clients: []string{"github.com/twmb/avro", "github.com/bufbuild/protocompile", "google.golang.org/protobuf"}},
	"internal/expr":      {ours: []string{"internal/vec"}, clients: []string{"github.com/expr-lang/expr", xxhash}},
	"internal/sim":       {ours: []string{"emitter", "txstate", "state", "sink"}},
	"internal/sqldb":     {ours: []string{"batch"}, clients: []string{"github.com/jackc/pgx/v5", "modernc.org/sqlite"}, bare: true},
	"internal/testenv":   {clients: []string{franz, zk, "github.com/jackc/pgx/v5"}},
	"internal/zkconn":    {clients: []string{hclog, zk}},
	"internal/lint":      {bare: true},

	// The machine and what drives it.
	"coordinator/runner":    {ours: []string{"coordinator", "txstate"}, clients: []string{hclog}},
	"coordinator/coordtest": {ours: []string{"coordinator", "coordinator/runner", "txstate"}, clients: []string{hclog, data, rapid, leak}},

	// Clients.
	"emitter/emittertest":       {ours: []string{"emitter"}, clients: []string{hclog, rapid, leak}},
	"emitter/kafka":             {ours: []string{"emitter"}, clients: []string{hclog, franz, "github.com/jcmturner/gokrb5/v8"}},
	"emitter/file":              {ours: []string{"emitter"}, clients: []string{hclog, lz, xxhash}},
	"emitter/gen":               {ours: []string{"emitter"}, clients: []string{hclog}},
	"connect/kafka":             {ours: []string{"codec", "emitter", "emitter/kafka", "txstate", "txstate/kafkagroup", "sink", "sink/deadletter", "sink/kafkasink"}, clients: []string{hclog, franz}},
	"txstate/txstatetest":       {ours: []string{"txstate"}, clients: []string{rapid, leak}},
	"txstate/zkstore":           {ours: []string{"txstate", "internal/zkconn"}, clients: []string{hclog, zk, "golang.org/x/sys"}},
	"connect/schema":            {ours: []string{"internal/columnar", "codec"}, clients: []string{franz, "github.com/twmb/avro", "google.golang.org/protobuf"}},
	"connect/schema/schematest": {},
	"connect/zookeeper":         {ours: []string{"txstate", "txstate/zkstore", "internal/zkconn", "emitter", "engine"}, clients: []string{hclog}},
	"migrate/storm":             {ours: []string{"txstate", "internal/zkconn", "state"}, clients: []string{hclog, zk}},
	"txstate/kafkagroup":        {ours: []string{"txstate"}, clients: []string{hclog, franz}},
	"state/sqlstate":            {ours: []string{"state", "txstate"}, clients: []string{hclog, "github.com/jackc/pgx/v5"}},
	"state/redisstate":          {ours: []string{"state", "txstate"}, clients: []string{hclog, "github.com/redis/go-redis/v9"}},
	"sink/deadletter":           {ours: []string{"sink"}, clients: []string{rapid}},
	"sink/sinktest":             {ours: []string{"sink"}},
	"sink/kafkasink":            {ours: []string{"sink"}, clients: []string{hclog, franz}},
	"sink/sqlsink":              {ours: []string{"sink", "codec", "emitter", "internal/sqldb"}, clients: []string{hclog}},
	"sink/filesink":             {ours: []string{"sink", "sink/deadletter", "codec", "emitter"}, clients: []string{hclog, lz, "github.com/parquet-go/parquet-go"}},
	"pebblestate":               {ours: []string{"state", "txstate", "agg"}, clients: []string{hclog, xxhash, pebble, "github.com/cockroachdb/errors", "github.com/hashicorp/golang-lru/v2"}},

	// The engine.
	"internal/plan":     {ours: []string{"emitter", "txstate", "state", "sink", "sink/deadletter", "agg"}},
	"internal/exec":     {ours: []string{"internal/plan", "internal/change", "internal/query", "emitter", "state", "sink", "sink/deadletter", "agg", "codec", "txstate", "pebblestate"}, clients: []string{hclog, xxhash, xsync}},
	"internal/change":   {ours: []string{"internal/plan", "state"}},
	"internal/windowop": {ours: []string{"internal/plan", "state", "txstate"}},
	"internal/model":    {clients: []string{xxhash, rapid, pebble + "/vfs"}, ours: []string{"agg", "codec", "emitter", "engine", "sink", "window", "txstate", "pebblestate", "internal/exec", "internal/plan", "internal/query", "internal/rerun"}},
	"internal/query":    {ours: []string{"state", "txstate", "agg", "pebblestate"}},
	"engine": {
		ours: []string{
			"savepoint",
			"coordinator", "coordinator/runner", "txstate", "emitter", "codec", "agg", "state", "window", "sink", "sink/deadletter", "pebblestate",
			"internal/plan", "internal/exec", "internal/query", "internal/windowop",
		},
		clients: []string{hclog, xxhash, xsync, "github.com/cenkalti/backoff/v5", "github.com/prometheus/client_golang"},
	},
	"replay/replaytest": {
		ours:    []string{"replay", "engine", "emitter", "txstate", "pebblestate", "internal/exec", "internal/plan", "internal/rerun"},
		clients: []string{xxhash, pebble + "/vfs"},
	},
	"internal/rerun": {
		ours:    []string{"internal/plan", "internal/exec", "internal/query", "emitter", "sink", "state", "txstate", "pebblestate", "replay"},
		clients: []string{xxhash, pebble + "/vfs"},
	},
	"engine/enginetest": {
		ours:    []string{"engine", "replay", "emitter", "sink", "state", "txstate", "pebblestate", "internal/plan", "internal/exec", "internal/query", "internal/rerun", "internal/sim"},
		clients: []string{hclog, xxhash, pebble + "/vfs"},
	},
	"savepoint":        {ours: []string{"pebblestate", "internal/scratch"}, clients: []string{"github.com/klauspost/compress", "github.com/cenkalti/backoff/v5", xsync}},
	"connect/blob":     {ours: []string{"savepoint"}, clients: []string{"gocloud.dev"}},
	"connect/blob/gcs": {ours: []string{"savepoint", "connect/blob"}, clients: []string{"gocloud.dev"}},
	"replay":           {ours: []string{"engine", "internal/scratch", "internal/change", "internal/query", "internal/exec", "internal/plan", "emitter", "state", "txstate", "pebblestate"}, clients: []string{hclog, xxhash}},
	"cluster":          {ours: []string{"internal/exec", "internal/plan", "coordinator", "coordinator/runner", "txstate", "state", "emitter"}, clients: []string{hclog, franz, zk}},
	"spec": {
		ours: []string{
			"savepoint",
			"engine", "internal/plan", "internal/windowop", "internal/vec", "internal/expr", "state", "txstate", "agg", "window", "codec", "emitter", "sink", "sink/deadletter",
			"emitter/kafka", "emitter/file", "emitter/gen", "connect/kafka", "connect/schema", "internal/columnar", "connect/zookeeper", "txstate/zkstore",
			"state/sqlstate", "state/redisstate", "sink/kafkasink", "sink/sqlsink", "sink/filesink",
		},
		clients: []string{hclog, xxhash, yaml, lz, "github.com/invopop/jsonschema"},
	},
	"spec/spectest": {
		ours: []string{"spec", "emitter", "sink", "sink/deadletter", "state", "txstate", "pebblestate", "internal/plan", "internal/exec", "internal/query", "internal/rerun"},
	},
	"server":       {ours: []string{"engine", "replay", "state", "txstate"}, clients: []string{hclog, "github.com/prometheus/client_golang"}},
	"daemon":       {any: true},
	"cmd/tridentd": {ours: []string{"daemon", "connect/blob", "connect/blob/gcs"}},
	"examples/*":   {any: true},
	"bench/*":      {any: true},
	"bench":        {any: true},
}

func lookup(name string) (rule, bool) {
	if r, ok := table[name]; ok {
		return r, true
	}
	for dir := name; ; {
		i := strings.LastIndexByte(dir, '/')
		if i < 0 {
			return rule{}, false
		}
		dir = dir[:i]
		if r, ok := table[dir+"/*"]; ok {
			return r, true
		}
	}
}

// forbidden tells what is wrong with an import, or nothing.
func forbidden(r rule, name, path string) string {
	if r.any {
		return ""
	}
	if of, ok := strings.CutPrefix(path, module+"/"); ok {
		if slices.Contains(r.ours, of) || !r.bare && slices.Contains(helpers, of) {
			return ""
		}
		return name + " may not import " + of
	}
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(first, ".") { // the standard library
		if name == "coordinator" && slices.Contains(impure, path) {
			return name + " does no I/O, starts nothing and logs nothing: it may not import " + path
		}
		return ""
	}
	for _, c := range r.clients {
		if path == c || strings.HasPrefix(path, c+"/") {
			return ""
		}
	}
	return name + " may not import " + path
}

// impure are the packages of the standard library that a pure state machine has no use for.
var impure = []string{
	"context", "crypto/rand", "io", "io/fs", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http",
	"os", "os/exec", "sync", "sync/atomic", "syscall", "testing",
}

func TestImports(t *testing.T) {
	for _, p := range loadTree(t).ours {
		name := p.name()
		r, ok := lookup(name)
		if !ok {
			t.Errorf("%s has no row in the table of imports; give it one", name)
			continue
		}
		for _, path := range p.Imports {
			if msg := forbidden(r, name, path); msg != "" {
				t.Error(msg)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, c := range []struct {
		name, path string
		bad        bool
	}{
		{"coordinator", module + "/batch", false},
		{"coordinator", module + "/txstate", true},
		{"coordinator", module + "/internal/value", true},
		{"coordinator", "time", false},
		{"coordinator", "os", true},
		{"coordinator", hclog, true},
		{"txstate", module + "/batch", false},
		{"txstate", module + "/internal/enc", false},
		{"txstate", pebble, true},
		{"internal/exec", module + "/pebblestate", false},
		{"internal/exec", module + "/engine", true},
		{"internal/exec", pebble, true},
		{"emitter/kafka", franz + "/pkg/kgo", false},
		{"emitter/file", franz + "/pkg/kgo", true},
		{"emitter/kafka", "github.com/twmb/franz-gopher", true},
		{"examples/words", module + "/internal/exec", false},
	} {
		r, ok := lookup(c.name)
		if !ok {
			t.Errorf("no rule for %s", c.name)
		}
		if msg := forbidden(r, c.name, c.path); (msg != "") != c.bad {
			t.Errorf("%s importing %s: %q", c.name, c.path, msg)
		}
	}
	if _, ok := lookup("unheard"); ok {
		t.Error("an unknown package has a rule")
	}
}

// The table itself must have an order: nothing may import, over any number of steps, what imports it.
func TestTableHasNoCycle(t *testing.T) {
	const (
		unseen = iota
		open
		done
	)
	state := map[string]int{}
	var visit func(name string, way []string)
	visit = func(name string, way []string) {
		switch state[name] {
		case open:
			t.Errorf("cycle: %s", strings.Join(append(way, name), " → "))
		case unseen:
			state[name] = open
			r := table[name]
			next := r.ours
			if !r.bare && !r.any && !slices.Contains(helpers, name) {
				next = append(slices.Clone(next), helpers...)
			}
			for _, n := range next {
				visit(n, append(slices.Clone(way), name))
			}
			state[name] = done
		}
	}
	for name, r := range table {
		visit(name, nil)
		for _, n := range r.ours {
			if _, ok := lookup(n); !ok {
				t.Errorf("%s may import %s, which has no row", name, n)
			}
		}
	}
}
