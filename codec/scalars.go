package codec

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/internal/jsonscan"
)

// setter sets v to what a text stands for.
type setter = func(t *texts, v reflect.Value, text []byte) error

// fromText makes n a type that JSON writes as a string.
func (n *node) fromText(set setter) {
	n.text = set
	n.json = func(d *jsonState, v reflect.Value, f jsonscan.Field) error {
		if f.Kind != jsonscan.String {
			return unexpected(f, "a string")
		}
		return d.withText(f, v, set)
	}
}

// fromNumber makes n a type that JSON writes as a number.
func (n *node) fromNumber(set setter, fractions bool) {
	n.text = set
	n.json = func(d *jsonState, v reflect.Value, f jsonscan.Field) error {
		switch {
		case f.Kind == jsonscan.Number || f.Kind == jsonscan.Float && fractions:
			return set(&d.texts, v, f.Raw)
		case f.Kind == jsonscan.Float:
			return fmt.Errorf("%s is written with a fraction or an exponent, %s takes integers only", clip(f.Raw), v.Type())
		case fractions:
			return unexpected(f, "a number")
		}
		return unexpected(f, "an integer")
	}
}

// unexpected is the error for a value of another kind than want.
func unexpected(f jsonscan.Field, want string) error {
	switch f.Kind {
	case jsonscan.Missing:
		return errMissing
	case jsonscan.Null:
		return errNullField
	}
	return fmt.Errorf("%s where %s is due", f.Kind, want)
}

var (
	errMissing   = errors.New("missing")
	errNullField = errors.New("null, which only a codec.Null takes")
)

// clip shortens a text for an error.
func clip(text []byte) string {
	const most = 40
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "…"
	}
	return strconv.Quote(string(text))
}

func setString(t *texts, v reflect.Value, text []byte) error {
	v.SetString(t.of(text))
	return nil
}

func setBytes(_ *texts, v reflect.Value, text []byte) error {
	v.SetBytes(append([]byte{}, text...))
	return nil
}

func setBool(_ *texts, v reflect.Value, text []byte) error {
	switch string(text) {
	case "true", "True", "TRUE", "1":
		v.SetBool(true)
	case "false", "False", "FALSE", "0":
		v.SetBool(false)
	default:
		return fmt.Errorf("%s is neither true nor false", clip(text))
	}
	return nil
}

func setInt(_ *texts, v reflect.Value, text []byte) error {
	n, ok := jsonscan.ParseInt(text)
	if !ok || v.OverflowInt(n) {
		return badInteger(v, text)
	}
	v.SetInt(n)
	return nil
}

func setUint(_ *texts, v reflect.Value, text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil && string(text) == "-0" {
		n, err = 0, nil
	}
	if err != nil || v.OverflowUint(n) {
		return badInteger(v, text)
	}
	v.SetUint(n)
	return nil
}

func badInteger(v reflect.Value, text []byte) error {
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) > 0 && len(bytes.Trim(digits, "0123456789")) == 0 {
		return fmt.Errorf("%s is beyond the range of %s", clip(text), v.Type())
	}
	return fmt.Errorf("%s is not an integer", clip(text))
}

// setFloat takes finite numbers.
func setFloat(_ *texts, v reflect.Value, text []byte) error {
	f, err := strconv.ParseFloat(string(text), v.Type().Bits())
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s is beyond the range of %s", clip(text), v.Type())
	}
	if err != nil {
		return fmt.Errorf("%s is not a number", clip(text))
	}
	v.SetFloat(f)
	return nil
}

// setFloatText takes what JSON has no form for as well. Every NaN becomes the same one.
func setFloatText(t *texts, v reflect.Value, text []byte) error {
	switch string(text) {
	case "NaN":
		v.SetFloat(math.NaN())
	case "Inf", "+Inf":
		v.SetFloat(math.Inf(1))
	case "-Inf":
		v.SetFloat(math.Inf(-1))
	default:
		if len(bytes.Trim(text, "0123456789+-.eE")) > 0 {
			return fmt.Errorf("%s is not a number", clip(text))
		}
		return setFloat(t, v, text)
	}
	return nil
}

func setTime(_ *texts, v reflect.Value, text []byte) error {
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return fmt.Errorf("%s is not a time as RFC 3339 writes it (2006-01-02T15:04:05Z)", clip(text))
	}
	// time.Parse takes the machine's own zone where the offset fits it.
	*v.Addr().Interface().(*time.Time) = t.UTC()
	return nil
}

func setDuration(_ *texts, v reflect.Value, text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%s is not a duration such as 1m30s", clip(text))
	}
	v.SetInt(int64(d))
	return nil
}

func setUnmarshaler(_ *texts, v reflect.Value, text []byte) error {
	v.SetZero() // an unmarshaler may reuse the memory of the value before, which somebody may hold
	return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(text)
}

func jsonBool(_ *jsonState, v reflect.Value, f jsonscan.Field) error {
	if f.Kind != jsonscan.True && f.Kind != jsonscan.False {
		return unexpected(f, "true or false")
	}
	v.SetBool(f.Kind == jsonscan.True)
	return nil
}

func jsonBase64(d *jsonState, v reflect.Value, f jsonscan.Field) error {
	if f.Kind != jsonscan.String {
		return unexpected(f, "a string in base64")
	}
	return d.withText(f, v, func(_ *texts, v reflect.Value, text []byte) error {
		b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Strict().Decode(b, text)
		if err != nil {
			return fmt.Errorf("%s is not base64", clip(text))
		}
		v.SetBytes(b[:n])
		return nil
	})
}

// jsonAny keeps a number's digits: a json.Number, no float64.
func jsonAny(d *jsonState, v reflect.Value, f jsonscan.Field) error {
	switch f.Kind {
	case jsonscan.Null, jsonscan.Missing:
		v.SetZero()
		return nil
	case jsonscan.String:
		var s string
		if err := d.withText(f, reflect.ValueOf(&s).Elem(), setString); err != nil {
			return err
		}
		v.Set(reflect.ValueOf(s))
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(f.Raw))
	dec.UseNumber()
	var x any
	if err := dec.Decode(&x); err != nil {
		return err
	}
	v.Set(reflect.ValueOf(x))
	return nil
}

// document is the field's text as it stands in the document.
func document(f jsonscan.Field) []byte {
	switch f.Kind {
	case jsonscan.Missing:
		return []byte("null")
	case jsonscan.String:
		return append(append([]byte{'"'}, f.Raw...), '"')
	}
	return f.Raw
}
