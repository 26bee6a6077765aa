package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/tridentd/tridentd/batch"
)

// OpenSQLite returns the database in a file, which is made if it isn't there. A write waits for others' for five seconds, and is synced.
func OpenSQLite(path string) (*DB, error) {
	if path == "" {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "sqlite", errors.New("path: none is given"), "name the database's file")
	}
	return openSQLite(path, "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
}

// AskSQLite returns the database in a file for questions: it is neither made nor changed.
func AskSQLite(path string) (*DB, error) {
	return openSQLite(path, "mode=rw&_pragma=busy_timeout(5000)&_pragma=query_only(1)")
}

func openSQLite(path, settings string) (*DB, error) {
	at := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: settings}
	db, err := sql.Open("sqlite", at.String())
	if err != nil {
		return nil, SQLite{}.Failure("sqlite", err)
	}
	return &DB{DB: db, Dialect: SQLite{}, Place: path}, nil
}

// SQLite is the dialect of SQLite 3.38 and later.
type SQLite struct{}

var _ Dialect = SQLite{}

// Param implements Dialect.
func (SQLite) Param(n int) string { return fmt.Sprintf("?%d", n) }

// TableExists implements Dialect.
func (d SQLite) TableExists(ctx context.Context, q Queryer, table string) (bool, error) {
	columns, err := d.Columns(ctx, q, table)
	return len(columns) > 0, err
}

// Columns implements Dialect.
func (SQLite) Columns(ctx context.Context, q Queryer, table string) ([]Column, error) {
	// hidden: 1 of a virtual table, 2 and 3 computed. A primary key that is an integer alone is given by the database; others take nulls
	// unless they say that they don't.
	return columns(q.QueryContext(ctx, `SELECT name, type, "notnull" OR pk > 0 AND lower(type) = 'integer' AND max(pk) OVER () = 1, "notnull" AND dflt_value IS NULL AND pk = 0, hidden > 1 FROM pragma_table_xinfo(`+Literal(unquote(table))+`) WHERE hidden <> 1 ORDER BY cid`))
}

// Unique implements Dialect.
func (SQLite) Unique(ctx context.Context, q Queryer, table string) ([][]string, error) {
	name := Literal(unquote(table))
	key, err := texts(q.QueryContext(ctx, "SELECT name FROM pragma_table_info("+name+") WHERE pk > 0 ORDER BY pk"))
	if err != nil {
		return nil, err
	}
	indexes, err := texts(q.QueryContext(ctx, `SELECT name FROM pragma_index_list(`+name+`) WHERE "unique" = 1 AND partial = 0 AND origin <> 'pk' ORDER BY name`))
	if err != nil {
		return nil, err
	}
	all, err := sets(indexes, func(index string) ([]string, error) {
		return texts(q.QueryContext(ctx, "SELECT coalesce(name, '') FROM pragma_index_info("+Literal(index)+") ORDER BY seqno"))
	})
	if err == nil && len(key) > 0 {
		all = append([][]string{key}, all...)
	}
	return all, err
}

// unquote is Quote's inverse for a table without a schema: SQLite's pragmas take a plain name.
func unquote(quoted string) string {
	var b []byte
	for i := 1; i < len(quoted)-1; i++ {
		if quoted[i] == '"' {
			i++
		}
		b = append(b, quoted[i])
	}
	return string(b)
}

// Failure implements Dialect: what SQLite's result code says.
func (SQLite) Failure(op string, err error) *batch.Error {
	if e, ok := errors.AsType[*batch.Error](err); ok {
		return e
	}
	se, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return noAnswer(op, err, "see to the database's file")
	}
	kind, code, remedy := batch.Transient, batch.CodeUnavailable, "see to the database's file and its disk"
	const primary = 0xff // the rest of a result code says more of the same
	switch se.Code() & primary {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		code, remedy = batch.CodeStoreInUse, "end the process that holds the database's lock"
	case lib.SQLITE_FULL:
		code, remedy = batch.CodeStoreFull, "make room on the disk of the database's file"
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM, lib.SQLITE_AUTH:
		code, remedy = batch.CodeUnauthorized, "let this user write the database's file and its folder"
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		kind, code, remedy = batch.Permanent, batch.CodeStoreDamaged, "restore the database from a backup, or name another file"
	case lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH:
		kind, code, remedy = batch.Permanent, batch.CodeBadRecord, "correct the value, or the type or constraint of the column"
	case lib.SQLITE_TOOBIG:
		kind, code, remedy = batch.Permanent, batch.CodeBatchTooLarge, "shorten the record"
	case lib.SQLITE_ERROR:
		kind, code, remedy = batch.Permanent, batch.CodeConfiguration, "correct the table or the sink's settings"
	}
	return batch.NewError(kind, code, op, fmt.Errorf("%s: %w", op, err), remedy)
}
