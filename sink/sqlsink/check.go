package sqlsink

import (
	"context"
	"strings"
	"time"

	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/internal/sqldb"
)

// checkTimeout bounds all of a check.
const checkTimeout = 8 * time.Second

// Check asks a sink's database whether it can be reached, whether the table takes what the settings say and this user may write it, and
// what the progress is. It changes nothing.
func Check(ctx context.Context, cfg Config) []doctor.Finding {
	progress := "sink " + cfg.Sink
	cfg.Timeout, cfg.asks = checkTimeout, true
	s, err := New(cfg)
	if err != nil {
		return []doctor.Finding{doctor.Of(progress, err)}
	}
	defer s.db.Close() //nolint:errcheck // it has been asked only
	ctx, cancel := s.limit(ctx)
	defer cancel()
	server, table := cfg.kind()+" "+s.db.Place, cfg.kind()+" table "+cfg.Table
	version, err := s.version(ctx)
	if err != nil {
		return []doctor.Finding{doctor.Of(server, s.failure("asking for the version", err))}
	}
	all := []doctor.Finding{{Subject: server, Text: version}}
	columns, err := inspect(ctx, &s.cfg, s.db, s.db)
	if err == nil {
		err = s.dialect.refusal(ctx, &s.cfg, s.db)
	}
	if err != nil {
		all = append(all, doctor.Of(table, s.failure("looking at the table", err)))
	} else {
		all = append(all, doctor.Finding{Subject: table, Text: written(&s.cfg, columns)})
	}
	p, err := s.read(ctx, s.db)
	if err != nil {
		return append(all, doctor.Of(progress, s.failure("reading the progress", err)))
	}
	return append(all, doctor.Finding{Subject: progress, Text: p.Text()})
}

func (s *Sink) version(ctx context.Context) (string, error) {
	if err := s.dialect.present(&s.cfg); err != nil {
		return "", err
	}
	return s.dialect.version(ctx, s.db)
}

// written says what goes to a table.
func written(cfg *Config, columns []sqldb.Column) string {
	var all []string
	for _, c := range columns {
		all = append(all, strings.TrimSpace(c.Name+" "+c.Type))
	}
	text := "takes " + strings.Join(all, ", ")
	if len(cfg.Key) > 0 {
		return text + "; rows are told apart by " + strings.Join(cfg.Key, ", ")
	}
	return text + "; each record is a row"
}
