// Package spec reads pipelines from YAML files.
//
// A file that Load accepts runs: every name, type, expression and setting in it has been checked, and nothing in it
// was passed over. A file that it doesn't accept is reported with all of its mistakes, each at its line and column.
// Two files that differ in comments, order of sections or limits of batches only are the same plan, with the same
// text and the same results.
//
// The grammar is a table (grammar.go); parser, reference page and JSON Schema are derived from it. Parse goes from
// text to nodes that fit the table (parse.go), to declarations with names resolved (model.go), to typed steps over
// the columns of each source (check.go, rows.go). A Pipeline's Plan has one task per source (task.go): it decodes
// the fields in use into columns, a block of records at a time, runs the steps of all streams that begin at the
// source over selections of rows (steps.go), and combines what reaches an aggregate by key (leaf.go,
// combine.go).
//
// Results depend on the records' order within a partition and on nothing else: not on how a source cuts its records
// into chunks, nor on the size of a block, nor on which streams share a task.
package spec
