package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/txstate"
)

// Below these bounds of free space a device is spoken of. Compactions need room for a while that they give back.
const (
	littleSpace = 1 << 30
	noSpace     = 64 << 20
)

// store is what a data directory tells.
type store struct {
	findings  []doctor.Finding
	positions []batch.Position // nil: there is no store
	running   bool
	standing  *txstate.Standing // what a record elsewhere is held against; nil where it can't be told, or moves
}

// checkStore looks at a data directory: by the daemon that works in it, if there is one.
func checkStore(ctx context.Context, t *target) store {
	subject := "data " + t.dir
	client, err := server.Dial(t.dir)
	if err == nil {
		defer client.Close()
		st, err := client.Status(ctx)
		if err != nil {
			return store{findings: []doctor.Finding{doctor.Of(subject, fmt.Errorf("a process works in it, and doesn't answer: %w", err))}, running: true}
		}
		return runningStore(subject, &st)
	}
	if !pebblestate.Exists(t.dir) {
		return store{findings: []doctor.Finding{newStore(subject, t.dir)}, standing: &txstate.Standing{Empty: true}}
	}
	if !errors.Is(err, server.ErrNotRunning) {
		return store{findings: []doctor.Finding{doctor.Of(subject, err)}}
	}
	return storeAtRest(ctx, t, subject)
}

func storeAtRest(ctx context.Context, t *target, subject string) store {
	db, err := openAtRest(ctx, t.dir)
	if err != nil {
		return store{findings: []doctor.Finding{doctor.Of(subject, err)}}
	}
	defer db.Close() //nolint:errcheck // nothing was written
	if p := db.Pipeline(); p != t.pipeline.Name() {
		return store{findings: []doctor.Finding{{
			Level: doctor.Error, Subject: subject, Code: batch.CodeStoreForeign, Text: fmt.Sprintf("belongs to pipeline %s", p), Remedy: "give each pipeline a name of its own",
		}}}
	}
	snap, err := db.Store().Load(ctx)
	if err != nil {
		return store{findings: []doctor.Finding{doctor.Of(subject, err)}}
	}
	id, err := db.Identity(ctx)
	if err != nil {
		return store{findings: []doctor.Finding{doctor.Of(subject, err)}}
	}
	s := store{positions: []batch.Position{}, standing: &txstate.Standing{
		Store: id, Empty: snap.Txid == 0 && len(snap.Positions) == 0 && len(snap.Recorded) == 0,
		Txid: snap.Txid, Chain: snap.Chain, Epoch: snap.Epoch, Positions: snap.Positions,
		ChainAt: func(ctx context.Context, txid batch.Txid) (uint64, bool, error) { return chainAt(ctx, t.dir, txid) },
	}}
	for _, p := range snap.Positions {
		s.positions = append(s.positions, p.Position)
	}
	f := doctor.Finding{Subject: subject, Text: fmt.Sprintf("opens, at rest, committed txid %d", snap.Txid)}
	if err := mayWrite(t.dir); err != nil {
		f.Level, f.Code, f.Text, f.Remedy = doctor.Error, doctor.CodeNotWritable, "can't be written to: "+reason(err), "give this user the right to write there"
	}
	s.findings = append(s.findings, f)
	return s
}

// chainAt reads one entry's chain from the ledger. It opens the store anew, as nobody is to be kept from it meanwhile.
func chainAt(ctx context.Context, dir string, txid batch.Txid) (chain uint64, ok bool, err error) {
	db, err := openAtRest(ctx, dir)
	if err != nil {
		return 0, false, err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	for e, err := range db.Store().Entries(ctx, txid, txid) {
		return e.Chain, err == nil, err
	}
	return 0, false, nil
}

// runningStore is what the daemon says of itself.
func runningStore(subject string, st *server.Status) store {
	s := store{running: true, positions: []batch.Position{}}
	f := doctor.Finding{Subject: subject, Text: fmt.Sprintf("process %d works in it, committed txid %d", st.PID, st.Committed)}
	if !st.Ready {
		f.Level, f.Code = doctor.Warn, batch.CodeUnavailable
		f.Text += "; not ready: " + strings.Join(st.Reasons, "; ")
		f.Remedy = "see tridentd status, and what is said below"
		if st.Failing {
			f.Level = doctor.Error
		}
	}
	if e := st.LastError; e != nil && !st.Ready {
		f.Code = batch.Code(e.Code)
	}
	s.findings = append(s.findings, f)
	for _, m := range st.Mirrors {
		if m.Error != nil {
			s.findings = append(s.findings, doctor.Finding{
				Level: doctor.Warn, Subject: m.Name, Code: batch.Code(m.Error.Code), Text: "not up to date: " + m.Error.Message, Remedy: m.Error.Remedy,
			})
		}
	}
	for _, p := range st.Partitions {
		if p.Committed >= 0 {
			id := batch.Partition{Source: p.Source, Topic: p.Topic, Number: p.Partition}
			s.positions = append(s.positions, batch.Position{Partition: id, Next: p.Committed, LeaderEpoch: batch.NoEpoch})
		}
	}
	return s
}

// newStore tells whether the first run will be able to make the directory.
func newStore(subject, dir string) doctor.Finding {
	f := doctor.Finding{Subject: subject, Text: "nothing yet: the first run makes it"}
	parent := existing(dir)
	info, err := os.Stat(parent)
	switch {
	case err != nil:
	case !info.IsDir():
		err = errors.New("isn't a directory")
	default:
		err = mayWrite(parent)
	}
	if err != nil {
		f.Level, f.Code, f.Text, f.Remedy = doctor.Error, doctor.CodeNotWritable, "can't be made: "+parent+": "+reason(err), "give this user the right to write there, or name another --data"
	}
	return f
}

// existing is the nearest directory above that is there.
func existing(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "."
	}
	for {
		if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// checkSpace looks at the device that holds the data.
func checkSpace(dir string) []doctor.Finding {
	free, size, known := spaceOf(existing(dir))
	if !known {
		return nil
	}
	return []doctor.Finding{spaceFinding(free, size)}
}

func spaceFinding(free, size uint64) doctor.Finding {
	f := doctor.Finding{Subject: "disk", Text: fmt.Sprintf("%s of %s free", doctor.Bytes(clamp(free)), doctor.Bytes(clamp(size)))}
	if free < littleSpace {
		f.Level, f.Code, f.Remedy = doctor.Warn, doctor.CodeSpace, "free some space, or name a --data on another device"
		if free < noSpace {
			f.Level = doctor.Error
		}
	}
	return f
}

func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// checkMemory compares what a run may use with what the pipeline's batches may hold.
func checkMemory(own int64, limits plan.Limits) []doctor.Finding {
	limit := cmp.Or(own, defaultMemoryLimit())
	if limit == 0 {
		return nil
	}
	flight := cmp.Or(limits.MaxBytes, plan.DefaultMaxBytes)
	room := engine.BytesInFlight(limit, limits.MaxBytes)
	f := doctor.Finding{Subject: "memory", Text: fmt.Sprintf("a run may use %s, of which %s for batches in flight", doctor.Bytes(limit), doctor.Bytes(room))}
	if room < flight {
		f.Level, f.Code = doctor.Warn, doctor.CodeMemory
		f.Text += fmt.Sprintf(": less than the %s of batch.max_bytes", doctor.Bytes(flight))
		f.Remedy = "lower batch.max_bytes, or raise memory_limit"
	}
	return []doctor.Finding{f}
}
