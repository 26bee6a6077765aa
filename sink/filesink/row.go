package filesink

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/decimal"
	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/value"
)

// document takes the columns of a row out of its JSON. It belongs to one goroutine.
type document struct {
	columns []Column
	scan    *jsonscan.Scanner
	fields  []jsonscan.Field
	text    []byte
}

func newDocument(columns []Column) *document {
	names := make([]string, len(columns))
	for i := range columns {
		names[i] = columns[i].Name
	}
	return &document{columns: columns, scan: jsonscan.New(names), fields: make([]jsonscan.Field, len(names))}
}

// read makes d.fields those of the row; they point into doc.
func (d *document) read(doc []byte) error {
	if doc == nil {
		return errors.New("the value is null, and not an object")
	}
	return d.scan.Scan(doc, d.fields)
}

// str is what a string stands for; it is valid until the next call.
func (d *document) str(f jsonscan.Field) ([]byte, error) {
	if !f.Escaped {
		return f.Raw, nil
	}
	var err error
	d.text, err = jsonscan.Unescape(d.text[:0], f.Raw)
	return d.text, err
}

func isNull(f jsonscan.Field) bool { return f.Kind == jsonscan.Null || f.Kind == jsonscan.Missing }

// value returns a column of the row that was read: a decimal as what unscaled makes of it. What it refers to is valid until the next call.
func (d *document) value(i int) (value.Value, error) {
	c := &d.columns[i]
	v, err := d.valueOf(d.fields[i], c, c.Type)
	if err != nil {
		return v, fmt.Errorf("field %s: %w", c.Name, err)
	}
	return v, nil
}

func (d *document) valueOf(f jsonscan.Field, c *Column, t Type) (value.Value, error) {
	if isNull(f) {
		return value.NullValue(), nil
	}
	isNumber := f.Kind == jsonscan.Number || f.Kind == jsonscan.Float
	switch t {
	case TypeJSON:
		if f.Kind == jsonscan.String {
			return value.StringOf(`"` + string(f.Raw) + `"`), nil
		}
		return value.StringOf(string(f.Raw)), nil
	case TypeBool:
		if f.Kind == jsonscan.True || f.Kind == jsonscan.False {
			return value.BoolOf(f.Kind == jsonscan.True), nil
		}
	case TypeInt:
		if f.Kind == jsonscan.Number {
			n, ok := jsonscan.ParseInt(f.Raw)
			if !ok {
				return value.Value{}, fmt.Errorf("%s is beyond 64 bits", f.Raw)
			}
			return value.IntOf(n), nil
		}
	case TypeUint:
		if f.Kind == jsonscan.Number {
			n, err := strconv.ParseUint(string(f.Raw), 10, 64)
			if err != nil {
				return value.Value{}, fmt.Errorf("%s is beyond 64 bits without a sign", f.Raw)
			}
			return value.IntOf(int64(n)), nil // its bits
		}
	case TypeFloat:
		if isNumber {
			n, ok := jsonscan.ParseFloat(f.Raw)
			if !ok {
				return value.Value{}, fmt.Errorf("%s is beyond the floats", f.Raw)
			}
			return value.FloatOf(n), nil
		}
		switch {
		case f.Kind != jsonscan.String:
		case string(f.Raw) == "NaN":
			return value.FloatOf(math.NaN()), nil
		case string(f.Raw) == "+Inf":
			return value.FloatOf(math.Inf(1)), nil
		case string(f.Raw) == "-Inf":
			return value.FloatOf(math.Inf(-1)), nil
		}
	case TypeList:
		if f.Kind == jsonscan.Array {
			var all []value.Value
			var failed error
			jsonscan.Elements(f.Raw, func(e jsonscan.Field) bool {
				v, err := d.valueOf(e, c, c.Elem)
				if err != nil {
					failed = fmt.Errorf("element %d: %w", len(all), err)
					return false
				}
				all = append(all, v.Clone()) // the text of the next takes its place
				return true
			})
			return value.ListOf(all), failed
		}
	case TypeDecimal:
		if f.Kind == jsonscan.String || isNumber {
			text, err := d.str(f)
			if err != nil {
				return value.Value{}, err
			}
			n, err := decimal.ParseBytes(text)
			if err != nil {
				return value.Value{}, err
			}
			b, err := unscaled(n, c.Scale)
			return value.BytesOf(b), err
		}
	case TypeString, TypeBytes, TypeTimestamp:
		if f.Kind == jsonscan.String {
			text, err := d.str(f)
			if err != nil {
				return value.Value{}, err
			}
			return ofText(text, t)
		}
	}
	return value.Value{}, fmt.Errorf("%s is no %s", f.Kind, t)
}

func ofText(text []byte, t Type) (value.Value, error) {
	if t == TypeBytes {
		b, err := base64.StdEncoding.AppendDecode(nil, text)
		return value.BytesOf(b), err
	}
	if t == TypeTimestamp {
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return value.Value{}, fmt.Errorf("%q is no time of RFC 3339", text)
		}
		nanos, err := value.Nanos(at)
		return value.TimeOf(nanos), err
	}
	return value.StringOf(string(text)), nil
}

var (
	limit   = new(big.Int).Exp(big.NewInt(10), big.NewInt(Precision), nil)
	modulus = new(big.Int).Lsh(big.NewInt(1), 8*decimalBytes)
)

// unscaled returns d * 10^scale in two's complement, the most significant byte first, if that is a whole number of at most Precision digits.
func unscaled(d decimal.Decimal, scale int) ([]byte, error) {
	up := int(d.Exponent()) + scale
	if up < 0 {
		return nil, fmt.Errorf("%s has more than %d digits behind the point", d, scale)
	}
	n := d.Coefficient()
	if up <= Precision {
		n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(up)), nil))
	}
	if (up > Precision && n.Sign() != 0) || n.CmpAbs(limit) >= 0 {
		return nil, fmt.Errorf("%s has more than %d digits before the point, where %d are kept behind it", d, Precision-scale, scale)
	}
	if n.Sign() < 0 {
		n.Add(n, modulus)
	}
	return n.FillBytes(make([]byte, decimalBytes)), nil
}
