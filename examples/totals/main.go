// Command totals is the pipeline of totals.yaml, beside this file, in Go: each customer's orders and what they come to, in a table of
// PostgreSQL. It has all of tridentd's commands; run it in this folder, on a database that schema.sql has made the table in:
//
//	DATABASE_URL=postgres://shop:secret@127.0.0.1:5432/shop go run . run --until caught-up
package main

import (
	"os"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/sink/sqlsink"
)

// Order is one line of the orders.
type Order struct {
	Customer string
	Amount   decimal.Decimal
}

// Sums is a row of the state totals.
type Sums struct {
	Orders agg.Counter
	Total  agg.Sum[decimal.Decimal]
}

// Row is a row of the table.
type Row struct {
	Customer string
	Orders   int64
	Total    decimal.Decimal
}

// Totals keeps each customer's totals in the table totals of the database at a URL.
func Totals(url string) *engine.Pipeline {
	p := engine.New("totals", engine.WithBatching(engine.Batching{MaxRecords: 50})) // so that the few orders of the example make several batches
	orders := engine.From(p, "orders", file.Paths("../orders/data/orders.jsonl"), codec.JSON[Order]())
	totals := engine.Aggregate(engine.GroupBy(orders, func(o Order) string { return o.Customer }, "customer"), "totals",
		agg.Fields(func(s *Sums, o Order) {
			s.Orders.Inc()
			s.Total.Add(o.Amount)
		}))
	rows := engine.Map(engine.Updates[Sums](totals), func(r engine.Result[string, Sums]) Row {
		total, _ := r.Value.Total.Value() // there is one: each row has had an order
		return Row{Customer: r.Key, Orders: r.Value.Orders.Value(), Total: total}
	})
	engine.To(rows, "totals", sqlsink.Postgres[Row](url, "totals", "customer", "orders", "total").Key("customer"))
	return p
}

func main() { daemon.Main(Totals(os.Getenv("DATABASE_URL"))) }
