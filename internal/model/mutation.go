package model

// Mutation is a deliberate fault of the model. That the comparison finds each shows that it would find one of the engine.
type Mutation uint8

// The mutations.
const (
	Right              Mutation = iota // none
	TasksBackwards                     // partitions are worked on in the wrong order
	WatermarkOfOne                     // only the first partition of a source counts
	BadInSilence                       // bad records leave no trace
	OpenAtEnd                          // a window is still open when the watermark has just reached its end
	ResultsAreLate                     // results of windows can be late
	EndIncluded                        // a window holds its end
	GapIncluded                        // values exactly a gap apart are of one session
	SessionsTakeAll                    // nothing is late for a session
	NumbersBegin                       // windows of values are counted anew in each batch
	NeverCloses                        // windows of time are never forgotten
	JoinBySides                        // combinations come in the order of the first side
	FirstIsLatest                      // a table keeps the first value of a batch
	NoneIsAlone                        // a value without a partner is forgotten
	NothingFound                       // queries find no aggregate
	RowsLiveOn                         // rows never expire
	ChangesDontCount                   // a row expires by what has made it
	LastOfEquals                       // of equal values the last is the extreme
	TableIsEmpty                       // lookups find nothing in static tables
	OutputByClock                      // records for sinks have the batch's clock for a timestamp
	QueriesFindNothing                 // query streams find nothing in states
	LastPass                           // a limit lets the last pass
	Mutations
)
