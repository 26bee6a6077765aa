package spec

import (
	"slices"

	"github.com/tridentd/tridentd/emitter/kafka"
	"github.com/tridentd/tridentd/engine"
)

// grammar is the whole of what a pipeline's file may hold.
func grammar() *field {
	return &field{
		name: "pipeline file", kind: kindObject,
		doc: "A pipeline: sources, the streams of rows that begin at them, and the states that the streams keep.",
		fields: []*field{
			{name: "pipeline", kind: kindName, required: true, doc: "The pipeline's name. Its data lies in a directory of this name, and its Kafka group carries it unless `group` says otherwise.", example: "pipeline: words"},
			batchField(),
			ledgerField(),
			{name: "memory_limit", kind: kindSize, min: engine.MinMemoryLimit, def: "GOMEMLIMIT, or half of the cgroup's or machine's memory", doc: "What a run may keep in memory. Caches, fetched records and batches in flight get their shares of it; as long as memory is short, batches are small and wait for each other."},
			savepointsField(),
			{name: "connections", kind: kindObject, doc: "Servers that several sources use, written once.", fields: []*field{
				{name: "kafka", kind: kindObject, doc: "The Kafka cluster of every source that names no brokers of its own.", fields: kafkaConnection(true)},
				{name: "registry", kind: kindObject, doc: "The schema registry of every `avro` and `protobuf` that names neither one of its own nor a schema's file alone.", fields: registryFields()},
				{name: "postgres", later: true},
				{name: "redis", later: true},
			}},
			keeperField(),
			onBadRecord("What happens to a record that can't be decoded or whose step fails; sources may differ."),
			deadLettersField(),
			{name: "sources", kind: kindMap, keys: kindName, required: true, doc: "Where records come from, by the names that streams refer to.", item: sourceField()},
			{name: "states", kind: kindMap, keys: kindName, doc: "States that are not simply kept in the local database. A state that isn't declared here is.", item: stateField()},
			{name: "streams", kind: kindMap, keys: kindName, required: true, doc: "What is done with the records, by the names of the streams.", item: streamField()},
			{name: "sinks", kind: kindMap, keys: kindName, doc: "Where rows go outside, each batch's whole and once, by the names that the targets know them by.", item: sinkField()},
			{name: "queries", kind: kindMap, keys: kindName, doc: "Questions that the pipeline answers, by their names: see [query-streams.md](query-streams.md).", item: queryField()},
			testsField(),
		},
	}
}

func onBadRecord(doc string) *field {
	return &field{
		name: "on_bad_record", kind: kindEnum, enum: []string{"stop", "skip", "dead_letter"}, def: "stop",
		doc: doc + " `stop` ends the pipeline with the record's place and the cause, before anything of its batch is applied; `skip` puts it into the state `_rejected` and goes on; `dead_letter` sends it to the place that `dead_letters` names, and goes on.",
	}
}

func batchField() *field {
	return &field{name: "batch", kind: kindObject, doc: "How records are cut into batches. None of it changes what a batch of given ranges computes.", fields: []*field{
		{name: "max_records", kind: kindInt, min: 1, def: "adaptive, at most 200,000", doc: "The most records of one source partition in one batch."},
		{name: "max_bytes", kind: kindSize, min: 1, def: "64MiB", doc: "The most raw bytes of keys, values and headers in all batches in flight."},
		{name: "max_pending", kind: kindInt, min: 1, def: "4", doc: "How many batches may be in flight."},
		{name: "interval", kind: kindDuration, def: "0s", doc: "The least time between the beginnings of two batches."},
		{name: "timeout", kind: kindDuration, def: "none", doc: "How long an attempt may take before it counts as a transient failure."},
		{name: "retries", kind: kindObject, doc: "How transient failures (a server that is away, a time-out) are tried again.", fields: []*field{
			{name: "min", kind: kindDuration, def: "100ms", doc: "The first back-off; it doubles from attempt to attempt."},
			{name: "max", kind: kindDuration, def: "30s", doc: "The longest back-off."},
			{name: "attempts", kind: kindInt, min: 1, def: "no bound", doc: "How many attempts a batch has before the pipeline stops."},
			{name: "for", kind: kindDuration, def: "no bound", doc: "How long a batch may be tried again before the pipeline stops."},
		}},
	}}
}

