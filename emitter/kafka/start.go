package kafka

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

type startKind uint8

const (
	startEarliest startKind = iota
	startLatest
	startTimestamp
	startCommitted
)

// Start says where partitions without a saved position begin, when the source is opened for the first time. Later
// additions begin at their beginning, whatever Start says. The zero value is Earliest.
type Start struct {
	kind     startKind
	at       time.Time
	fallback startKind // of startCommitted: startEarliest or startLatest
}

// Starts.
var (
	// Earliest is the oldest record that the partition still holds.
	Earliest = Start{}
	// Latest is the end at the moment of the first opening. Records of a transaction that is open then come once
	// it commits.
	Latest = Start{kind: startLatest}
)

// StartAt is the first record with this timestamp or a later one; the end if there is none.
func StartAt(t time.Time) Start { return Start{kind: startTimestamp, at: t} }

// StartCommitted is what the group has committed; fallback, Earliest or Latest, counts for partitions without a
// committed offset.
func StartCommitted(fallback Start) Start {
	return Start{kind: startCommitted, at: fallback.at, fallback: fallback.kind}
}

// ParseStart reads "earliest", "latest", "timestamp:2026-01-31T00:00:00Z" (RFC 3339) or "committed:earliest",
// "committed:latest".
func ParseStart(s string) (Start, error) {
	kind, arg, hasArg := strings.Cut(s, ":")
	switch {
	case s == "earliest":
		return Earliest, nil
	case s == "latest":
		return Latest, nil
	case kind == "timestamp":
		t, err := time.Parse(time.RFC3339Nano, arg)
		if err != nil {
			return Start{}, fmt.Errorf("timestamp %q is not a time like 2026-01-31T00:00:00Z", arg)
		}
		return StartAt(t), nil
	case kind == "committed" && !hasArg:
		return Start{}, errors.New("committed needs a fallback for partitions without an offset: committed:earliest or committed:latest")
	case kind == "committed":
		fallback, err := ParseStart(arg)
		if err == nil && (fallback == Earliest || fallback == Latest) {
			return StartCommitted(fallback), nil
		}
		return Start{}, fmt.Errorf("fallback %q of committed is neither earliest nor latest", arg)
	}
	return Start{}, fmt.Errorf("unknown start %q: earliest, latest, timestamp:TIME or committed:FALLBACK", s)
}

func (s Start) String() string {
	switch s.kind {
	case startLatest:
		return "latest"
	case startTimestamp:
		return "timestamp:" + s.at.UTC().Format(time.RFC3339Nano)
	case startCommitted:
		return "committed:" + Start{kind: s.fallback}.String()
	default:
		return "earliest"
	}
}

func (s Start) validate() error {
	if s.kind == startCommitted && s.fallback != startEarliest && s.fallback != startLatest {
		return errors.New("the fallback of committed must be earliest or latest")
	}
	if s.kind == startTimestamp && s.at.UnixMilli() < 0 {
		return errors.New("a timestamp before 1970")
	}
	return nil
}
