package spec

import (
	"context"

	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/sink"
	"github.com/tridentd/tridentd/sink/sqlsink"
)

// tableFields are the settings of a sink that writes to a table of a SQL database.
func tableFields() []*field {
	return []*field{
		{name: "table", kind: kindString, required: true, example: "table: totals", doc: "The table. It must exist."},
		{
			name: "columns", kind: kindList, required: true, item: &field{kind: kindRef}, example: "columns: [customer, total]",
			doc: "The columns to write, each from the field of its name.",
		},
		{
			name: "key", kind: kindList, item: &field{kind: kindRef}, def: "none", example: "key: customer",
			doc: "The columns that tell rows apart: a row replaces the one with its key. They must be `NOT NULL`, and the primary key or a unique index. Without it, each row is added.",
		},
	}
}

func postgresSink() *field {
	return &field{name: "postgres", kind: kindObject, operator: true, doc: "A table of PostgreSQL; each batch is one transaction.", fields: append([]*field{
		{
			name: "url", kind: kindString, required: true, example: "url: ${DATABASE_URL}",
			doc: "The database, as `postgres://user:password@host:port/database?sslmode=verify-full`; rather take it from the environment if it holds a password.",
		},
		{name: "password_file", kind: kindString, doc: "A file that holds the password, instead of the URL. It is read for each connection. A relative path is relative to the pipeline's file."},
	}, tableFields()...)}
}

func sqliteSink() *field {
	return &field{name: "sqlite", kind: kindObject, operator: true, doc: "A table of a database of SQLite; each batch is one transaction.", fields: append([]*field{
		{name: "path", kind: kindString, required: true, example: "path: totals.db", doc: "The database's file, which must exist. A relative path is relative to the pipeline's file."},
	}, tableFields()...)}
}

// tableTarget checks the settings of a sink that writes to a table.
func (c *checker) tableTarget(s *sinkDecl) targetDecl {
	n := s.settings
	cfg := sqlsink.Config{
		Pipeline: c.m.name, Sink: s.name,
		URL: n.get("url").str(), PasswordFile: n.get("password_file").str(), Path: n.get("path").str(),
		Table: n.get("table").str(), Columns: n.get("columns").texts(), Key: n.get("key").texts(),
	}
	if len(n.failed) > 0 || cfg.Table == "" || len(cfg.Columns) == 0 {
		return targetDecl{} // reported already
	}
	if err := cfg.Validate(); err != nil {
		msg, hint := saying(err)
		c.add(n.keyAt, hint, "%s", msg)
		return targetDecl{}
	}
	return targetDecl{
		describe: cfg.Describe(),
		check: func(ctx context.Context, env doctor.Env) []doctor.Finding {
			return sqlsink.Check(ctx, cfg.In(env.Dir))
		},
		open: func(pipeline, name string, env plan.Env) (sink.Sink, error) {
			cfg := cfg.In(env.Dir)
			cfg.Pipeline, cfg.Sink, cfg.Logger = pipeline, name, env.Logger
			k, err := sqlsink.New(cfg)
			if err != nil {
				return nil, err
			}
			return k, nil
		},
	}
}