func kafkaConnection(shared bool) []*field {
	brokers := &field{
		name: "brokers", kind: kindList, required: shared, item: &field{kind: kindString}, def: "those of `connections`", example: `brokers: ["${KAFKA_BROKERS}"]`,
		doc: "Addresses (host:port) of some of the brokers. One element may hold several, separated by commas.",
	}
	if shared {
		brokers.def = ""
	}
	return []*field{
		brokers,
		{name: "tls", kind: kindObject, doc: "Encrypted connections; an empty `tls: {}` trusts the system's certificate authorities.", fields: []*field{
			{name: "enabled", kind: kindBool, def: "true", doc: "Switches TLS off where it is `false`."},
			{name: "ca_file", kind: kindString, doc: "Certificate authorities to trust, in PEM form, instead of the system's."},
			{name: "cert_file", kind: kindString, doc: "The client's certificate, in PEM form."},
			{name: "key_file", kind: kindString, doc: "The key of the client's certificate, in PEM form."},
			{name: "server_name", kind: kindString, def: "the broker's host", doc: "The name that the brokers' certificates must carry."},
			{name: "insecure_skip_verify", kind: kindBool, def: "false", doc: "Accepts any certificate. For trials only."},
		}},
		{name: "sasl", kind: kindObject, doc: "How the client proves who it is.", fields: []*field{
			{name: "mechanism", kind: kindEnum, required: true, enum: kafka.Mechanisms(), doc: "The SASL mechanism. `GSSAPI` is Kerberos, `AWS_MSK_IAM` Amazon's."},
			{name: "user", kind: kindString, doc: "The user's name, with `PLAIN` and `SCRAM-…`."},
			{name: "password", kind: kindString, doc: "The password; rather take it from the environment or a file.", example: "password: ${KAFKA_PASSWORD}"},
			{name: "password_file", kind: kindString, doc: "A file that holds the password."},
			{name: "token_file", kind: kindString, doc: "`OAUTHBEARER`: a file that holds the bearer token; it is read again when it expires."},
			{name: "principal", kind: kindString, doc: "`GSSAPI`: who the client is, `NAME@REALM`.", example: "principal: app@EXAMPLE.COM"},
			{name: "keytab_file", kind: kindString, doc: "`GSSAPI`: the keytab with the principal's key; a password will do instead."},
			{name: "krb5_conf", kind: kindString, def: kafka.DefaultKRB5Conf, doc: "`GSSAPI`: the configuration of Kerberos."},
			{name: "service", kind: kindString, def: kafka.DefaultService, doc: "`GSSAPI`: the brokers' service name; a broker is `<service>/<host>`."},
			{name: "disable_fast", kind: kindBool, def: "false", doc: "`GSSAPI`: leaves out FAST negotiation, which some Active Directory servers need."},
			{name: "access_key", kind: kindString, doc: "`AWS_MSK_IAM`: the access key; without keys those of the environment (`AWS_ACCESS_KEY_ID`, …) are taken."},
			{name: "secret_key", kind: kindString, doc: "`AWS_MSK_IAM`: the secret key; rather take it from the environment or a file.", example: "secret_key: ${MSK_SECRET_KEY}"},
			{name: "session_token", kind: kindString, doc: "`AWS_MSK_IAM`: the session token of keys that expire."},
			{name: "credentials_file", kind: kindString, doc: "`AWS_MSK_IAM`: a file in the form of `~/.aws/credentials` instead of keys; it is read again for each connection."},
			{name: "profile", kind: kindString, def: kafka.DefaultAWSProfile, doc: "`AWS_MSK_IAM`: the profile in `credentials_file`."},
		}},
	}
}

func pathsField() *field {
	return &field{
		name: "paths", kind: kindList, required: true, item: &field{kind: kindString}, example: "paths: [data/*.csv.gz]",
		doc: "Files, or patterns with `*` and `?`; relative ones are relative to the pipeline's file. `.gz` and `.zst` are unpacked. Each file is a partition; its offsets are record numbers.",
	}
}

