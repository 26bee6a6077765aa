package spec

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/internal/vec"
)

// clip shortens a text for an error.
func clip(text []byte) string {
	const most = 40
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "…"
	}
	return strconv.Quote(string(text))
}

// setText puts the text of a field into row i of a column, as the column's type reads it.
func setText(c *vec.Column, i int, text []byte) error {
	switch c.Type.Kind {
	case vec.String:
		if !utf8.Valid(text) {
			return fmt.Errorf("%s is not UTF-8", clip(text))
		}
		c.Str[i] = text
	case vec.Bytes:
		c.Str[i] = text
	case vec.Int:
		n, ok := jsonscan.ParseInt(text)
		if !ok {
			return notInteger(text)
		}
		c.Int[i] = n
	case vec.Float:
		f, err := parseFloat(text)
		if err != nil {
			return err
		}
		c.Float[i] = f
	case vec.Bool:
		switch string(text) {
		case "true", "True", "TRUE", "1":
			c.Bool[i] = true
		case "false", "False", "FALSE", "0":
			c.Bool[i] = false
		default:
			return fmt.Errorf("%s is neither true nor false", clip(text))
		}
	case vec.Decimal:
		d, err := decimal.Parse(vec.Text(text))
		if err != nil {
			return fmt.Errorf("%s is not a decimal: %w", clip(text), err)
		}
		c.Dec[i] = d
	case vec.Time:
		ns, err := parseTime(text)
		if err != nil {
			return err
		}
		c.Int[i] = ns
	default:
		panic("spec: a text for a column of type " + c.Type.String())
	}
	return nil
}

func notInteger(text []byte) error {
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) > 0 && len(bytes.Trim(digits, "0123456789")) == 0 {
		return fmt.Errorf("%s is beyond the range of an int", clip(text))
	}
	return fmt.Errorf("%s is not an int", clip(text))
}

// parseFloat takes finite numbers in decimal notation, NaN and the infinities.
func parseFloat(text []byte) (float64, error) {
	switch string(text) {
	case "NaN":
		return math.NaN(), nil
	case "Inf", "+Inf":
		return math.Inf(1), nil
	case "-Inf":
		return math.Inf(-1), nil
	}
	if len(bytes.Trim(text, "0123456789+-.eE")) == 0 {
		f, err := strconv.ParseFloat(vec.Text(text), 64)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, strconv.ErrRange) {
			return 0, fmt.Errorf("%s is beyond the range of a float", clip(text))
		}
	}
	return 0, fmt.Errorf("%s is not a number", clip(text))
}

// Years within which a timestamp can be told in nanoseconds of 64 bits.
const (
	firstYear = 1678
	lastYear  = 2261
)

// parseTime reads RFC 3339. The form in UTC without a fraction, by far the most frequent, is read by hand.
func parseTime(text []byte) (int64, error) {
	if ns, ok := parseUTC(text); ok {
		return ns, nil
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return 0, fmt.Errorf("%s is not a time as RFC 3339 writes it (2006-01-02T15:04:05Z)", clip(text))
	}
	if y := t.UTC().Year(); y < firstYear || y > lastYear {
		return 0, fmt.Errorf("%s lies outside the years %d to %d", clip(text), firstYear, lastYear)
	}
	return t.UnixNano(), nil
}

