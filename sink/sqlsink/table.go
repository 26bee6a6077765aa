package sqlsink

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tridentd/tridentd/internal/sqldb"
)

// deleted is the name under which a record says that the row with its key goes. No column can have it.
const deleted = "tridentd deleted"

// statements are those that write records, which are given as one array of JSON objects.
type statements struct {
	write  string
	remove string // goes before write where some records delete; empty: write does it
}

// inspect holds the settings against the table, and makes the statements.
func inspect(ctx context.Context, cfg *Config, d sqldb.Dialect, q sqldb.Queryer) (statements, error) {
	table := sqldb.Quote(cfg.Table)
	columns, err := d.Columns(ctx, q, table)
	if err != nil {
		return statements{}, d.Failure("reading the table's columns", err)
	}
	if len(columns) == 0 {
		return statements{}, configError("create the table, or correct its name", "there is no table %s", cfg.Table)
	}
	types := make([]string, len(cfg.Columns))
	for i, name := range cfg.Columns {
		at := slices.IndexFunc(columns, func(c sqldb.Column) bool { return c.Name == name })
		switch {
		case at < 0:
			var names []string
			for _, c := range columns {
				names = append(names, c.Name)
			}
			return statements{}, configError("add the column, or leave it out of the sink's columns", "table %s has no column %s; it has %s", cfg.Table, name, strings.Join(names, ", "))
		case columns[at].Computed:
			return statements{}, configError("leave it out of the sink's columns", "the values of column %s of table %s are made by the database", name, cfg.Table)
		}
		types[i] = columns[at].Type
	}
	for _, c := range columns {
		if c.Required && !slices.Contains(cfg.Columns, c.Name) {
			return statements{}, configError("write the column, give it a default, or let it be null", "column %s of table %s isn't written, and has no default", c.Name, cfg.Table)
		}
	}
	if len(cfg.Key) > 0 {
		sets, err := d.Unique(ctx, q, table)
		if err != nil {
			return statements{}, d.Failure("reading the table's indexes", err)
		}
		want := slices.Sorted(slices.Values(cfg.Key))
		if !slices.ContainsFunc(sets, func(s []string) bool { return slices.Equal(slices.Sorted(slices.Values(s)), want) }) {
			return statements{}, configError(fmt.Sprintf("make these columns the primary key, or CREATE UNIQUE INDEX ON %s (%s)", cfg.Table, strings.Join(cfg.Key, ", ")),
				"table %s has no unique index of the key %s", cfg.Table, strings.Join(cfg.Key, ", "))
		}
	}
	if d.Name() == "sqlite" {
		return sqliteStatements(cfg), nil
	}
	return postgresStatements(cfg, types), nil
}

// list joins what f makes of names.
func list(names []string, f func(name string) string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = f(n)
	}
	return strings.Join(all, ", ")
}

// conflict is the end of an INSERT that replaces the row with the same key.
func conflict(cfg *Config) string {
	var others []string
	for _, c := range cfg.Columns {
		if !slices.Contains(cfg.Key, c) {
			others = append(others, c)
		}
	}
	end := " ON CONFLICT (" + list(cfg.Key, sqldb.QuoteColumn) + ") DO "
	if len(others) == 0 {
		return end + "NOTHING"
	}
	return end + "UPDATE SET " + list(others, func(n string) string { return sqldb.QuoteColumn(n) + " = excluded." + sqldb.QuoteColumn(n) })
}

// same compares the keys of the tables t and r.
func same(cfg *Config) string {
	conds := make([]string, len(cfg.Key))
	for i, k := range cfg.Key {
		conds[i] = "t." + sqldb.QuoteColumn(k) + " = r." + sqldb.QuoteColumn(k)
	}
	return strings.Join(conds, " AND ")
}

// Of several records with a key the last counts, as the key's type compares: no statement may touch a row twice.

func postgresStatements(cfg *Config, types []string) statements {
	table, columns := sqldb.Quote(cfg.Table), list(cfg.Columns, sqldb.QuoteColumn)
	typed := make([]string, len(types))
	for i, name := range cfg.Columns {
		typed[i] = sqldb.QuoteColumn(name) + " " + types[i]
	}
	insert := "INSERT INTO " + table + " (" + columns + ") SELECT " + columns + " FROM "
	if len(cfg.Key) == 0 {
		return statements{write: insert + "ROWS FROM (json_to_recordset($1::json) AS (" + strings.Join(typed, ", ") + ")) WITH ORDINALITY AS r (" + columns + `, "tridentd order") ORDER BY "tridentd order"`}
	}
	key := list(cfg.Key, sqldb.QuoteColumn)
	named := columns + ", " + sqldb.QuoteColumn(deleted) + `, "tridentd order"`
	typed = append(typed, sqldb.QuoteColumn(deleted)+" boolean")
	return statements{write: "WITH r AS MATERIALIZED (SELECT DISTINCT ON (" + key + ") " + named + " FROM ROWS FROM (json_to_recordset($1::json) AS (" + strings.Join(typed, ", ") +
		")) WITH ORDINALITY AS r (" + named + ") ORDER BY " + key + `, "tridentd order" DESC), ` +
		"d AS (DELETE FROM " + table + " t USING r WHERE r." + sqldb.QuoteColumn(deleted) + " AND " + same(cfg) + ") " +
		insert + "r WHERE r." + sqldb.QuoteColumn(deleted) + ` IS NOT TRUE ORDER BY "tridentd order"` + conflict(cfg)}
}

func sqliteStatements(cfg *Config) statements {
	table, columns := sqldb.Quote(cfg.Table), list(cfg.Columns, sqldb.QuoteColumn)
	field := func(name string) string { return "value ->> " + sqldb.Literal(`$."`+name+`"`) }
	insert := "INSERT INTO " + table + " (" + columns + ") SELECT "
	if len(cfg.Key) == 0 {
		return statements{write: insert + list(cfg.Columns, field) + " FROM json_each(?1) ORDER BY key"}
	}
	last := "(SELECT " + list(cfg.Columns, func(n string) string { return field(n) + " AS " + sqldb.QuoteColumn(n) }) + ", " + field(deleted) + " AS gone, key AS ord, " +
		"row_number() OVER (PARTITION BY " + list(cfg.Key, field) + " ORDER BY key DESC) AS nth FROM json_each(?1))"
	return statements{
		remove: "DELETE FROM " + table + " AS t WHERE EXISTS (SELECT 1 FROM " + last + " AS r WHERE nth = 1 AND gone AND " + same(cfg) + ")",
		write:  insert + columns + " FROM " + last + " WHERE nth = 1 AND gone IS NULL ORDER BY ord" + conflict(cfg),
	}
}