func sourceDecode() *field {
	f := decodeField("What a record's value is. `json`: one document; an object gives its fields, anything else the field `value`. `csv`: delimited text behind a header line. `string`: UTF-8 text, in the field `value`. `bytes`: bytes as they are, in the field `value`. `avro`, `protobuf`: the fields of a record by its schema, which a registry or a file holds.")
	f.enum = append(f.enum, "string", "bytes", "avro", "protobuf")
	f.enumOr.fields = append(f.enumOr.fields, schemaFormats()...)
	return f
}

func decodeField(doc string) *field {
	return &field{
		name: "decode", kind: kindEnum, enum: []string{"json", "csv"}, doc: doc,
		enumOr: &field{kind: kindObject, fields: []*field{
			{name: "csv", kind: kindObject, operator: true, doc: "CSV with options.", fields: []*field{
				{name: "null_values", kind: kindList, item: &field{kind: kindString}, def: "none", example: `null_values: ["NA", ""]`, doc: "Texts that stand for null, in every column."},
			}},
		}},
	}
}

func typesField() *field {
	return &field{
		name: "types", kind: kindMap, keys: kindRef, example: "types: {amount: decimal, placed_at: timestamp}",
		doc:  "Types of fields. A declared type is checked on every record. CSV columns are strings otherwise, JSON fields what the JSON says.",
		item: &field{kind: kindEnum, enum: typeNames, doc: "The field's type."},
	}
}

// typeNames are the types that `types` may declare.
var typeNames = []string{"string", "int", "float", "bool", "decimal", "timestamp", "bytes"}

func sourceField() *field {
	return &field{name: "source", kind: kindObject, fields: []*field{
		{name: "kafka", kind: kindObject, operator: true, doc: "Topics of a Kafka cluster.", fields: append(kafkaConnection(false),
			&field{name: "topics", kind: kindList, item: &field{kind: kindString}, doc: "The topics to read. Either this or `pattern`."},
			&field{name: "pattern", kind: kindString, doc: "A regular expression that the whole name of a topic must match; topics that appear later join from their beginning."},
			&field{name: "start", kind: kindString, def: "earliest", example: "start: committed:earliest", doc: "Where the very first run begins: `earliest`, `latest`, `timestamp:` with an RFC 3339 time, or `committed:earliest` and `committed:latest` for the group's committed offset with a fallback. Later runs go on where the last batch ended."},
			&field{name: "mode", kind: kindEnum, enum: []string{"transactional", "opaque"}, def: "transactional", doc: "What a second attempt of a batch reads: exactly the recorded ranges, or ranges planned anew where nothing can have been applied."},
			&field{name: "group", kind: kindString, def: "`tridentd-` and the pipeline's name", example: "group: off", doc: "The consumer group in which committed offsets are shown, for every tool for Kafka; `off` for none. Two sources of one topic need different groups."},
			&field{name: "isolation", kind: kindEnum, enum: []string{"read_committed", "read_uncommitted"}, def: "read_committed", doc: "Whether records of transactions that are open or were aborted are read."},
		)},
		{name: "file", kind: kindObject, operator: true, doc: "Files, each of which is a partition.", fields: []*field{pathsField()}},
		{name: "generate", kind: kindObject, operator: true, doc: "Made-up records for trials. The record at an offset depends on seed, partition and offset only.", fields: []*field{
			{name: "kind", kind: kindString, required: true, example: "kind: events", doc: "What is made: `words` (lines of text), `users` (JSON objects with user, page, ms and n), `orders` (id, customer, amount, placed_at) or `events` (sensor, value and at, a little out of order)."},
			{name: "seed", kind: kindInt, min: 0, def: "0", doc: "Another seed gives other records."},
			{name: "rate", kind: kindInt, min: 0, def: "0, no bound", doc: "Records a second, over all partitions."},
			{name: "partitions", kind: kindInt, min: 1, def: "1", doc: "The number of partitions."},
			{name: "count", kind: kindInt, min: 0, def: "0, no end", doc: "Records in all."},
		}},
		sourceDecode(),
		typesField(),
		{name: "time", kind: kindObject, doc: "Event time. Windows need it.", fields: []*field{
			{name: "field", kind: kindRef, required: true, doc: "The field that holds a record's time; its declared type must be timestamp."},
			{name: "lateness", kind: kindDuration, def: "0s", doc: "How far the watermark stays behind the largest time seen: how late a record may come."},
			{name: "idle", kind: kindDuration, def: "1m", doc: "After this time at its log's end a partition no longer holds the watermark back."},
			{name: "future", kind: kindDuration, def: "1h", doc: "A row whose time is further than this ahead of the batch's clock goes to `_rejected`, or to the dead letters where `on_bad_record` says so."},
		}},
		onBadRecord("As the setting of the whole pipeline, for this source."),
		{name: "load", kind: kindEnum, enum: []string{"first"}, def: "with the others", doc: "`first`: the other sources wait until this one has been read to the end that it has when the pipeline is first started, so that what is looked up in a table of it is there."},
	}}
}

