package sqlsink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/sqldb"
)

// postgres writes in a transaction that is open from prepare to commit.
type postgres struct{}

func (postgres) present(*Config) error { return nil }

func (postgres) holds() bool { return true }

// unfit: PostgreSQL refuses what it can't hold.
func (postgres) unfit(sqldb.Column, jsonscan.Field) string { return "" }

// position is the name of a record's number in the array, from 1. No column can have it.
const position = `"tridentd order"`

// statements: of several records with a key the last counts, as the key's type compares: no statement may touch a row twice.
func (postgres) statements(cfg *Config, columns []sqldb.Column) statements {
	table, names := sqldb.Quote(cfg.Table), list(cfg.Columns, sqldb.QuoteColumn)
	var typed, values []string
	for _, c := range columns {
		name, kind := sqldb.QuoteColumn(c.Name), c.Type
		value := name
		if kind == "bytea" { // bytes are base64 in JSON
			value, kind = "decode("+name+", 'base64') AS "+name, "text"
		}
		typed, values = append(typed, name+" "+kind), append(values, value)
	}
	from := func(typed []string, named string) string {
		return " FROM ROWS FROM (json_to_recordset($1::json) AS (" + strings.Join(typed, ", ") + ")) WITH ORDINALITY AS r (" + named + ")"
	}
	insert := "INSERT INTO " + table + " (" + names + ") SELECT "
	if len(cfg.Key) == 0 {
		return statements{write: insert + strings.Join(values, ", ") + from(typed, names+", "+position) + " WHERE " + position + " <= $2 ORDER BY " + position}
	}
	gone := sqldb.QuoteColumn(deleted)
	rows := "(SELECT " + strings.Join(values, ", ") + ", " + gone + ", " + position + from(append(typed, gone+" boolean"), names+", "+gone+", "+position) + ") AS r"
	key := list(cfg.Key, sqldb.QuoteColumn)
	last := "(SELECT DISTINCT ON (" + key + ") * FROM " + rows + " ORDER BY " + key + ", " + position + " DESC) AS r"
	return statements{
		remove: "DELETE FROM " + table + " t USING " + last + " WHERE r." + gone + " AND r." + position + " <= $2 AND " + same(cfg),
		write:  insert + names + " FROM " + last + " WHERE r." + gone + " IS NOT TRUE AND r." + position + " <= $2 ORDER BY " + position + conflict(cfg),
	}
}

// lockKeys are the two keys of 32 bits of the lock of a name.
func lockKeys(name string) string {
	return "hashtext(" + sqldb.Literal("tridentd") + "), hashtext(" + sqldb.Literal(name) + ")"
}

func (postgres) lock(ctx context.Context, tx sqldb.Queryer, name string, limit time.Duration) error {
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", max(1, limit.Milliseconds()))); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock("+lockKeys(name)+")")
	return err
}

func (postgres) endOthers(ctx context.Context, q sqldb.Queryer, name string) error {
	_, err := q.ExecContext(ctx, "SELECT pg_terminate_backend(l.pid) FROM pg_locks l, (SELECT "+lockKeys(name)+") AS k (a, b) WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted"+
		" AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.classid::bigint = k.a::bigint & 4294967295 AND l.objid::bigint = k.b::bigint & 4294967295 AND l.pid <> pg_backend_pid()")
	return err
}

func (postgres) version(ctx context.Context, q sqldb.Queryer) (string, error) {
	var version, user string
	err := q.QueryRowContext(ctx, "SELECT current_setting('server_version'), current_user").Scan(&version, &user)
	return "PostgreSQL " + version + ", as user " + user, err
}

func (postgres) refusal(ctx context.Context, cfg *Config, q sqldb.Queryer) error {
	var user string
	var standby bool
	if err := q.QueryRowContext(ctx, "SELECT current_user, pg_is_in_recovery()").Scan(&user, &standby); err != nil {
		return err
	}
	if standby {
		return batch.NewError(batch.Transient, batch.CodeUnavailable, "rights", errors.New("the server is a standby, which takes no writes"), "connect to the primary server")
	}
	table, progress := sqldb.Quote(cfg.Table), cfg.progressName()
	may := func(right, query string, args ...any) error {
		var ok bool
		err := q.QueryRowContext(ctx, "SELECT "+query, args...).Scan(&ok)
		if err == nil && !ok {
			err = batch.NewError(batch.Transient, batch.CodeUnauthorized, "rights", fmt.Errorf("user %s may not %s", user, right), "GRANT "+right+" TO "+user)
		}
		return err
	}
	rights := map[string][]string{"INSERT": cfg.Columns}
	if len(cfg.Key) > 0 {
		rights["SELECT"], rights["UPDATE"] = cfg.Key, cfg.others()
	}
	for _, right := range []string{"INSERT", "SELECT", "UPDATE"} {
		for _, column := range rights[right] {
			if err := may(right+" ON "+cfg.Table, "has_column_privilege($1, $2, $3)", table, column, right); err != nil {
				return err
			}
		}
	}
	there, err := (sqldb.Postgres{}).TableExists(ctx, q, progress)
	if err != nil {
		return err
	}
	if !there {
		schema, _, given := strings.Cut(cfg.Table, ".")
		if !given {
			if err := q.QueryRowContext(ctx, "SELECT coalesce(current_schema(), 'public')").Scan(&schema); err != nil {
				return err
			}
		}
		return may("CREATE ON SCHEMA "+schema, "has_schema_privilege($1, 'CREATE')", schema)
	}
	for _, right := range []string{"SELECT", "INSERT", "UPDATE"} {
		if err := may(right+" ON "+progressTable, "has_table_privilege($1, $2)", progress, right); err != nil {
			return err
		}
	}
	return nil
}
