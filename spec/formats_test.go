package spec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/connect/schema"
	"github.com/tridentd/tridentd/connect/schema/schematest"
)

const saleSchema = `{"type":"record","name":"Sale","fields":[{"name":"id","type":"string"},
 {"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":2}},
 {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
 {"name":"shop","type":{"type":"record","name":"Shop","fields":[{"name":"city","type":"string"}]}}]}`

const saleProto = `syntax = "proto3"; package shop;
message Shop { string city = 1; }
message Sale { string id = 1; int64 amount = 2; Shop shop = 3; }
`

func saleYAML(decode, more string) string {
	return fmt.Sprintf(`
pipeline: p
%s
sources:
  sales: {kafka: {brokers: [localhost:9092], topics: [sales]}, decode: %s, on_bad_record: skip}
streams:
  cities:
    from: sales
    steps:
      - group_by: [shop.city]
      - aggregate: {total: sum(amount), n: count()}
`, more, decode)
}

func writeFormats(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"sale.avsc": saleSchema, "sale.proto": saleProto} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func sale(t *testing.T, city string, cents int64) []byte {
	t.Helper()
	b, err := avro.MustParse(saleSchema).Encode(map[string]any{"id": "x", "amount": fmt.Sprintf("%d.%02d", cents/100, cents%100), "at": time.UnixMilli(1), "shop": map[string]any{"city": city}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func protoSale(city string, amount uint64) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), amount)
	shop := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), city)
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), shop)
}

func runFormats(t *testing.T, dir, file string, values ...[]byte) (*bench, error) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(file), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := input{partition: batch.Partition{Source: "sales", Topic: "sales"}}
	for i, v := range values {
		in.records = append(in.records, batch.Record{Offset: int64(i), Value: v})
	}
	return b, b.run(time.Unix(0, 0), 0, in)
}

func wantCities(t *testing.T, b *bench, want string, rejected ...string) {
	t.Helper()
	got, err := b.state("cities")
	if err != nil {
		t.Fatal(err)
	}
	if got = strings.TrimSpace(got); got != want {
		t.Errorf("cities:\n%s\nwant\n%s", got, want)
	}
	if len(b.rejected) != len(rejected) {
		t.Fatalf("%d records were turned away, want %d: %v", len(b.rejected), len(rejected), b.rejected)
	}
	for i, r := range b.rejected {
		if !strings.Contains(r.Cause, rejected[i]) {
			t.Errorf("offset %d was turned away since %s, want %s", r.Offset, r.Cause, rejected[i])
		}
	}
}

const romeAndOslo = `{"shop.city": "Oslo", "total": "2", "n": 1}
{"shop.city": "Rome", "total": "4.5", "n": 2}`

