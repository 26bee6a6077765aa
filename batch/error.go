package batch

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind says what a failure means for the pipeline.
type Kind uint8

const (
	// Transient failures (a server away, a time-out, a lost leader) are tried again after a back-off.
	Transient Kind = iota
	// Permanent failures stop the pipeline at once; nothing is tried again in silence.
	Permanent
)

func (k Kind) String() string {
	if k == Permanent {
		return "permanent"
	}
	return "transient"
}

// Code names a cause in metrics, logs and tests. Codes are stable.
type Code string

const (
	CodeUnavailable   Code = "unavailable"     // a server can't be reached or has no leader
	CodeTimeout       Code = "timeout"         // no answer in time
	CodeUnauthorized  Code = "unauthorized"    // authentication or permission refused
	CodeBadRecord     Code = "bad_record"      // a record can't be decoded, or a function failed on it
	CodeUnreplayable  Code = "unreplayable"    // a recorded range can't be read again as it was
	CodeOutOfRange    Code = "out_of_range"    // the saved position lies outside what the source still holds
	CodeTopicChanged  Code = "topic_changed"   // a topic was deleted and made again under its name
	CodeTopicMissing  Code = "topic_missing"   // a topic doesn't exist
	CodeLogTruncated  Code = "log_truncated"   // the log was cut back below the saved position
	CodeFileChanged   Code = "file_changed"    // a file's content below the saved position differs
	CodeFileMissing   Code = "file_missing"    // a file that is named or being read doesn't exist
	CodeFileDamaged   Code = "file_damaged"    // a compressed file ends early or is garbled
	CodeOverflow      Code = "overflow"        // a number left the range of its type
	CodeUserError     Code = "user_error"      // a user's function returned an error or panicked outside a record
	CodeStoreDamaged  Code = "store_damaged"   // a database file is damaged or missing
	CodeStoreFull     Code = "store_full"      // no space left on the device
	CodeStoreInUse    Code = "store_in_use"    // another process works in the directory
	CodeStoreForeign  Code = "store_foreign"   // the directory belongs to another pipeline or plan
	CodePlanChanged   Code = "plan_changed"    // the pipeline differs from the one that made the store in a way that its states don't go with
	CodeStoreMissing  Code = "store_missing"   // the directory is empty, a mirror says that the pipeline has run
	CodeConfiguration Code = "configuration"   // a setting is wrong
	CodeBatchTooLarge Code = "batch_too_large" // a batch exceeds a limit of a store
	CodeInternal      Code = "internal"        // a broken invariant of the engine itself

	CodeSinkAhead   Code = "sink_ahead"   // a sink's target holds a batch that the store has not committed, nor recorded
	CodeSinkBehind  Code = "sink_behind"  // a sink's target doesn't hold what the store says that it was given
	CodeSinkDiffers Code = "sink_differs" // a sink's target holds another output of a batch than the one at hand
	CodeDeadLetters Code = "dead_letters" // more bad records than the dead letters' limit lets pass
	CodeDeposed     Code = "deposed"      // a sink's target was claimed by a later run of the pipeline

	CodeNotDeterministic Code = "not_deterministic" // a batch that was computed twice came to two results
)

// Codes of what keeps a consumer group from showing the committed offsets. None of them touches a result.
const (
	CodeGroupMembers     Code = "group_members"     // the group has members, so that offsets are taken from them only
	CodeGroupCoordinator Code = "group_coordinator" // the group's coordinator has moved, is loading or isn't there
	CodeGroupLost        Code = "group_lost"        // offsets that were written are gone: the group expired or was deleted
	CodeGroupForeign     Code = "group_foreign"     // somebody else commits offsets to the group
	CodeGroupAhead       Code = "group_ahead"       // the group is ahead of the store
)

// Codes of what keeps ZooKeeper from taking the master's record, or its lock from being held. One code, one cause: docs/reference/zookeeper.md
// has a table of them.
const (
	CodeZKNoQuorum   Code = "zk_no_quorum"       // servers answer, but too few of the ensemble's to serve
	CodeZKRefused    Code = "zk_refused"         // nothing listens at the addresses
	CodeZKCut        Code = "zk_cut"             // connections are lost, or can't be made: the network is cut
	CodeZKNoAnswer   Code = "zk_no_answer"       // a server takes connections, and doesn't answer
	CodeZKOverloaded Code = "zk_overloaded"      // answers are slow, or the server throttles
	CodeZKNotZK      Code = "zk_not_zookeeper"   // something else answers at the address
	CodeZKUnresolved Code = "zk_unresolved"      // a host name isn't known
	CodeZKNoChroot   Code = "zk_no_chroot"       // the chroot doesn't exist and can't be made
	CodeZKNoAuth     Code = "zk_no_auth"         // the credentials were refused
	CodeZKNoRights   Code = "zk_no_permission"   // the ACL of a node doesn't let us
	CodeZKExpired    Code = "zk_session_expired" // the session has ended, with all that hung on it
	CodeZKTooLarge   Code = "zk_too_large"       // more than the server takes in one request (jute.maxbuffer)
	CodeZKVersion    Code = "zk_version"         // the server is too old, or known for a fault
	CodeZKEnsemble   Code = "zk_ensemble"        // a single server, or an even number: a warning about what it survives

	CodeRecordAhead   Code = "record_ahead"   // the record is ahead of the store
	CodeRecordGarbled Code = "record_garbled" // the record can't be read
	CodeRecordForeign Code = "record_foreign" // the record is somebody else's, or is written by somebody else
	CodeLockHeld      Code = "lock_held"      // another process holds the lock
	CodeLockLost      Code = "lock_lost"      // the lock was held, and has been lost
)

// NoOffset is the Offset of an error that concerns no single record.
const NoOffset int64 = -1

// Error is a failure with all that is known of its place. Fields that don't apply are left at zero (Offset at
// NoOffset).
type Error struct {
	Kind      Kind
	Code      Code
	Op        string // what was being done: "read", "decode", "commit", or a step's name
	Pipeline  string
	Txid      Txid
	Partition Partition
	Offset    int64
	Err       error  // the cause
	Remedy    string // what to do, as an imperative sentence; may be empty
}

// NewError returns an error that concerns no partition and no record.
func NewError(kind Kind, code Code, op string, err error, remedy string) *Error {
	return &Error{Kind: kind, Code: code, Op: op, Offset: NoOffset, Err: err, Remedy: remedy}
}

// At returns a copy that names a partition and an offset (or NoOffset).
func (e *Error) At(p Partition, offset int64) *Error {
	c := *e
	c.Partition, c.Offset = p, offset
	return &c
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Pipeline != "" {
		fmt.Fprintf(&b, "pipeline %s: ", e.Pipeline)
	}
	if e.Txid != 0 {
		fmt.Fprintf(&b, "txid %d: ", e.Txid)
	}
	if e.Partition != (Partition{}) {
		fmt.Fprintf(&b, "%s", e.Partition)
		if e.Offset >= 0 {
			fmt.Fprintf(&b, " offset %d", e.Offset)
		}
		b.WriteString(": ")
	}
	if e.Op != "" {
		fmt.Fprintf(&b, "%s: ", e.Op)
	}
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	} else {
		b.WriteString(string(e.Code))
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, " (%s)", e.Remedy)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf tells what err means for the pipeline: the Kind of the outermost *Error in its chain. An error that
// says nothing about itself is transient: stopping for good needs a reason.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Transient
}

// CodeOf returns the Code of the outermost *Error in err's chain, CodeTimeout for a deadline, and
// CodeUnavailable for anything else.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return CodeTimeout
	}
	return CodeUnavailable
}
