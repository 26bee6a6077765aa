// Package columnar reads records of Avro and Protobuf into columns, and writes rows as such records.
//
// What a record gives depends on its bytes, the schemas and the columns alone. A number is never rounded, wrapped or cut; bytes
// that don't follow the schema are an error, never a panic, and use no more memory than a small multiple of the record's length.
// Only the fields that columns ask for are made into values; the others are passed over.
//
// What a row is written as depends on its values and the schema alone, and the readers here give those values back: what a schema can't
// hold as it is (a longer number, a null where there is none) is an error that names the field.
//
// Fields are named by their path: `address.city` is the field city of the record address, or the entry city of a map of that name.
// A field that the schema doesn't have is null.
package columnar

import "github.com/tridentd/tridentd/internal/vec"

// Target is a column and the path of the field that fills it.
type Target struct {
	Name string
	Col  *vec.Column
}

// Field is a field of a schema that has a value of its own.
type Field struct {
	Name string // its path
	Type vec.Type
}

// Text puts a text into row i of a column of decimals or times.
type Text func(c *vec.Column, i int, text []byte) error

// maxDepth bounds how deep records, lists and maps lie in each other.
const maxDepth = 200
