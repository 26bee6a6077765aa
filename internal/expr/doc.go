// Package expr compiles the expressions of declared pipelines to loops over columns.
//
// An expression is a pure function of its row, of Batch.Time and of Batch.Rand: the same records give the same
// values and the same errors on any machine. No clock, locale, time zone or map order is within its reach; an
// integer result that doesn't fit 64 bits is an error of its row and never wraps.
//
// The grammar is that of github.com/expr-lang/expr, which does the parsing; types, meaning and execution are this
// package's own (docs/reference/expressions.md is the reference). Parse and Check report all mistakes with their
// byte offsets. Compile makes a Program, which is evaluated for a selection of the rows of a vec.Rows; what goes
// wrong at a row makes the row's value null and is told in Context.Errs.
//
// The caller's duties: a Program keeps its scratch memory, so each task has programs of its own; what Eval
// returned may refer to that memory and is good until the next Eval of the same Program.
package expr
