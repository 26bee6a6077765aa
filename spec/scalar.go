package spec

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseDuration reads a duration as time.ParseDuration does, and whole or broken days ("7d") besides. Negative
// ones are refused.
func parseDuration(s string) (time.Duration, error) {
	form := errors.New(`a duration is a number and a unit, as in "500ms", "10s", "24h" or "7d"`)
	rest, days := s, time.Duration(0)
	if i := strings.IndexByte(s, 'd'); i > 0 {
		n, err := strconv.ParseFloat(s[:i], 64)
		if err != nil || strings.ContainsAny(s[:i], "eExXpP_nN") {
			return 0, form
		}
		if math.Abs(n) > 100_000 {
			return 0, fmt.Errorf("%s is more than 100,000 days", s)
		}
		days, rest = time.Duration(n*float64(24*time.Hour)), s[i+1:]
		if rest == "" {
			rest = "0"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, form
	}
	if d += days; d < 0 {
		return 0, errors.New("a duration can't be negative here")
	}
	return d, nil
}

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"B", 1},
}

// parseSize reads a number of bytes with or without a unit.
func parseSize(s string) (int64, error) {
	form := errors.New(`a size is a number and a unit, as in "512KiB", "64MiB" or "1GiB"`)
	num, factor := s, int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			num, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 {
		return 0, form
	}
	if n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%s is too large", s)
	}
	return n * factor, nil
}

// checkAs tells why s can't be a name of some kind; nil if it can.
func checkAs(k kind, s string) error {
	switch {
	case k == kindName:
		return checkName(s)
	case k == kindField:
		return checkFieldName(s)
	case s == "":
		return errors.New("a field's name can't be empty")
	}
	return nil
}

// checkName tells why s can't name a pipeline, source, stream or state; nil if it can.
func checkName(s string) error {
	if strings.HasPrefix(s, "_") {
		return errors.New("names that start with _ are the engine's own")
	}
	if len(s) > 200 {
		return errors.New("a name has at most 200 characters")
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '_' || c == '-') && i > 0:
		default:
			return errors.New("a name is made of letters, digits, - and _, and begins with a letter or digit")
		}
	}
	if s == "" {
		return errors.New("a name can't be empty")
	}
	return nil
}

// checkFieldName tells why s can't name a field in an expression; nil if it can.
func checkFieldName(s string) error {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return errors.New("a field's name is made of letters, digits and _, and doesn't begin with a digit")
		}
	}
	if s == "" {
		return errors.New("a field's name can't be empty")
	}
	return nil
}
