package sqlsink

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/sqldb"
)

// DefaultTimeout bounds each step that needs the database's answer.
const DefaultTimeout = 30 * time.Second

// progressTable has a row for each sink.
const progressTable = "tridentd_sinks"

// Config says where to write. Pipeline, Sink, Table and Columns have no defaults.
type Config struct {
	Pipeline, Sink string
	// Exactly one of them: PostgreSQL's URL, or the file of a database of SQLite.
	URL, Path string
	// PasswordFile holds the password to PostgreSQL. It is read for each connection, so that the password may change.
	PasswordFile string
	// Table, with its schema if it is in another than the user's own: schema.table.
	Table string
	// Columns to write, each of the field of its name.
	Columns []string
	// Key are the columns that tell rows apart: a record replaces the row with its key. Without it each record is a row of its own.
	Key []string
	// Timeout bounds each step that needs the database's answer; zero: DefaultTimeout.
	Timeout time.Duration
	Logger  hclog.Logger

	asks bool // the database is asked only, and isn't changed
}

func configError(remedy, format string, args ...any) *batch.Error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "sql sink", fmt.Errorf(format, args...), remedy)
}

// Describe names the table and what is written to it in one line, without the place and its secrets.
func (c *Config) Describe() string {
	text := c.kind() + " table " + c.Table + " (" + strings.Join(c.Columns, ", ") + ")"
	if len(c.Key) > 0 {
		text += ", key " + strings.Join(c.Key, ", ")
	}
	return text
}

// Validate checks the settings and sets the defaults. It contacts nobody.
func (c *Config) Validate() error {
	if (c.URL == "") == (c.Path == "") {
		return configError("name the database", "no database is given, or two are")
	}
	if c.URL != "" {
		if _, err := sqldb.ParsePostgres(c.URL, c.PasswordFile); err != nil {
			return err
		}
	} else if c.PasswordFile != "" {
		return configError("leave it out", "password_file: a database of SQLite has no password")
	}
	parts := strings.Split(c.Table, ".")
	if len(parts) > 2 || slices.Contains(parts, "") || c.Path != "" && len(parts) > 1 {
		return configError("name the table to write to", "table: %q is no name of a table", c.Table)
	}
	if len(c.Columns) == 0 {
		return configError("name the columns to write", "columns: none is given")
	}
	for i, name := range c.Columns {
		if name == "" || name == deleted || strings.ContainsAny(name, "\"\\\x00") {
			return configError("name another column", "columns: %q can't be written", name)
		}
		if slices.Contains(c.Columns[:i], name) {
			return configError("list it once", "columns: %s is listed twice", name)
		}
	}
	for i, name := range c.Key {
		if !slices.Contains(c.Columns, name) || slices.Contains(c.Key[:i], name) {
			return configError("name columns that are written, each once", "key: %s isn't one of the columns, or is listed twice", name)
		}
	}
	if c.Timeout < 0 {
		return configError("give a positive value, or leave it out", "timeout: %s is negative", c.Timeout)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return nil
}

// open returns the database, and what the sink does otherwise there than on another.
func (c *Config) open() (*sqldb.DB, dialect, error) {
	if c.URL != "" {
		db, err := sqldb.OpenPostgres(c.URL, c.PasswordFile)
		return db, postgres{}, err
	}
	open := sqldb.OpenSQLite
	if c.asks {
		open = sqldb.AskSQLite
	}
	db, err := open(c.Path)
	return db, sqlite{}, err
}

// kind is the name of the sort of database.
func (c *Config) kind() string {
	if c.URL != "" {
		return "postgres"
	}
	return "sqlite"
}

// progressName is the quoted name of the table of progresses.
func (c *Config) progressName() string {
	if schema, _, ok := strings.Cut(c.Table, "."); ok {
		return sqldb.Quote(schema + "." + progressTable)
	}
	return sqldb.Quote(progressTable)
}
