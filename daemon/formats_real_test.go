//go:build realkafka

package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/connect/schema/schematest"
)

const (
	soldAvro = `{"type":"record","name":"Sold","fields":[{"name":"id","type":"string"},{"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":2}},
 {"name":"at","type":["null",{"type":"long","logicalType":"timestamp-millis"}]},{"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","DONE"]},"default":"NEW"},
 {"name":"shop","type":["null",{"type":"record","name":"Shop","fields":[{"name":"city","type":"string"}]}]}MORE]}`
	soldProto = `syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Shop { string city = 1; }
message Sold { string id = 1; string amount = 2; google.protobuf.Timestamp at = 3; State state = 4; optional Shop shop = 5; MORE }
enum State { NEW = 0; DONE = 1; }
`
)

// writing sends the documents of a topic to two others, as Avro and as Protobuf.
func writing(name, topic, registry, fields string) string {
	return fmt.Sprintf(`pipeline: %s
connections:
  kafka: {brokers: BROKERS}
  registry: {url: %q}
sources:
  docs: {kafka: {topics: [%s]}, decode: json, types: {id: string, amount: decimal, at: timestamp, state: string, shop.city: string, note: string}}
streams:
  rows: {from: docs, steps: [{filter: true}]}
sinks:
  avro:
    from: rows
    kafka: {topic: avro, key: id}
    encode: {avro: {schema: sold.avsc, registry: shared, register: true}}
    fields: [%s]
  proto:
    from: rows
    kafka: {topic: proto, key: id}
    encode: {protobuf: {schema: sold.proto, message: Sold, registry: shared, register: true}}
    fields: [%s]
`, name, registry, topic, fields, fields)
}

// reading counts what both topics hold, by all fields.
func reading(registry string) string {
	return fmt.Sprintf(`pipeline: reading
connections:
  kafka: {brokers: BROKERS}
  registry: {url: %q}
sources:
  avro: {kafka: {topics: [avro]}, decode: avro, types: {id: string, amount: decimal, at: timestamp, state: string, shop.city: string, note: string}}
  proto: {kafka: {topics: [proto]}, decode: protobuf, types: {id: string, amount: decimal, at: timestamp, state: string, shop.city: string, note: string}}
  newer: {kafka: {topics: [avro], group: newer}, decode: {avro: {schema: newer.avsc, registry: shared}}}
streams:
  as_avro:
    from: avro
    steps: [{group_by: [id, amount, at, state, shop.city, note]}, {aggregate: {n: count()}}]
  as_proto:
    from: proto
    steps: [{group_by: [id, amount, at, state, shop.city, note]}, {aggregate: {n: count()}}]
  as_newer:
    from: newer
    steps: [{group_by: [id, amount, at, added]}, {aggregate: {n: count()}}]
`, registry)
}

// TestFormatsRoundTrip writes rows as Avro and as Protobuf, by two schemas of a subject, and reads them again: every value is what it was. The
// registry is a stand-in that speaks its HTTP API.
func TestFormatsRoundTrip(t *testing.T) {
	_, b := ownKafka(t)
	for _, name := range []string{"in", "in2", "avro", "proto"} {
		b.topic(name, 1)
	}
	reg := schematest.New(t)
	b.produce("in",
		`{"id":"a","amount":"1.50","at":"2026-01-01T00:00:00.5Z","state":"DONE","shop":{"city":"Rome"}}`,
		`{"id":"b","amount":"-123456789012345678.05","at":null,"state":"NEW","shop":{"city":null}}`)
	b.produce("in2", `{"id":"c","amount":"0","at":"1969-12-31T23:59:59.999Z","state":"NEW","shop":{"city":"Zürich"},"note":"new"}`)

	first := newJob(t, b, writing("first", "in", reg.URL, "id, amount, at, state, shop.city"))
	first.put("sold.avsc", strings.Replace(soldAvro, "MORE", "", 1))
	first.put("sold.proto", strings.Replace(soldProto, "MORE", "", 1))
	first.run(0)
	// The second schema has a field more, and rows leave out one that has a default.
	second := newJob(t, b, writing("second", "in2", reg.URL, "id, amount, at, shop.city, note"))
	second.put("sold.avsc", strings.Replace(soldAvro, "MORE", `,{"name":"note","type":["null","string"],"default":null}`, 1))
	second.put("sold.proto", strings.Replace(soldProto, "MORE", "optional string note = 6;", 1))
	second.run(0)
	for _, subject := range []string{"avro-value", "proto-value"} {
		if n := reg.Asked("POST /subjects/" + subject + "/versions"); n != 2 {
			t.Errorf("%s: schemas were registered %d times, want 2", subject, n)
		}
	}

	back := newJob(t, b, reading(reg.URL))
	back.put("newer.avsc", `{"type":"record","name":"Sold","fields":[{"name":"id","type":"string"},{"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":2}},
 {"name":"at","type":["null",{"type":"long","logicalType":"timestamp-millis"}]},{"name":"added","type":"int","default":7}]}`)
	back.run(0)
	want := []string{
		"a,1.5,2026-01-01T00:00:00.5Z,DONE,Rome,,1",
		"b,-123456789012345678.05,,NEW,,,1",
		"c,0,1969-12-31T23:59:59.999Z,NEW,Zürich,new,1",
	}
	back.holds("as_avro", want...)
	back.holds("as_proto", want...)
	back.holds("as_newer", "a,1.5,2026-01-01T00:00:00.5Z,7,1", "b,-123456789012345678.05,,7,1", "c,0,1969-12-31T23:59:59.999Z,7,1")

	// A replay asks no registry, and one that gives other ids makes no other batch.
	verify := func(what string) {
		t.Helper()
		if code, _, errs := first.command("replay", "--verify"); code != 0 {
			t.Errorf("replay with %s: exit %d\n%s", what, code, errs)
		}
	}
	reg.Fail(503)
	verify("a registry that is away")
	other := schematest.New(t)
	other.Add("something", "AVRO", `"string"`)
	first.rewrite(b, writing("first", "in", other.URL, "id, amount, at, state, shop.city"))
	verify("another registry")
	b.produce("in", `{"id":"d","amount":"4","at":null,"state":"DONE","shop":{"city":"Bern"}}`)
	first.run(0)
	if n := other.Asked("POST /subjects/avro-value/versions"); n != 1 {
		t.Errorf("the other registry was given the schema %d times, want once", n)
	}
	if code, out, errs := first.command("doctor"); code != 0 || strings.Count(out+errs, "holds the schema under the id") != 2 {
		t.Errorf("doctor: exit %d\n%s%s", code, out, errs)
	}
}
