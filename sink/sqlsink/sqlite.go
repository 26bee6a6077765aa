package sqlsink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/sqldb"
)

// sqlite writes twice: to see that the table takes the rows, and with the progress.
type sqlite struct{}

func (sqlite) present(cfg *Config) error {
	_, err := os.Stat(cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return configError("create the database with its table, or correct the path", "there is no file %s", cfg.Path)
	}
	return err
}

func (sqlite) holds() bool { return false }

// lock: the transaction holds the one lock that there is.
func (sqlite) lock(context.Context, sqldb.Queryer, string, time.Duration) error { return nil }

// endOthers: there is no server that could end anything.
func (sqlite) endOthers(context.Context, sqldb.Queryer, string) error { return nil }

// statements: of several records with a key the last counts.
func (sqlite) statements(cfg *Config, _ []sqldb.Column) statements {
	table, names := sqldb.Quote(cfg.Table), list(cfg.Columns, sqldb.QuoteColumn)
	field := func(name string) string { return "value ->> " + sqldb.Literal(`$."`+name+`"`) }
	insert := "INSERT INTO " + table + " (" + names + ") SELECT "
	if len(cfg.Key) == 0 {
		return statements{write: insert + list(cfg.Columns, field) + " FROM json_each(?1) WHERE key < ?2 ORDER BY key"}
	}
	last := "(SELECT " + list(cfg.Columns, func(n string) string { return field(n) + " AS " + sqldb.QuoteColumn(n) }) + ", " + field(deleted) + " AS gone, key AS ord, " +
		"row_number() OVER (PARTITION BY " + list(cfg.Key, field) + " ORDER BY key DESC) AS nth FROM json_each(?1))"
	return statements{
		remove: "DELETE FROM " + table + " AS t WHERE EXISTS (SELECT 1 FROM " + last + " AS r WHERE nth = 1 AND gone AND ord < ?2 AND " + same(cfg) + ")",
		write:  insert + names + " FROM " + last + " WHERE nth = 1 AND gone IS NULL AND ord < ?2 ORDER BY ord" + conflict(cfg),
	}
}

// affinity is what a column makes of numbers, by SQLite's own rules.
type affinity uint8

const (
	numeric affinity = iota
	integer
	real
	text
	none
)

func affinityOf(declared string) affinity {
	t := strings.ToUpper(declared)
	has := func(part string) bool { return strings.Contains(t, part) }
	switch {
	case has("INT"):
		return integer
	case has("CHAR"), has("CLOB"), has("TEXT"):
		return text
	case t == "", has("BLOB"):
		return none
	case has("REAL"), has("FLOA"), has("DOUB"): //nolint:misspell // the rule has these four letters
		return real
	}
	return numeric
}

// safeDigits is how many digits any number may have to be kept as a float that is read as the same.
const safeDigits = 15

// unfit: SQLite takes a number that is no integer of 64 bits for a float, and so do columns that are no text with the text of one.
func (sqlite) unfit(column sqldb.Column, v jsonscan.Field) string {
	kind := affinityOf(column.Type)
	switch v.Kind {
	case jsonscan.Number, jsonscan.Float:
	case jsonscan.String:
		if kind == text || kind == none || v.Escaped {
			return ""
		}
	default:
		return ""
	}
	number := strings.TrimSpace(string(v.Raw))
	if len(number) <= safeDigits && !strings.ContainsAny(number, "eE") {
		return ""
	}
	digits, exponent, ok := significant(number)
	if !ok {
		return "" // a text
	}
	if _, err := strconv.ParseInt(number, 10, 64); err == nil && kind != real {
		return ""
	}
	if f, err := strconv.ParseFloat(number, 64); err == nil {
		if d, e, _ := significant(strconv.FormatFloat(f, 'e', -1, 64)); d == digits && e == exponent {
			return ""
		}
	}
	return fmt.Sprintf("SQLite would keep %s as a float and round it; declare the column TEXT, and write the number as text", number)
}

// significant returns a number's digits without zeros at either end, and the power of ten that the last of them stands for.
func significant(number string) (digits string, exponent int, ok bool) {
	mantissa, power, scientific := strings.Cut(strings.ToLower(strings.TrimLeft(number, "+-")), "e")
	if scientific {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return "", 0, false
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return "", 0, false
	}
	exponent -= len(fraction)
	digits = strings.TrimLeft(digits, "0")
	n := len(digits)
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return "", 0, true
	}
	return digits, exponent + n - len(digits), true
}

func (sqlite) version(ctx context.Context, q sqldb.Queryer) (string, error) {
	var version string
	err := q.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	return "SQLite " + version, err
}

func (sqlite) refusal(_ context.Context, cfg *Config, _ sqldb.Queryer) error {
	f, err := os.OpenFile(cfg.Path, os.O_RDWR, 0)
	if err != nil {
		return batch.NewError(batch.Transient, batch.CodeUnauthorized, "rights", err, "let this user write the database's file and its folder")
	}
	return f.Close()
}
