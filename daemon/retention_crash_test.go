//go:build crash

package daemon_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// TestKillWhileTrimming kills a process again and again that keeps its ledger within a small bound, so that each start makes a base
// and trims: the totals are exact, what the ledger holds can be replayed to the present, and neither it nor the disk grows.
func TestKillWhileTrimming(t *testing.T) {
	t.Parallel()
	const bound = 40
	s := newSaving(t, 160_000, 20_000, fmt.Sprintf("ledger: {changes: keep, retention: {batches: %d}}", bound))
	var first, ends, trimmed, kills int
	for _, done := progressOf(t, s.store("data")); done < s.lines*9/10 && kills < 3*s.kills; _, done = progressOf(t, s.store("data")) {
		kills++
		cmd := start(t, s.bin, s.file, s.data("data"))
		if !awaitCommit(t, s.store("data"), batch.Txid(ends)) {
			t.Fatal("it doesn't start")
		}
		// The passes come with the start and every few seconds.
		time.Sleep(time.Duration(s.rng.IntN(250)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // it was killed
		was := first
		if first, ends = s.ledgerOf("data"); first > was {
			trimmed++
		}
		if first < was {
			t.Errorf("the ledger begins at txid %d, it did at %d", first, was)
		}
		if s.rng.IntN(3) == 0 {
			s.do("replay", s.file, "--data", s.data("data"), "--verify", "--procs", fmt.Sprint(1+s.rng.IntN(4)))
		}
	}
	disk := s.disk("data") // behind many short runs; a long one leaves a base with the tables that it was made with
	t.Logf("killed until txid %d", ends)
	s.finish("data")
	s.same("data")
	for range 2 { // a pass at each start
		s.finish("data")
	}
	first, ends = s.ledgerOf("data")
	if n := ends - first + 1; n > bound || first == 1 {
		t.Errorf("the ledger holds txids %d to %d; its bound is %d", first, ends, bound)
	}
	db := openStore(t, s.store("data"), true)
	bases, err := db.Bases()
	if err != nil || len(bases) == 0 || len(bases) > 2 {
		t.Errorf("%d bases, %v", len(bases), err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	unbounded := s.disk("undisturbed")
	if limit := int64(2 << 20); disk > limit {
		t.Errorf("the directory takes %d bytes of the disk, more than %d", disk, limit)
	}
	if trimmed < kills/3 {
		t.Errorf("only %d of %d rounds trimmed the ledger", trimmed, kills)
	}
	t.Logf("%d kills, %d of them behind a trimming: the ledger holds %d to %d; %d bytes on the disk (undisturbed: %d)", kills, trimmed, first, ends, disk, unbounded)
}

// ledgerOf checks that the ledger in a directory has no gap, and returns its ends.
func (s *saving) ledgerOf(name string) (first, last int) {
	s.t.Helper()
	db := openStore(s.t, s.store(name), true)
	defer db.Close() //nolint:errcheck // nothing was written
	from, to := db.Ledger()
	next := from
	for e, err := range db.Store().Entries(s.t.Context(), 1, 0) {
		if err != nil || e.Txid != next {
			s.t.Fatalf("entry %d where %d is due: %v", e.Txid, next, err)
		}
		next++
	}
	if to > 0 && next != to+1 {
		s.t.Fatalf("the ledger ends at %d, not at %d", next-1, to)
	}
	return int(from), int(to)
}

// disk is what a store takes of the disk, each file once, without its write-ahead logs, which are as long as they were made.
func (s *saving) disk(name string) (total int64) {
	s.t.Helper()
	seen := map[uint64]bool{}
	err := filepath.WalkDir(s.store(name), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(d.Name()) == ".log" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); !seen[st.Ino] {
			seen[st.Ino] = true
			total += st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return total
}
