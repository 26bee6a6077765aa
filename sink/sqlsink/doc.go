// Package sqlsink writes a pipeline's output to a table of a SQL database: PostgreSQL or SQLite. The rows of a batch and the sink's
// progress are written in one transaction, so that the table holds each batch whole and once.
//
// The progress is a row of the table tridentd_sinks, beside the table that is written: pipeline, sink, txid, epoch and chain. It is only
// written where it still says what this process last read or wrote, so that a former master changes nothing. Where the outcome of a
// COMMIT is unknown, a claim ends that transaction if it is still open, waits for its end, and reads the row.
//
// PostgreSQL: the rows are sent before the batch is decided, in a transaction that holds an advisory lock of the sink's name. Whoever
// claims the sink ends the server process of a transaction that holds it. SQLite, which has no server that could end anything: the
// rows are written and taken back to see that the table takes them, and written again with the progress when the batch is decided; a
// process that is stopped by the system just then holds the database until it goes on or ends.
package sqlsink