func stateField() *field {
	return &field{name: "state", kind: kindObject, fields: []*field{
		{name: "static", kind: kindObject, operator: true, doc: "A table that is read whole when the pipeline starts, for `lookup`.", fields: []*field{
			{name: "file", kind: kindObject, operator: true, required: true, doc: "The files that hold the table.", fields: []*field{pathsField()}},
			decodeField("What the rows are: JSON objects, one a line, or CSV records behind a header line."),
			typesField(),
			{name: "key", kind: kindRef, required: true, doc: "The field by which rows are looked up. Each of its values may occur once."},
		}},
		latestField(),
		{name: "postgres", operator: true, later: true},
		{name: "redis", operator: true, later: true},
	}}
}

func streamField() *field {
	return &field{name: "stream", kind: kindObject, fields: []*field{
		{
			name: "from", kind: kindList, required: true, item: &field{kind: kindName}, example: "from: [orders, returns]",
			doc: "The source or stream whose rows this stream takes. A list merges them: every row of each.",
		},
		{name: "parallelism", kind: kindInt, min: 1, def: "all cores", doc: "How many of the tasks that the stream's steps run in may work at once: of partitions of its sources, or of a stage. It spares memory, or a server that a function asks; no result depends on it. Where several streams begin at a source, the least bound counts."},
		{name: "steps", kind: kindList, required: true, item: stepField(), doc: "What is done with each row, in this order. A step is one operator and its options."},
	}}
}

func stepField() *field {
	return &field{name: "step", kind: kindObject, fields: slices.Concat([]*field{
		{name: "filter", kind: kindExpr, operator: true, example: `filter: dep_delay != nil`, doc: "Keeps the rows for which the expression is true. Null counts as false."},
		{name: "set", kind: kindMap, keys: kindField, item: &field{kind: kindExpr}, operator: true, example: "set:\n  airline: al.name", doc: "Sets fields to the values of expressions, which see the row as it was before the step. The row's other fields stay; an existing field of the same name is replaced."},
		{name: "keep", kind: kindList, item: &field{kind: kindRef}, operator: true, doc: "Drops all fields but these."},
		{name: "drop", kind: kindList, item: &field{kind: kindRef}, operator: true, doc: "Drops these fields."},
		{name: "flat_map", kind: kindMap, keys: kindField, item: &field{kind: kindExpr}, operator: true, example: "flat_map:\n  word: split(lower(value), \" \")", doc: "Makes one row for each element of a list; the element is in the named field, the other fields stay. An empty list gives no row."},
		lookupField(),
		windowField(),
		{name: "group_by", kind: kindList, item: &field{kind: kindRef}, operator: true, doc: "The fields by which the following aggregate groups the rows. Null is a group of its own."},
		{name: "aggregate", kind: kindMap, keys: kindField, item: &field{kind: kindAggregate}, operator: true, example: "aggregate:\n  flights: count()\n  worst: max(dep_delay)", doc: "Keeps the named aggregates of each group in a state. It is the last step of a stream."},
		{name: "state", kind: kindName, of: "aggregate", def: "the stream's name", doc: "The state's name."},
		{name: "emit", kind: kindEnum, of: "aggregate", enum: []string{"closed", "updates"}, def: "closed with windows, updates without", doc: "Which rows the streams that begin at this stream take: `closed`, those of each window once it closes; `updates`, those that a batch changed, with their new values."},
	}, ttlFields("aggregate"), []*field{
		{name: "batch_aggregate", kind: kindMap, keys: kindField, item: &field{kind: kindAggregate}, operator: true, example: "batch_aggregate:\n  n: count()", doc: "Makes one row for each group of what a batch brings, with the group's fields and the named aggregates; the steps behind it work on these rows. What they come to depends on where batches begin and end."},
		{name: "distinct", kind: kindList, item: &field{kind: kindRef}, operator: true, example: "distinct: [user, page]", doc: "Makes one row for each combination of these fields in what a batch brings, with these fields only."},
		joinField(),
		sortField(),
		limitField(),
		peekField(),
		repartitionField(),
	})}
}

