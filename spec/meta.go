package spec

import "github.com/tridentd/tridentd/internal/expr"

// meta are a record's own properties, which every source's rows have besides their fields. Steps neither drop nor
// replace them.
var meta = []struct {
	name string
	typ  expr.Type
	doc  string
}{
	{"_key", expr.Bytes, "the record's key; null where there is none"},
	{"_topic", expr.String.NotNull(), "the topic, or the file's path as it was given"},
	{"_partition", expr.Int.NotNull(), "the partition's number; 0 for a file"},
	{"_offset", expr.Int.NotNull(), "the record's offset; a file's records are numbered from 0"},
	{"_timestamp", expr.Time, "the record's own timestamp; null where the source has none"},
}

func isMeta(name string) bool {
	for _, m := range meta {
		if m.name == name {
			return true
		}
	}
	return false
}
