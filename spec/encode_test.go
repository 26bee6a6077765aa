package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/connect/schema/schematest"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/txstate"
)

const soldSchema = `{"type":"record","name":"Sold","fields":[{"name":"id","type":"string"},{"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":2}},
 {"name":"at","type":["null",{"type":"long","logicalType":"timestamp-millis"}],"default":null},{"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","DONE"]},"default":"NEW"},
 {"name":"shop","type":["null",{"type":"record","name":"Shop","fields":[{"name":"city","type":"string"}]}],"default":null},{"name":"tags","type":{"type":"array","items":"string"},"default":[]}]}`

const soldProto = `syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Shop { string city = 1; }
message Sold { string id = 1; string amount = 2; google.protobuf.Timestamp at = 3; State state = 4; Shop shop = 5; repeated string tags = 6; }
enum State { NEW = 0; DONE = 1; }
`

// soldYAML is a pipeline whose sink takes its rows as they come.
func soldYAML(encode, more string) string {
	return fmt.Sprintf(`
pipeline: p
sources:
  s: {kafka: {brokers: ["b:9092"], topics: [s]}, decode: json, types: {id: string, amount: decimal, at: timestamp, state: string, shop.city: string}, on_bad_record: skip}
streams:
  rows:
    from: s
    steps: [{filter: true}]
sinks:
  out:
    from: rows
    kafka: {brokers: ["b:9092"], topic: sold, key: id}
    encode: %s
%s`, encode, more)
}

func writeSold(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"sold.avsc": soldSchema, "sold.proto": soldProto, "sale.avsc": saleSchema} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// encoded runs records through a pipeline's only source, for its only sink.
func encoded(t *testing.T, p *Pipeline, docs ...string) ([]sink.Record, []plan.Rejected) {
	t.Helper()
	pl, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var recs []batch.Record
	for i, d := range docs {
		recs = append(recs, batch.Record{Offset: int64(i), Value: []byte(d)})
	}
	task := pl.Sources[0].NewTask()
	tc := &plan.TaskContext{
		Batch: &batch.Batch{Txid: 1, Time: time.Unix(0, 0)}, Partition: batch.Partition{Source: "s"}, EventTime: txstate.NoTime, OnBad: pl.Sources[0].OnBad,
		Watermarks: []int64{txstate.NoTime}, Sinks: make([]*sink.Buffer, 1),
	}
	if err := task.Begin(tc); err != nil {
		t.Fatal(err)
	}
	if err := task.Process(&batch.Chunk{Records: recs}); err != nil {
		t.Fatal(err)
	}
	if err := task.End(); err != nil {
		t.Fatal(err)
	}
	return tc.Sinks[0].Records, tc.Rejected
}

// TestEncode writes rows by a schema and reads them by it; rows that it can't hold are bad records of the sink.
func TestEncode(t *testing.T) {
	dir := writeSold(t)
	docs := []string{
		`{"id":"a","amount":"1.50","at":"2026-01-01T00:00:00.5Z","state":"DONE","shop":{"city":"Rome"}}`,
		`{"id":"b","amount":"1.505","state":"GONE"}`,
		`{"id":null,"amount":"1","state":"NEW"}`,
		`{"id":"d","amount":"-7","state":"NEW"}`,
	}
	want := []string{
		`{"id":"a","amount":"1.5","at":"2026-01-01T00:00:00.5Z","state":"DONE","shop.city":"Rome"}`,
		`{"id":"d","amount":"-7","at":null,"state":"NEW","shop.city":null}`,
	}
	for encode, causes := range map[string][]string{
		"{avro: {schema: sold.avsc}}":                     {"field amount: 1.505 has more than the 2 digits behind the point that decimal(20, 2) holds", "field id: null where string is due"},
		"{protobuf: {schema: sold.proto, message: Sold}}": {`field state: enum shop.State has no value "GONE"`, `field id: null, which would be read as ""`},
	} {
		p, err := Parse("p.yaml", []byte(soldYAML(encode, "    fields: [id, amount, at, state, shop.city]\n")), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		recs, rejected := encoded(t, p, docs...)
		if len(recs) != len(want) || string(recs[0].Key) != "a" || string(recs[1].Key) != "d" {
			t.Fatalf("%s: %d records, want %d", encode, len(recs), len(want))
		}
		for i, r := range recs {
			if got, err := p.SinkValue("out", r.Value); err != nil || string(got) != want[i] {
				t.Errorf("%s: wrote %s, %v, want %s", encode, got, err, want[i])
			}
		}
		if len(rejected) != len(causes) {
			t.Fatalf("%s: turned away %v", encode, rejected)
		}
		for i, r := range rejected {
			if r.Step != "sink out" || r.Offset != int64(i+1) || !strings.Contains(r.Cause, causes[i]) {
				t.Errorf("%s: offset %d is turned away by %s: %s, want %s", encode, r.Offset, r.Step, r.Cause, causes[i])
			}
		}
	}
}

// TestEncodeMistakes: what a schema can't take is a mistake of the pipeline's file, each with its field and both types.
func TestEncodeMistakes(t *testing.T) {
	dir := writeSold(t)
	for _, c := range []struct {
		encode, more string
		want         []string
	}{
		{"avro", "", []string{"sink out: avro needs the schema to write by"}},
		{"{avro: {}}", "", []string{"schema"}},
		{"{avro: {schema: gone.avsc}}", "", []string{"the schema can't be read"}},
		{"{protobuf: {schema: sold.proto}}", "", []string{"message must say which"}},
		{"{avro: {schema: sale.avsc}}", "", []string{
			"sink out: field at: the rows don't have it, and record Sale has no default for it", "sink out: field state: record Sale has no such field", "fields: [a, b] names those to write",
		}},
		{"{avro: {schema: sold.avsc}}", "    fields: [id, n]\n", []string{"field n: record Sold has no such field", "field amount: the rows don't have it"}},
		{"{protobuf: {schema: sold.proto, message: Sold}}", "    fields: [at, shop.city, shop.street]\n", []string{"field shop.street: message shop.Shop has no such field"}},
	} {
		file := strings.Replace(soldYAML(c.encode, c.more), "shop.city: string", "shop.city: string, shop.street: string, n: int", 1)
		if strings.Contains(c.encode, "sale") {
			file = strings.Replace(file, "at: timestamp, ", "", 1)
		}
		_, err := Parse("p.yaml", []byte(file), Options{Dir: dir})
		if err == nil {
			t.Errorf("%s %s is taken", c.encode, c.more)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s %s: no %q in\n%v", c.encode, c.more, w, err)
			}
		}
	}
	wrong := strings.Replace(soldYAML("{avro: {schema: sold.avsc}}", ""), "at: timestamp", "at: int", 1)
	if _, err := Parse("p.yaml", []byte(wrong), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "sink out: field at: an int where null or timestamp-millis is due") {
		t.Errorf("an int for a timestamp: %v", err)
	}
	files := strings.Replace(soldYAML("{avro: {schema: sold.avsc}}", ""), `kafka: {brokers: ["b:9092"], topic: sold, key: id}`, "file: {dir: out}", 1)
	if _, err := Parse("p.yaml", []byte(files), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "records of avro may hold any bytes, as Kafka has them; the lines of a file don't") {
		t.Errorf("a file: %v", err)
	}
}

