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

// statements are those that write records. They take an array of JSON objects, one for each record, and how many of the records from
// the first on are to be written: what the others hide stays hidden.
type statements struct {
	write  string
	remove string // goes before write where some records delete; empty: there is no key, and none may
}

// inspect holds the settings against the table. It returns the table's columns that are written, in the settings' order.
func inspect(ctx context.Context, cfg *Config, d sqldb.Dialect, q sqldb.Queryer) ([]sqldb.Column, error) {
	table := sqldb.Quote(cfg.Table)
	columns, err := d.Columns(ctx, q, table)
	if err != nil {
		return nil, d.Failure("reading the table's columns", err)
	}
	if len(columns) == 0 {
		return nil, configError("create the table, or correct its name", "there is no table %s", cfg.Table)
	}
	written := make([]sqldb.Column, len(cfg.Columns))
	for i, name := range cfg.Columns {
		at := slices.IndexFunc(columns, func(c sqldb.Column) bool { return c.Name == name })
		switch {
		case at < 0:
			var names []string
			for _, c := range columns {
				names = append(names, c.Name)
			}
			return nil, configError("add the column, or leave it out of the sink's columns", "table %s has no column %s; it has %s", cfg.Table, name, strings.Join(names, ", "))
		case columns[at].Computed:
			return nil, configError("leave it out of the sink's columns", "the values of column %s of table %s are made by the database", name, cfg.Table)
		}
		written[i] = columns[at]
	}
	for _, c := range columns {
		if c.Required && !slices.Contains(cfg.Columns, c.Name) {
			return nil, configError("write the column, give it a default, or let it be null", "column %s of table %s isn't written, and has no default", c.Name, cfg.Table)
		}
	}
	if len(cfg.Key) > 0 {
		sets, err := d.Unique(ctx, q, table)
		if err != nil {
			return nil, d.Failure("reading the table's indexes", err)
		}
		want := slices.Sorted(slices.Values(cfg.Key))
		if !slices.ContainsFunc(sets, func(s []string) bool { return slices.Equal(slices.Sorted(slices.Values(s)), want) }) {
			return nil, configError(fmt.Sprintf("make these columns the primary key, or CREATE UNIQUE INDEX ON %s (%s)", cfg.Table, strings.Join(cfg.Key, ", ")),
				"table %s has no unique index of the key %s", cfg.Table, strings.Join(cfg.Key, ", "))
		}
	}
	for _, c := range written {
		// Nulls differ from each other: rows with one would be added again and again.
		if slices.Contains(cfg.Key, c.Name) && !c.NotNull {
			return nil, configError("declare it NOT NULL, or take other columns for the key",
				"column %s of table %s is in the key, and may be null", c.Name, cfg.Table)
		}
	}
	return written, nil
}

// list joins what f makes of names.
func list(names []string, f func(name string) string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = f(n)
	}
	return strings.Join(all, ", ")
}

// others are the columns that aren't in the key.
func (c *Config) others() []string {
	return slices.DeleteFunc(slices.Clone(c.Columns), func(name string) bool { return slices.Contains(c.Key, name) })
}

// conflict is the end of an INSERT that replaces the row with the same key.
func conflict(cfg *Config) string {
	others := cfg.others()
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
