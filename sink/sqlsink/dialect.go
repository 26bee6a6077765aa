package sqlsink

import (
	"context"
	"time"

	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/sqldb"
)

// dialect is what the sink does otherwise on one database than on another. A new database brings one, beside its sqldb.Dialect.
type dialect interface {
	// present fails if the database isn't there and asking it would make it.
	present(cfg *Config) error
	// statements are made for a table with these columns.
	statements(cfg *Config, columns []sqldb.Column) statements
	// unfit says why a column can't hold a value as it is, where the database would change it and say nothing; empty: it can.
	unfit(column sqldb.Column, v jsonscan.Field) string
	// holds tells whether what is prepared stays in an open transaction, which the next claim can end.
	holds() bool
	// lock has a transaction hold the sink's lock until it ends, and wait for it no longer than limit.
	lock(ctx context.Context, tx sqldb.Queryer, name string, limit time.Duration) error
	// endOthers ends the transactions of other processes that hold the sink's lock: of those that are gone, hang, or were deposed.
	endOthers(ctx context.Context, q sqldb.Queryer, name string) error
	// version says what answers.
	version(ctx context.Context, q sqldb.Queryer) (string, error)
	// refusal is an error that says what this user may not do, of all that the sink does. The table is there.
	refusal(ctx context.Context, cfg *Config, q sqldb.Queryer) error
}