// TestEncodeRegistry: with a registry, records are the same to the pipeline's digests, and doctor asks for the schema's id.
func TestEncodeRegistry(t *testing.T) {
	dir := writeSold(t)
	reg := schematest.New(t)
	shared := fmt.Sprintf("connections: {registry: {url: %q}}\n", reg.URL)
	parse := func(encode string) (*Pipeline, error) {
		return Parse("p.yaml", []byte(shared+soldYAML(encode, "    fields: [id, amount, state]\n")), Options{Dir: dir})
	}
	values := func(encode string) string {
		t.Helper()
		p, err := parse(encode)
		if err != nil {
			t.Fatal(err)
		}
		recs, _ := encoded(t, p, `{"id":"a","amount":"1.5","state":"DONE"}`, `{"id":"b","amount":"2","state":"NEW"}`)
		return fmt.Sprintf("%x", recs)
	}
	for _, c := range []struct{ alone, with, subject, typ, text string }{
		{"{avro: {schema: sold.avsc}}", "{avro: {schema: sold.avsc, registry: shared}}", "sold-value", "AVRO", soldSchema},
		{"{protobuf: {schema: sold.proto, message: Sold}}", "{protobuf: {schema: sold.proto, message: Sold, registry: shared, subject: s}}", "s", "PROTOBUF", soldProto},
	} {
		if values(c.alone) != values(c.with) {
			t.Errorf("%s: a registry changes what the digests are over", c.with)
		}
		find := func() string {
			t.Helper()
			p, err := parse(c.with)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, f := range p.m.sinks[0].encode.subject.Check(t.Context(), doctor.Env{}) {
				all = append(all, f.Level.String()+" "+f.Subject+" "+f.Text)
			}
			return strings.Join(all, "\n")
		}
		if got := find(); !strings.HasPrefix(got, "error schema registry "+reg.URL+", subject "+c.subject) {
			t.Errorf("%s: doctor says %s", c.with, got)
		}
		reg.Add(c.subject, c.typ, c.text)
		if got := find(); !strings.Contains(got, "holds the schema under the id") {
			t.Errorf("%s: doctor says %s", c.with, got)
		}
	}
	if n := reg.Asked("POST /subjects/sold-value/versions"); n != 0 {
		t.Errorf("a schema was registered %d times", n)
	}
	for encode, want := range map[string]string{
		"{avro: {schema: sold.avsc, subject: x}}":                           "subject is said of a registry, and none is named",
		"{avro: {schema: sold.avsc, register: true}}":                       "register is said of a registry, and none is named",
		"{avro: {registry: shared}}":                                        "schema",
		"{avro: {schema: sold.avsc, registry: {url: h}}}":                   "is no address of a registry",
		"{protobuf: {schema: uses.proto, message: Uses, registry: shared}}": "a schema that imports sold.proto has no id in a registry by itself",
	} {
		if err := os.WriteFile(filepath.Join(dir, "uses.proto"), []byte(`syntax = "proto3"; import "sold.proto"; message Uses { string id = 1; string amount = 2; string state = 3; shop.Shop shop = 4; }`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := parse(encode); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", encode, err, want)
		}
	}
}

// TestEncodeIdentity: a changed schema is another pipeline, a changed text of the same schema isn't.
func TestEncodeIdentity(t *testing.T) {
	dir := writeSold(t)
	text := func() string {
		t.Helper()
		p, err := Parse("p.yaml", []byte(soldYAML("{avro: {schema: sold.avsc}}", "")), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		pl, err := p.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return pl.Sinks[0].Describe
	}
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "sold.avsc"), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	was := text()
	write(strings.ReplaceAll(soldSchema, ",", " , "))
	if got := text(); got != was {
		t.Errorf("with spaces: %s, was %s", got, was)
	}
	write(strings.Replace(soldSchema, `"scale":2`, `"scale":3`, 1))
	if got := text(); got == was {
		t.Errorf("another scale: %s", got)
	}
}