func joinField() *field {
	return &field{name: "join", kind: kindObject, operator: true, doc: "Brings the rows together with those of another source or stream that have equal fields: by `within` those whose event times lie at most so far apart, without it those of the same batch. The other row's fields are then `as.field`; where an outer join has none they are null.", fields: []*field{
		{name: "with", kind: kindName, required: true, doc: "The source or stream whose rows are joined to this stream's."},
		{name: "kind", kind: kindEnum, enum: []string{"inner", "left", "right", "full", "anti"}, def: "inner", doc: "Which rows are sent on: `inner`, pairs; `left`, also this stream's rows without a partner; `right`, also the other's; `full`, also both; `anti`, only this stream's rows without a partner."},
		{name: "on", kind: kindMap, keys: kindRef, item: &field{kind: kindRef}, required: true, example: "on: {id: order}", doc: "The fields that must be equal: this stream's, then the other's. Null equals null."},
		{name: "within", kind: kindDuration, def: "none: in the same batch", example: "within: 24h", doc: "How far apart the event times of two rows may lie, in either direction. Rows wait in a state until the watermark has passed their time by this; a row is late, and goes to `_rejected`, if its time lies before the watermark that the batch before left."},
		{name: "as", kind: kindField, def: "none, with `anti`", doc: "The name under which the other row's fields are seen."},
		{name: "late", kind: kindName, def: "none", doc: "With `within`: the name of a stream that late rows of this stream go to, instead of `_rejected`: other streams can begin at it."},
		{name: "late_with", kind: kindName, def: "none", doc: "The same for late rows of the other stream."},
	}}
}

func windowField() *field {
	return &field{name: "window", kind: kindObject, operator: true, doc: "Sorts the rows into windows; the aggregate that follows keeps one row for each window and group. By event time a row is late, and goes to `_rejected`, if no window that it lies in ends after the watermark that the batch before left.", fields: []*field{
		{name: "tumbling", kind: kindDuration, operator: true, min: 1, example: "tumbling: 1h", doc: "Windows of this length, one behind the other. They are aligned to 1970-01-01T00:00:00Z."},
		{name: "sliding", kind: kindDuration, operator: true, min: 1, example: "sliding: 1h", doc: "Windows of this length, of which one begins every so often (`every`)."},
		{name: "session", kind: kindDuration, operator: true, min: 1, example: "session: 30m", doc: "Windows that the rows of a group make: rows less than this far apart belong together. A window begins at its first row's time and ends this long after that of its last."},
		{name: "count", kind: kindInt, operator: true, min: 1, example: "count: 100", doc: "Windows of so many rows of a group, in the order in which they are read."},
		{name: "every", kind: kindString, def: "none", example: "every: 5m", doc: "How often a sliding window begins, a duration; with `count`, every how many rows one does."},
		{name: "offset", kind: kindDuration, def: "0s", doc: "Moves the borders of tumbling and sliding windows."},
		{name: "zone", kind: kindString, def: "UTC", example: "zone: Europe/Berlin", doc: "The time zone whose clocks show the borders of tumbling and sliding windows: days begin at midnight there, and have 23 or 25 hours when the clocks change."},
		{name: "by", kind: kindEnum, enum: []string{"event", "batch"}, def: "event", doc: "The time that tumbling and sliding windows go by: the rows' own (`time` of the source), or the batches' clock, by which nothing is late."},
		{name: "late", kind: kindName, def: "none", doc: "The name of a stream that late rows go to, instead of `_rejected`: other streams can begin at it. For tumbling and sliding windows."},
		{name: "retention", kind: kindDuration, def: "7d", min: 1, doc: "How long a closed window's rows are kept, in batch time; for sessions, in event time."},
	}}
}
