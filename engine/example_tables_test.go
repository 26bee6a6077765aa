package engine_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
)

// Orders are enriched with their customers, a table that a stream keeps and that is loaded before the orders begin; a query answers over what
// has committed.
func Example_tables() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{
		"customers.csv": "id,country\nann,de\nbob,fr\nann,it\n",
		"orders.csv":    "id,customer,amount\n1,ann,10\n2,bob,7\n3,cem,5\n4,ann,1\n",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			panic(err)
		}
	}
	type Customer struct{ ID, Country string }
	type Order struct {
		ID, Customer string
		Amount       int64
	}
	type Sale struct {
		Country string
		Amount  int64
	}

	p := engine.New("orders")
	customers := engine.From(p, "customers", file.Paths(dir+"/customers.csv"), codec.CSV[Customer](), engine.LoadFirst)
	orders := engine.From(p, "orders", file.Paths(dir+"/orders.csv"), codec.CSV[Order]())
	byCustomer := engine.Latest(customers, "by_customer", func(c Customer) string { return c.ID }, "id")
	sales := engine.Lookup(orders, byCustomer, func(o Order) string { return o.Customer }, func(o Order, c *Customer) Sale {
		if c == nil {
			return Sale{"unknown", o.Amount}
		}
		return Sale{c.Country, o.Amount}
	})
	revenue := engine.Aggregate(engine.GroupBy(sales, func(s Sale) string { return s.Country }, "country"), "revenue",
		agg.SumOf("amount", func(s Sale) int64 { return s.Amount }))
	all := engine.AggregateAll(sales, "total", agg.SumOf("amount", func(s Sale) int64 { return s.Amount }))

	type Of struct{ Country string }
	type Share struct{ Amount, Total int64 }
	share := engine.Query(p, "share", func(q engine.Stream[Of]) engine.Stream[Share] {
		amounts := engine.StateQuery(q, revenue, func(o Of) string { return o.Country }, func(_ Of, n *int64) Share {
			if n == nil {
				return Share{}
			}
			return Share{Amount: *n}
		})
		return engine.StateQuery(amounts, all, func(Share) bool { return true }, func(s Share, n *int64) Share {
			s.Total = *n
			return s
		})
	})

	ctx := context.Background()
	h, err := engine.Start(ctx, p, engine.Options{DataDir: dir + "/data"})
	if err != nil {
		panic(err)
	}
	answer, err := share.Ask(ctx, h, Of{"it"}, engine.AtLeast(2)) // txid 1 loads the customers
	if err != nil {
		panic(err)
	}
	fmt.Println("txid", answer.Txid, answer.Rows)
	h.Drain()
	fmt.Println(h.Wait())
	// Output:
	// txid 2 [{11 23}]
	// <nil>
}
