package pebblestate

import "errors"

var defaultMerge mergeFunc = func(_, _, _ []byte) ([]byte, error) { return nil, errors.New("no merge") }