func TestSchemaFiles(t *testing.T) {
	dir := writeFormats(t)
	b, err := runFormats(t, dir, saleYAML("{avro: {schema: sale.avsc}}", ""), sale(t, "Rome", 150), sale(t, "Oslo", 200), []byte{1}, sale(t, "Rome", 300), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantCities(t, b, romeAndOslo, "field id: ", "the value is null")
	b, err = runFormats(t, dir, saleYAML("{protobuf: {schema: sale.proto, message: Sale}}", ""), protoSale("Rome", 1), protoSale("Rome", 2), []byte{0xff})
	if err != nil {
		t.Fatal(err)
	}
	wantCities(t, b, `{"shop.city": "Rome", "total": 3, "n": 2}`, "a field's number")
}

func TestSchemaFileMistakes(t *testing.T) {
	dir := writeFormats(t)
	for _, c := range []struct{ decode, more, steps, want string }{
		{"{avro: {schema: gone.avsc}}", "", "", "the schema can't be read"},
		{"{avro: {schema: sale.proto}}", "", "", "sale.proto is no schema of Avro"},
		{"{protobuf: {schema: sale.avsc}}", "", "", "sale.avsc is no schema of Protobuf"},
		{"{protobuf: {schema: sale.proto}}", "", "", "the file has the messages shop.Shop, shop.Sale; message must say which"},
		{"{protobuf: {schema: sale.proto, message: Sail}}", "", "", "the file has no message Sail"},
		{"avro", "", "", "avro needs a schema or a registry"},
		{"{avro: {registry: shared}}", "", "", "there is no registry under connections"},
		{"{avro: {registry: {url: localhost}}}", "", "", "is no address of a registry"},
		{"{avro: {registry: {url: \"http://me:secret@h\"}}}", "", "", "holds credentials"},
		{"{avro: {schema: sale.avsc}}", "", "- filter: shop.town == \"x\"", "shop.town"},
		{"{avro: {schema: sale.avsc}}", "", "- filter: id > 5", "string"},
	} {
		file := strings.Replace(saleYAML(c.decode, c.more), "    steps:\n", "    steps:\n      "+c.steps+"\n", 1)
		if c.steps == "" {
			file = saleYAML(c.decode, c.more)
		}
		_, err := Parse("p.yaml", []byte(file), Options{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.decode, c.steps, err, c.want)
		}
	}
}

// TestRegistryStandIn runs sources whose schemas are in a stand-in for a registry, which speaks its HTTP API.
func TestRegistryStandIn(t *testing.T) {
	dir := writeFormats(t)
	reg := schematest.New(t)
	reg.Protect("me", "secret")
	id := reg.Add("sales-value", "AVRO", saleSchema)
	shop := `{"type":"record","name":"Shop","fields":[{"name":"city","type":"string"}]}`
	reg.Add("shop", "AVRO", shop)
	split := strings.Replace(saleSchema, shop, `"Shop"`, 1)
	byRef := reg.Add("sales-value", "AVRO", split, schematest.Reference{Name: "Shop", Subject: "shop", Version: 1})
	pid := reg.Add("sales-value", "PROTOBUF", saleProto)
	settings := fmt.Sprintf("connections: {registry: {url: %q, user: me, password: secret}}", reg.URL)

	file := saleYAML("avro", settings)
	with := func(id int, b []byte) []byte { return append(schema.AppendID(nil, id), b...) }
	b, err := runFormats(t, dir, file, with(id, sale(t, "Rome", 150)), with(byRef, sale(t, "Oslo", 200)), with(4711, sale(t, "Rome", 1)), with(id, sale(t, "Rome", 300)), with(pid, nil), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	wantCities(t, b, romeAndOslo, "schema 4711: the registry doesn't know the schema", "is of PROTOBUF, not of Avro", "too few")
	if n := reg.Asked(fmt.Sprintf("GET /schemas/ids/%d", id)); n != 1 {
		t.Errorf("one schema was asked for %d times", n)
	}

	message := func(index []int, b []byte) []byte {
		return append(schema.AppendIndex(schema.AppendID(nil, pid), index), b...)
	}
	for _, decode := range []string{"protobuf", "{protobuf: {schema: sale.proto, message: Sale, registry: shared}}"} {
		b, err = runFormats(t, dir, saleYAML(decode, settings), message([]int{1}, protoSale("Rome", 1)), message([]int{1}, protoSale("Rome", 2)))
		if err != nil {
			t.Fatal(err)
		}
		wantCities(t, b, `{"shop.city": "Rome", "total": 3, "n": 2}`)
	}

	// A newer schema of the file's reads what was written before.
	newer := strings.Replace(saleSchema, `"city","type":"string"}`, `"town","aliases":["city"],"type":"string"},{"name":"zip","type":"string","default":"?"}`, 1)
	if err := os.WriteFile(filepath.Join(dir, "newer.avsc"), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	file = strings.ReplaceAll(saleYAML("{avro: {schema: newer.avsc, registry: shared}}", settings), "[shop.city]", "[shop.town, shop.zip]")
	if b, err = runFormats(t, dir, file, with(id, sale(t, "Rome", 150))); err != nil {
		t.Fatal(err)
	}
	wantCities(t, b, `{"shop.town": "Rome", "shop.zip": "?", "total": "1.5", "n": 1}`)

	for _, c := range []struct {
		name     string
		status   int
		settings string
		kind     batch.Kind
		code     batch.Code
	}{
		{"an error of the registry", 503, settings, batch.Transient, batch.CodeUnavailable},
		{"a wrong password", 0, strings.Replace(settings, "secret", "guess", 1), batch.Permanent, batch.CodeUnauthorized},
		{"no rights", 403, settings, batch.Permanent, batch.CodeUnauthorized},
		{"nothing there", 0, "connections: {registry: {url: http://127.0.0.1:1}}", batch.Transient, batch.CodeUnavailable},
	} {
		reg.Fail(c.status)
		_, err := runFormats(t, dir, saleYAML("avro", c.settings), with(id, sale(t, "Rome", 150)))
		e, ok := errors.AsType[*batch.Error](err)
		if !ok || e.Kind != c.kind || e.Code != c.code || e.Remedy == "" || e.Partition.Source != "sales" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
