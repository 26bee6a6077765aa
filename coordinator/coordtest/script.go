// Package coordtest tests coordinators. Script replays events from a text file and compares the actions; World is
// a model of sources, stores and outside participants that breaks in every way it can and checks after each step
// that no guarantee is lost.
package coordtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/coordinator"
)

// Base is the time at which scripts and simulations begin.
var Base = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Script runs the scripts in a file or directory. Its commands, each of which prints the actions that follow:
//
//	new [max_pending=N] [max_commit=N] [interval=D] [timeout=D] [outside] [min=D] [max=D] [attempts=N] [for=D] [seed=N]
//	start [txid=N] [epoch=N] [time=D] [recorded=(N@E.N,time=D,FROM-TO ...)]
//	ready | tick | drain | stop
//	due at=D | due none
//	planned T (FROM-TO) | planned T none         ranges of partition 0 of topic t
//	processed T | recorded T | committed T
//	failed T [kind=permanent] [code=C] [why=text]
//	unknown T
//	aborted [N] | reopened [N] txid=N | reopen-failed [N]
//	wait D                                       the clock moves, nothing is told
//	stats
//
// Times are given and printed as the duration since Base. Answers are those of the latest attempt, planning, abort
// or reopening unless attempt=E.N, plan=N or N says otherwise.
func Script(t *testing.T, path string) {
	datadriven.Walk(t, path, func(t *testing.T, path string) {
		s := &script{now: Base, attempts: map[batch.Txid]batch.Attempt{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.run(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

type script struct {
	m        *coordinator.Machine
	now      time.Time
	attempts map[batch.Txid]batch.Attempt
	plan     uint64
	abort    uint64
	reopen   uint64
}

func (s *script) run(d *datadriven.TestData) (string, error) {
	a := args{d}
	switch d.Cmd {
	case "new":
		return s.create(a)
	case "wait":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		s.now = s.now.Add(by)
		return "", err
	case "stats":
		return s.stats(), nil
	}
	ev, err := s.event(d.Cmd, a)
	if err != nil {
		return "", err
	}
	return s.step(ev), nil
}

func (s *script) create(a args) (string, error) {
	cfg := coordinator.Config{
		MaxPending: int(a.num("max_pending", 0)),
		MaxCommit:  int(a.num("max_commit", 0)),
		Interval:   a.dur("interval"),
		Timeout:    a.dur("timeout"),
		Outside:    a.d.HasArg("outside"),
		Retry:      coordinator.Retry{Min: a.dur("min"), Max: a.dur("max"), Attempts: uint32(a.num("attempts", 0)), For: a.dur("for")},
		Seed:       uint64(a.num("seed", 0)),
	}
	m, err := coordinator.New(cfg)
	if err != nil {
		return err.Error() + "\n", nil
	}
	*s = script{m: m, now: Base, attempts: map[batch.Txid]batch.Attempt{}}
	return "", nil
}

func (s *script) event(cmd string, a args) (coordinator.Event, error) {
	switch cmd {
	case "start":
		ev := coordinator.Start{Txid: batch.Txid(a.num("txid", 0)), Epoch: batch.Epoch(a.num("epoch", 1))}
		if a.d.HasArg("time") {
			ev.Time = Base.Add(a.dur("time"))
		}
		for _, arg := range a.d.CmdArgs {
			if arg.Key != "recorded" {
				continue
			}
			b, err := parseRecorded(arg.Vals)
			if err != nil {
				return nil, err
			}
			ev.Recorded = append(ev.Recorded, b)
		}
		return ev, nil
	case "ready":
		return coordinator.DataReady{}, nil
	case "tick":
		return coordinator.Tick{}, nil
	case "drain":
		return coordinator.Drain{}, nil
	case "stop":
		return coordinator.Stop{}, nil
	case "due":
		if a.d.HasArg("none") {
			return coordinator.Due{}, nil
		}
		return coordinator.Due{At: Base.Add(a.dur("at"))}, nil
	case "aborted":
		return coordinator.Aborted{Abort: a.first(s.abort)}, nil
	case "reopened":
		return coordinator.Reopened{Reopen: a.first(s.reopen), Txid: batch.Txid(a.num("txid", 0))}, nil
	case "reopen-failed":
		return coordinator.ReopenFailed{Reopen: a.first(s.reopen), Err: a.err()}, nil
	}
	id := coordinator.ID{Txid: batch.Txid(a.first(0))}
	id.Attempt = s.attempts[id.Txid]
	if v, ok := a.text("attempt"); ok {
		var err error
		if id.Attempt, err = parseAttempt(v); err != nil {
			return nil, err
		}
	}
	switch cmd {
	case "planned":
		ev := coordinator.Planned{ID: id, Plan: uint64(a.num("plan", int64(s.plan)))}
		if a.d.HasArg("none") {
			return ev, nil
		}
		ev.OK = true
		for _, arg := range a.d.CmdArgs[1:] {
			if strings.Contains(arg.Key, "-") {
				r, err := parseRange(arg.Key)
				if err != nil {
					return nil, err
				}
				ev.Ranges = append(ev.Ranges, r)
			}
		}
		return ev, nil
	case "processed":
		return coordinator.Processed{ID: id}, nil
	case "recorded":
		return coordinator.Recorded{ID: id}, nil
	case "committed":
		return coordinator.Committed{ID: id}, nil
	case "unknown":
		return coordinator.CommitUnknown{ID: id, Err: a.err()}, nil
	case "failed":
		return coordinator.Failed{ID: id, Err: a.err()}, nil
	}
	return nil, fmt.Errorf("unknown command %q", cmd)
}

func (s *script) step(ev coordinator.Event) string {
	var b strings.Builder
	for _, a := range s.m.Step(s.now, ev) {
		switch a := a.(type) {
		case coordinator.Begin:
			s.attempts[a.Batch.Txid], s.plan = a.Batch.Attempt, a.Plan
		case coordinator.Abort:
			s.abort = a.Abort
		case coordinator.Reopen:
			s.reopen = a.Reopen
		}
		fmt.Fprintln(&b, FormatAction(a))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (s *script) stats() string {
	var b strings.Builder
	st := s.m.Stats()
	fmt.Fprintf(&b, "%s epoch=%d committed=%d attempts=%d", st.Mode, st.Epoch, st.Committed, st.Attempts)
	if st.Waiting > 0 {
		fmt.Fprintf(&b, " waiting=%d", st.Waiting)
	}
	if st.Aborting > 0 {
		fmt.Fprintf(&b, " aborting=%d", st.Aborting)
	}
	if st.Reopening {
		b.WriteString(" reopening")
	}
	if !st.BackoffUntil.IsZero() {
		fmt.Fprintf(&b, " backoff_until=%s", since(st.BackoffUntil))
	}
	b.WriteByte('\n')
	for _, f := range st.InFlight {
		fmt.Fprintf(&b, "%s %s time=%s", f.ID, f.Phase, since(f.Time))
		if f.Recorded {
			b.WriteString(" recorded")
		}
		b.WriteByte('\n')
	}
	if f := st.Failing; f != nil {
		fmt.Fprintf(&b, "failing %s %s failures=%d since=%s at=%s: %s %s: %v\n", f.ID, f.Phase, f.Failures, since(f.Since), since(f.At), f.Kind, f.Code, f.Err)
	}
	return b.String()
}

func since(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.Sub(Base).String()
}

// FormatAction prints an action as scripts do.
func FormatAction(a coordinator.Action) string {
	switch a := a.(type) {
	case coordinator.Begin:
		b := fmt.Sprintf("begin %d@%s plan=%d time=%s seed=%016x", a.Batch.Txid, a.Batch.Attempt, a.Plan, since(a.Batch.Time), a.Batch.Seed)
		if a.Recorded {
			b += " recorded" + formatRanges(a.Batch.Ranges)
		}
		return b
	case coordinator.Process:
		return "process " + a.ID.String()
	case coordinator.Record:
		return "record " + a.ID.String()
	case coordinator.Commit:
		return "commit" + formatIDs(a.Batches)
	case coordinator.Abort:
		return fmt.Sprintf("abort #%d%s", a.Abort, formatIDs(a.Batches))
	case coordinator.Success:
		return "success " + a.ID.String()
	case coordinator.Reopen:
		return fmt.Sprintf("reopen #%d", a.Reopen)
	case coordinator.SetTimer:
		return "timer " + since(a.At)
	case coordinator.Stopped:
		if a.Err == nil {
			return "stopped"
		}
		return fmt.Sprintf("stopped: %s: %v", batch.KindOf(a.Err), a.Err)
	}
	panic(fmt.Sprintf("coordtest: unknown action %T", a))
}

func formatIDs(ids []coordinator.ID) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteByte(' ')
		b.WriteString(id.String())
	}
	return b.String()
}

func formatRanges(rs []batch.Range) string {
	var b strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&b, " %s", r)
	}
	return b.String()
}

// args reads the arguments of a command; a malformed one fails the test.
type args struct{ d *datadriven.TestData }

func (a args) text(key string) (string, bool) {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key && len(arg.Vals) > 0 {
			return arg.Vals[0], true
		}
	}
	return "", false
}

func (a args) num(key string, otherwise int64) int64 {
	v, ok := a.text(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s: %s: %v", a.d.Pos, key, err))
	}
	return n
}

func (a args) dur(key string) time.Duration {
	v, ok := a.text(key)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		panic(fmt.Sprintf("%s: %s: %v", a.d.Pos, key, err))
	}
	return d
}

// first is the first argument as a number.
func (a args) first(otherwise uint64) uint64 {
	if len(a.d.CmdArgs) == 0 {
		return otherwise
	}
	if n, err := strconv.ParseUint(a.d.CmdArgs[0].Key, 10, 64); err == nil {
		return n
	}
	return otherwise
}

// err is the error that the arguments kind, code and why describe.
func (a args) err() error {
	kind, code := batch.Transient, batch.CodeUnavailable
	if v, _ := a.text("kind"); v == "permanent" {
		kind, code = batch.Permanent, batch.CodeBadRecord
	}
	if v, ok := a.text("code"); ok {
		code = batch.Code(v)
	}
	why, ok := a.text("why")
	if !ok {
		why = "refused"
	}
	return batch.NewError(kind, code, "", errors.New(why), "")
}

func parseAttempt(s string) (a batch.Attempt, err error) {
	_, err = fmt.Sscanf(s, "%d.%d", &a.Epoch, &a.N)
	return a, err
}

func parseRange(s string) (batch.Range, error) {
	r := batch.Range{Partition: batch.Partition{Source: "s", Topic: "t"}, LeaderEpoch: batch.NoEpoch}
	_, err := fmt.Sscanf(s, "%d-%d", &r.Start, &r.End)
	return r, err
}

// parseRecorded reads a recorded batch: "3@1.2", its clock and its range.
func parseRecorded(vals []string) (batch.Batch, error) {
	var b batch.Batch
	if len(vals) != 3 {
		return b, fmt.Errorf("recorded=(%s): want (T@E.N,CLOCK,FROM-TO)", strings.Join(vals, ","))
	}
	if _, err := fmt.Sscanf(vals[0], "%d@%d.%d", &b.Txid, &b.Attempt.Epoch, &b.Attempt.N); err != nil {
		return b, err
	}
	at, err := time.ParseDuration(vals[1])
	if err != nil {
		return b, err
	}
	r, err := parseRange(vals[2])
	if err != nil {
		return b, err
	}
	b.Time, b.Seed, b.Ranges = Base.Add(at), uint64(b.Txid), []batch.Range{r}
	return b, nil
}
