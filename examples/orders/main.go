// Command orders is the pipeline of orders.yaml, beside this file, in Go. It has all of tridentd's commands; run it in this
// folder:
//
//	go run . run --until caught-up
//	go run . query unpaid
package main

import (
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/window"
)

// Order is one line of data/orders.jsonl.
type Order struct {
	ID, Customer string
	Amount       decimal.Decimal
	PlacedAt     time.Time
}

// Customer is one line of data/customers.jsonl: what there is to know of a customer from then on.
type Customer struct {
	ID, Name, Country string
	Closed            codec.Null[bool] // true: the account is no more
}

// Details is a row of the table by_customer.
type Details struct{ Country, Name string }

// Payment is one line of data/payments.jsonl.
type Payment struct {
	Order  string
	PaidAt time.Time
}

// Sale is an order with its payment.
type Sale struct {
	Amount  decimal.Decimal
	Seconds int64 // from the order to its payment
}

// Placed is an order with its customer's country.
type Placed struct {
	Order
	Country string
	Paid    bool
}

// Unpaid is a row of the state unpaid.
type Unpaid struct {
	Orders agg.Counter
	Amount agg.Sum[decimal.Decimal]
}

// Paid is a row of the state paid.
type Paid struct {
	Orders  agg.Counter
	Amount  agg.Sum[decimal.Decimal]
	Slowest agg.Max[int64]
}

// Country is a row of the state countries.
type Country struct {
	Orders agg.Counter
	Paid   agg.Counter
	Amount agg.Sum[decimal.Decimal]
}

const day = 24 * time.Hour

func orderID(o Order) string { return o.ID }

func orderOf(p Payment) string { return p.Order }

// Orders finds which orders weren't paid within a day, by customer, sums up those that were, by day, and both by the customers' countries.
func Orders() *engine.Pipeline {
	p := engine.New("orders")
	orders := engine.From(p, "orders", file.Paths("data/orders.jsonl"), codec.JSON[Order]()).
		EventTime(func(o Order) time.Time { return o.PlacedAt }, 10*time.Minute)
	payments := engine.From(p, "payments", file.Paths("data/payments.jsonl"), codec.JSON[Payment]()).
		EventTime(func(x Payment) time.Time { return x.PaidAt }, 10*time.Minute)

	unpaid := engine.AntiJoin(orders, payments, day, orderID, orderOf).Name("not_paid")
	engine.Aggregate(engine.GroupBy(unpaid, func(o Order) string { return o.Customer }, "customer"), "unpaid",
		agg.Fields(func(u *Unpaid, o Order) {
			u.Orders.Inc()
			u.Amount.Add(o.Amount)
		}))

	sales := engine.Join(orders, payments, day, orderID, orderOf, func(o Order, x Payment) Sale {
		return Sale{Amount: o.Amount, Seconds: int64(x.PaidAt.Sub(o.PlacedAt) / time.Second)}
	}).Name("sales")
	engine.Aggregate(engine.GroupByWindow(sales, window.Tumbling(day), func(Sale) bool { return true }, "all"), "paid",
		agg.Fields(func(d *Paid, s Sale) {
			d.Orders.Inc()
			d.Amount.Add(s.Amount)
			d.Slowest.Add(s.Seconds)
		}))

	customers := engine.From(p, "customers", file.Paths("data/customers.jsonl"), codec.JSON[Customer](), engine.LoadFirst)
	details := engine.LatestEntries(engine.Map(customers, func(c Customer) codec.Entry[string, Details] {
		e := codec.Entry[string, Details]{Key: c.ID}
		if !c.Closed.Or(false) {
			e.Value = codec.Of(Details{Country: c.Country, Name: c.Name})
		}
		return e
	}), "by_customer", "id")
	placed := engine.Lookup(orders, details, func(o Order) string { return o.Customer }, func(o Order, d *Details) Placed {
		if d == nil {
			return Placed{Order: o, Country: "unknown"}
		}
		return Placed{Order: o, Country: d.Country}
	})
	settled := engine.LeftJoin(placed, payments, day, func(o Placed) string { return o.ID }, orderOf, func(o Placed, x *Payment) Placed {
		o.Paid = x != nil
		return o
	}).Name("settled")
	engine.Aggregate(engine.GroupBy(settled, func(o Placed) string { return o.Country }, "country"), "countries",
		agg.Fields(func(c *Country, o Placed) {
			c.Orders.Inc()
			c.Paid.If(o.Paid)
			c.Amount.Add(o.Amount)
		}))
	return p
}

func main() { daemon.Main(Orders()) }
