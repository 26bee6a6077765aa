// Package sqldb connects to SQL databases so that a batch can be written in one transaction of theirs, and says of each failure whether
// another attempt may succeed.
//
// Nothing is kept in a session: no prepared statements, no settings outside a transaction. Connections to PostgreSQL may therefore go
// through a pooler that gives each transaction another server connection. No error holds a password.
package sqldb

import (
	"context"
	"database/sql"
	"strings"

	"github.com/tridentd/tridentd/batch"
)

// Dialect is what differs between databases. Its methods are safe for concurrent use.
type Dialect interface {
	// Param is the placeholder of a statement's nth parameter, from 1.
	Param(n int) string
	// TableExists tells whether a table of a quoted name is there.
	TableExists(ctx context.Context, q Queryer, table string) (bool, error)
	// Columns lists a table's columns in their order; none if there is no such table.
	Columns(ctx context.Context, q Queryer, table string) ([]Column, error)
	// Unique lists the sets of columns of which no two rows have the same values: primary keys and unique indexes without conditions.
	Unique(ctx context.Context, q Queryer, table string) ([][]string, error)
	// Failure says of an error what it means.
	Failure(op string, err error) *batch.Error
}

// Queryer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Column of a table.
type Column struct {
	Name     string
	Type     string // as the database writes it
	NotNull  bool   // no row has a null there
	Required bool   // it takes no null and has no default
	Computed bool   // the database makes its values
}

// DB is a database. Close it.
type DB struct {
	*sql.DB
	Dialect
	Place string // what people call it by, without secrets: host:port/database, or a file
}

// Quote writes a name, or a schema's and a table's with a dot between them, as both dialects take it.
func Quote(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = `"` + strings.ReplaceAll(p, `"`, `""`) + `"`
	}
	return strings.Join(parts, ".")
}

// QuoteColumn writes a column's name, in which a dot is nothing special.
func QuoteColumn(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Literal writes a string as a constant.
func Literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// columns reads a result of one row for each column.
func columns(rows *sql.Rows, err error) ([]Column, error) {
	return collect(rows, err, func(c *Column) []any { return []any{&c.Name, &c.Type, &c.NotNull, &c.Required, &c.Computed} })
}

// texts reads a result of one column of text.
func texts(rows *sql.Rows, err error) ([]string, error) {
	return collect(rows, err, func(s *string) []any { return []any{s} })
}

// collect reads a result whose rows are scanned into what into names.
func collect[T any](rows *sql.Rows, err error, into func(*T) []any) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	var all []T
	for rows.Next() {
		var v T
		if err := rows.Scan(into(&v)...); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// sets lists the columns of each of some indexes.
func sets(indexes []string, columns func(index string) ([]string, error)) ([][]string, error) {
	var all [][]string
	for _, index := range indexes {
		names, err := columns(index)
		if err != nil {
			return nil, err
		}
		all = append(all, names)
	}
	return all, nil
}
