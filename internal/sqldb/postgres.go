package sqldb

import (
	"context"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tridentd/tridentd/batch"
)

// connectTimeout bounds the making of a connection, unless the URL says otherwise.
const connectTimeout = 10 * time.Second

// OpenPostgres returns the database at a URL (postgres://user:password@host:port/database?sslmode=…) or a string of settings
// (host=… user=…). It contacts nobody. The password is the content of passwordFile, which is read for each connection, so that it may
// change; where that is empty, the URL's, else it comes from PGPASSWORD or ~/.pgpass.
func OpenPostgres(url, passwordFile string) (*DB, error) {
	cfg, err := ParsePostgres(url, passwordFile)
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.StatementCacheCapacity, cfg.DescriptionCacheCapacity = 0, 0
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "tridentd"
	}
	if passwordFile == "" {
		return &DB{DB: stdlib.OpenDB(*cfg), Dialect: Postgres{}, Place: PostgresPlace(cfg)}, nil
	}
	if _, err := readPassword(passwordFile); err != nil {
		return nil, err
	}
	withPassword := stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) (err error) {
		c.Password, err = readPassword(passwordFile)
		return err
	})
	return &DB{DB: stdlib.OpenDB(*cfg, withPassword), Dialect: Postgres{}, Place: PostgresPlace(cfg)}, nil
}

// ParsePostgres reads a URL or a string of settings, without the password's file. No error quotes anything of it.
func ParsePostgres(url, passwordFile string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		// The cause quotes parts of the URL.
		return nil, configError("write it as postgres://user:password@host:port/database?sslmode=verify-full", "url: it can't be read")
	}
	if passwordFile != "" && hasPassword(url) {
		return nil, configError("keep one of them", "password_file: the URL has a password, too")
	}
	return cfg, nil
}

// hasPassword tells whether a readable URL or string of settings holds a password.
func hasPassword(url string) bool {
	if u, err := neturl.Parse(url); err == nil && u.Scheme != "" {
		_, has := u.User.Password()
		return has || u.Query().Has("password")
	}
	return slices.ContainsFunc(strings.Fields(url), func(s string) bool { return strings.HasPrefix(s, "password=") })
}

// PostgresPlace is what people call the database by: host:port/database.
func PostgresPlace(cfg *pgx.ConnConfig) string {
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))) + "/" + cfg.Database
}

func readPassword(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", configError("name a readable file", "password_file: %w", err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", configError("put the password into it", "password_file: %s is empty", file)
	}
	return password, nil
}

func configError(remedy, format string, args ...any) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "postgres", fmt.Errorf(format, args...), remedy)
}

// Postgres is the dialect of PostgreSQL 12 and later.
type Postgres struct{}

var _ Dialect = Postgres{}

// Param implements Dialect.
func (Postgres) Param(n int) string { return "$" + strconv.Itoa(n) }

// TableExists implements Dialect.
func (Postgres) TableExists(ctx context.Context, q Queryer, table string) (there bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there)
	return there, err
}

// Columns implements Dialect.
func (Postgres) Columns(ctx context.Context, q Queryer, table string) ([]Column, error) {
	return columns(q.QueryContext(ctx, `SELECT attname, format_type(atttypid, atttypmod), attnotnull, attnotnull AND NOT atthasdef AND attidentity = '', attgenerated <> '' OR attidentity = 'a'
FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, table))
}

// Unique implements Dialect.
func (Postgres) Unique(ctx context.Context, q Queryer, table string) ([][]string, error) {
	indexes, err := texts(q.QueryContext(ctx, `SELECT indexrelid::text FROM pg_index
WHERE indrelid = to_regclass($1) AND indisunique AND indisvalid AND indimmediate AND indpred IS NULL AND indexprs IS NULL ORDER BY indexrelid`, table))
	if err != nil {
		return nil, err
	}
	return sets(indexes, func(index string) ([]string, error) {
		return texts(q.QueryContext(ctx, `SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(num, ord)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num WHERE i.indexrelid = $1::oid AND k.ord <= i.indnkeyatts ORDER BY k.ord`, index))
	})
}

// Failure implements Dialect: what the class of the SQLSTATE says.
func (Postgres) Failure(op string, err error) *batch.Error {
	if e, ok := errors.AsType[*batch.Error](err); ok {
		return e
	}
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return noAnswer(op, err, "check that PostgreSQL runs and can be reached from here")
	}
	kind, code, remedy := explainPostgres(pe)
	return batch.NewError(kind, code, op, fmt.Errorf("%s: %w", op, err), remedy)
}

func explainPostgres(pe *pgconn.PgError) (kind batch.Kind, code batch.Code, remedy string) {
	const transient, permanent = batch.Transient, batch.Permanent
	switch pe.Code {
	case "42501":
		return transient, batch.CodeUnauthorized, "grant this user what the message names"
	case "42P01", "3F000":
		return permanent, batch.CodeConfiguration, "create the table, or correct its name"
	case "3D000":
		return permanent, batch.CodeConfiguration, "create the database, or correct its name in the URL"
	case "53100":
		return transient, batch.CodeStoreFull, "make room on the server's disk"
	case "53300":
		return transient, batch.CodeUnavailable, "raise the server's max_connections, or close connections"
	case "55P03", "57014":
		return transient, batch.CodeTimeout, "see who holds the lock (pg_stat_activity, pg_locks), and end it"
	case "55000", "25006":
		return transient, batch.CodeUnavailable, "connect to the primary server: this one takes no writes"
	}
	class := pe.Code
	if len(class) > 2 {
		class = class[:2]
	}
	switch class {
	case "08", "40", "53", "57", "25", "58":
		return transient, batch.CodeUnavailable, "see the server's log if it lasts"
	case "28":
		return transient, batch.CodeUnauthorized, "check the user and the password, and the server's pg_hba.conf"
	case "21", "22", "23":
		return permanent, batch.CodeBadRecord, "correct the value, or the type or constraint of the column"
	case "42", "0A", "44":
		return permanent, batch.CodeConfiguration, "correct the table or the sink's settings"
	case "54":
		return permanent, batch.CodeBatchTooLarge, "lower batch.max_records"
	}
	if pe.Code == "XX001" || pe.Code == "XX002" {
		return permanent, batch.CodeStoreDamaged, "restore the database from a backup"
	}
	return transient, batch.CodeUnavailable, "see the server's log if it lasts"
}

// noAnswer is a failure that the database didn't name.
func noAnswer(op string, err error, remedy string) *batch.Error {
	code := batch.CodeUnavailable
	if errors.Is(err, context.DeadlineExceeded) {
		code = batch.CodeTimeout
	}
	return batch.NewError(batch.Transient, code, op, fmt.Errorf("%s: %w", op, err), remedy)
}
