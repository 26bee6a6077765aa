package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Split takes the id of its schema off a record.
func Split(b []byte) (id int, rest []byte, err error) {
	if len(b) < 5 {
		return 0, nil, fmt.Errorf("%d bytes are too few for the id of a schema", len(b))
	}
	if b[0] != 0 {
		return 0, nil, fmt.Errorf("the record begins with byte %#02x, not with 0 and the id of a schema", b[0])
	}
	return int(binary.BigEndian.Uint32(b[1:])), b[5:], nil
}

// SplitIndex takes the place of its message off a record of Protobuf, behind the id.
func SplitIndex(b []byte) (index []int, rest []byte, err error) {
	const deepest = 64
	n, w := binary.Varint(b)
	if w <= 0 || n < 0 || n > deepest {
		return nil, nil, errors.New("the place of the message in its file is garbled")
	}
	b = b[w:]
	if n == 0 {
		return []int{0}, b, nil
	}
	for range n {
		i, w := binary.Varint(b)
		if w <= 0 || i < 0 || i > 1<<16 {
			return nil, nil, errors.New("the place of the message in its file is garbled")
		}
		index, b = append(index, int(i)), b[w:]
	}
	return index, b, nil
}

// AppendID begins a record with the id of its schema.
func AppendID(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0), uint32(id))
}

// AppendIndex appends the place of a message in its file.
func AppendIndex(dst []byte, index []int) []byte {
	if len(index) == 1 && index[0] == 0 {
		return append(dst, 0)
	}
	dst = binary.AppendVarint(dst, int64(len(index)))
	for _, i := range index {
		dst = binary.AppendVarint(dst, int64(i))
	}
	return dst
}
