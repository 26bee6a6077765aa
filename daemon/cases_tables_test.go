package daemon_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

const customersAndOrders = `pipeline: counting
connections: {kafka: {brokers: BROKERS}}
batch: {max_records: 2}
sources:
  customers:
    kafka: {topics: [customers]}
    decode: json
    types: {country: string}
    load: first
  orders:
    kafka: {topics: [t]}
    decode: json
    types: {customer: string, amount: int}
states:
  by_customer: {latest: {from: customers, key: string(_key)}}
streams:
  revenue:
    from: orders
    steps:
      - lookup: {state: by_customer, key: customer, as: c}
      - set:
          country: c.country ?? "unknown"
      - group_by: [country]
      - aggregate: {orders: count(), amount: sum(amount)}
`

// compactedTable takes a compacted topic as the table that it stands for: records without a value remove rows. The table is there
// before the first order is looked up, however small batches are and wherever a run ends, and a replay comes to the same.
func compactedTable(t *testing.T, b *brokers) {
	b.topic("customers", 2, "cleanup.policy", "compact")
	b.topic("t", 1)
	customer := func(id, country string) *kgo.Record {
		r := &kgo.Record{Topic: "customers", Key: []byte(id), Partition: int32(id[0] % 2)}
		if country != "" {
			r.Value = fmt.Appendf(nil, `{"country":%q}`, country)
		}
		return r
	}
	order := func(id string, amount int) string { return fmt.Sprintf(`{"customer":%q,"amount":%d}`, id, amount) }
	b.send(customer("a", "no"), customer("b", "se"), customer("c", "se"), customer("a", "dk"), customer("b", ""), customer("d", "fi"), customer("x", ""))
	b.produce("t", order("a", 1), order("b", 10), order("c", 100), order("e", 1000))
	j := newJob(t, b, customersAndOrders)
	j.run(0)
	j.holds("by_customer", "a,dk", "c,se", "d,fi")
	j.holds("revenue", "dk,1,1", "se,1,100", "unknown,2,1010")

	// Once it has been loaded it takes its turn with the others, in this run and the next one.
	b.send(customer("c", ""), customer("b", "no"))
	j.run(0)
	j.holds("by_customer", "a,dk", "b,no", "d,fi")
	b.produce("t", order("b", 20), order("c", 200), order("d", 5))
	j.run(0)
	j.holds("revenue", "dk,1,1", "fi,1,5", "no,1,20", "se,1,100", "unknown,3,1210")
	if code, out, errs := j.command("replay", "--verify"); code != 0 {
		t.Errorf("replay: exit %d\n%s%s", code, out, errs)
	}
}

func TestCompactedTable(t *testing.T) { compactedTable(t, fakeBrokers(t)) }
