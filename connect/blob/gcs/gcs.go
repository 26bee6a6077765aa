// Package gcs keeps savepoints in Google Cloud Storage. Importing it adds gs://bucket/prefix to what package connect/blob
// understands. It stands apart as Google's client is several times as large as all others.
package gcs

import (
	_ "gocloud.dev/blob/gcsblob" // gs://

	"github.com/tridentd/tridentd/connect/blob"
	"github.com/tridentd/tridentd/savepoint"
)

func init() { savepoint.Register("gs", blob.Open) }