var monthDays = [...]int64{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// parseUTC reads 2006-01-02T15:04:05Z. It leaves everything that isn't exactly this, and in range, to time.Parse.
func parseUTC(b []byte) (ns int64, ok bool) {
	if len(b) != 20 || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != 'Z' {
		return 0, false
	}
	good := true
	two := func(i int) int64 {
		hi, lo := b[i]-'0', b[i+1]-'0'
		good = good && hi <= 9 && lo <= 9
		return int64(hi)*10 + int64(lo)
	}
	year := two(0)*100 + two(2)
	month, day, hour, minute, sec := two(5), two(8), two(11), two(14), two(17)
	if !good || year < firstYear || year > lastYear || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || sec > 59 {
		return 0, false
	}
	leap := year%4 == 0 && (year%100 != 0 || year%400 == 0)
	if last := monthDays[month-1]; day > last && !(leap && month == 2 && day == 29) {
		return 0, false
	}
	// Days since 1970-01-01 by years that begin in March, so that the leap day is a year's last.
	y, m := year, month-3
	if month < 3 {
		y, m = year-1, month+9
	}
	days := 365*y + y/4 - y/100 + y/400 + (153*m+2)/5 + day - 1 - 719468
	return (days*86400 + hour*3600 + minute*60 + sec) * int64(time.Second), true
}

// setJSON puts a field of a JSON document into row i of a column. mem takes what must be written anew.
func setJSON(c *vec.Column, i int, f *jsonscan.Field, mem *vec.Arena) error {
	switch f.Kind {
	case jsonscan.Missing, jsonscan.Null:
		c.SetNull(i)
		return nil
	}
	switch c.Type.Kind {
	case vec.String:
		if f.Kind != jsonscan.String {
			return due(f, "a string")
		}
		s, err := text(f, mem)
		c.Str[i] = s
		return err
	case vec.Int:
		switch f.Kind {
		case jsonscan.Number:
			n, ok := jsonscan.ParseInt(f.Raw)
			if !ok {
				return notInteger(f.Raw)
			}
			c.Int[i] = n
			return nil
		case jsonscan.Float:
			return fmt.Errorf("%s is written with a fraction or an exponent, an int is due", clip(f.Raw))
		}
		return due(f, "an int")
	case vec.Any:
		v, err := dynamic(f, mem)
		if err != nil {
			return err
		}
		c.Any[i] = v
		return nil
	case vec.Float:
		switch f.Kind {
		case jsonscan.Number, jsonscan.Float:
			return setText(c, i, f.Raw)
		case jsonscan.String: // what JSON has no number for
			switch string(f.Raw) {
			case "NaN", "Inf", "+Inf", "-Inf":
				return setText(c, i, f.Raw)
			}
		}
		return due(f, "a number")
	case vec.Bool:
		if f.Kind != jsonscan.True && f.Kind != jsonscan.False {
			return due(f, "true or false")
		}
		c.Bool[i] = f.Kind == jsonscan.True
		return nil
	case vec.Decimal:
		switch f.Kind {
		case jsonscan.Number, jsonscan.Float:
			return setText(c, i, f.Raw)
		case jsonscan.String:
			s, err := text(f, mem)
			if err != nil {
				return err
			}
			return setText(c, i, s)
		}
		return due(f, "a number or a string with one")
	case vec.Time:
		switch f.Kind {
		case jsonscan.Number:
			ms, ok := jsonscan.ParseInt(f.Raw)
			if !ok || ms < minMillis || ms > maxMillis {
				return fmt.Errorf("%s milliseconds since 1970 lie outside the years %d to %d", clip(f.Raw), firstYear, lastYear)
			}
			c.Int[i] = ms * int64(time.Millisecond)
			return nil
		case jsonscan.String:
			s, err := text(f, mem)
			if err != nil {
				return err
			}
			return setText(c, i, s)
		}
		return due(f, "a time as RFC 3339 writes it, or milliseconds since 1970")
	case vec.Bytes:
		if f.Kind != jsonscan.String {
			return due(f, "a string in base64")
		}
		s, err := text(f, mem)
		if err != nil {
			return err
		}
		b := mem.Alloc(base64.StdEncoding.DecodedLen(len(s)))
		n, err := base64.StdEncoding.Strict().Decode(b, s)
		if err != nil {
			return fmt.Errorf("%s is not base64", clip(s))
		}
		c.Str[i] = b[:n:n]
		return nil
	default:
		panic("spec: a JSON field for a column of type " + c.Type.String())
	}
}

var (
	minMillis = time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxMillis = time.Date(lastYear+1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
)

func due(f *jsonscan.Field, want string) error { return fmt.Errorf("%s where %s is due", f.Kind, want) }

// text returns what a string stands for.
func text(f *jsonscan.Field, mem *vec.Arena) ([]byte, error) {
	if !f.Escaped {
		return f.Raw, nil
	}
	s, err := jsonscan.Unescape(mem.Tail(len(f.Raw)), f.Raw)
	if err != nil {
		return nil, err
	}
	return mem.Take(s), nil
}

// dynamic returns an undeclared field as what the JSON says: integers exactly, also those beyond 64 bits.
func dynamic(f *jsonscan.Field, mem *vec.Arena) (value.Value, error) {
	switch f.Kind {
	case jsonscan.True, jsonscan.False:
		return value.BoolOf(f.Kind == jsonscan.True), nil
	case jsonscan.Number:
		if n, ok := jsonscan.ParseInt(f.Raw); ok {
			return value.IntOf(n), nil
		}
		d, err := decimal.Parse(vec.Text(f.Raw))
		if err != nil {
			return value.Value{}, fmt.Errorf("%s is too long for an exact number: %w", clip(f.Raw), err)
		}
		return value.DecimalOf(d), nil
	case jsonscan.Float:
		x, err := parseFloat(f.Raw)
		return value.FloatOf(x), err
	case jsonscan.String:
		s, err := text(f, mem)
		return value.StringOf(vec.Text(s)), err
	case jsonscan.Array:
		var list []value.Value
		var failed error
		jsonscan.Elements(f.Raw, func(e jsonscan.Field) bool {
			v := value.NullValue()
			if e.Kind != jsonscan.Null {
				v, failed = dynamic(&e, mem)
			}
			list = append(list, v)
			return failed == nil
		})
		return value.ListOf(list), failed
	case jsonscan.Object:
		return value.Value{}, errors.New("an object has no value of its own; name one of its fields with a dot")
	default:
		return value.NullValue(), nil
	}
}
