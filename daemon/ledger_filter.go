package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/server"
)

// ledgerFilter chooses ledger entries.
type ledgerFilter struct {
	offset, since, until string // as given

	topic      string // empty: whichever
	partition  int32
	at         int64
	begin, end time.Time // of commits; zero: no bound

	skipped batch.Txid // the reset that skipped the record which was asked for
	read    bool       // some entry is of the partition that was asked for
	from    int64      // where the first of them begins
	next    int64      // where the last of them ends
}

// set tells whether anything is to be left out.
func (f *ledgerFilter) set() bool { return f.offset != "" || f.since != "" || f.until != "" }

func (f *ledgerFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.offset, "offset", "", "only the batch that took this record: TOPIC-PARTITION:OFFSET")
	cmd.Flags().StringVar(&f.since, "since", "", "only batches that committed at this time or later (RFC 3339)")
	cmd.Flags().StringVar(&f.until, "until", "", "only batches that committed before this time (RFC 3339)")
}

// check reads what was given.
func (f *ledgerFilter) check() error {
	for _, b := range []struct {
		flag, text string
		to         *time.Time
	}{{"--since", f.since, &f.begin}, {"--until", f.until, &f.end}} {
		if b.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, b.text)
		if err != nil {
			return usagef("%s %q isn't a time such as 2026-12-01T10:00:00Z", b.flag, b.text)
		}
		*b.to = at
	}
	if f.offset == "" {
		return nil
	}
	bad := usagef("--offset %q isn't TOPIC-PARTITION:OFFSET, such as orders-3:123456", f.offset)
	colon := strings.LastIndexByte(f.offset, ':')
	if colon < 0 {
		return bad
	}
	dash := strings.LastIndexByte(f.offset[:colon], '-')
	if dash <= 0 {
		return bad
	}
	n, err := strconv.ParseInt(f.offset[dash+1:colon], 10, 32)
	at, err2 := strconv.ParseInt(f.offset[colon+1:], 10, 64)
	if err != nil || err2 != nil || n < 0 || at < 0 {
		return bad
	}
	f.topic, f.partition, f.at = f.offset[:dash], int32(n), at
	return nil
}

// takes tells whether an entry is wanted.
func (f *ledgerFilter) takes(e *server.LedgerEntry) bool {
	for i := range e.Ranges {
		if r := &e.Ranges[i]; f.topic != "" && r.Topic == f.topic && r.Partition == f.partition {
			if !f.read {
				f.read, f.from = true, r.Start
			}
			f.next = r.End
		}
	}
	if !f.begin.IsZero() && e.Committed.Before(f.begin) || !f.end.IsZero() && !e.Committed.Before(f.end) {
		return false
	}
	if f.topic == "" {
		return true
	}
	for i := range e.Ranges {
		r := &e.Ranges[i]
		if r.Topic != f.topic || r.Partition != f.partition || f.at < r.Start || r.End <= f.at {
			continue
		}
		if kindOf(e) == "batch" {
			return true
		}
		f.skipped = e.Txid // it moved the position over the record
	}
	return false
}

// noBatch says why no batch of a whole ledger, which begins at txid first, took the record that was asked for.
func (f *ledgerFilter) noBatch(first batch.Txid) error {
	switch {
	case f.skipped != 0:
		return nil // which is told
	case first > 1 && (!f.read || f.at < f.from):
		return fmt.Errorf("the batch that took %s may have been trimmed: the ledger begins at txid %d", f.offset, first)
	case !f.read:
		return usagef("no batch has read %s-%d", f.topic, f.partition)
	case f.at < f.from:
		return usagef("no batch took %s: %s-%d was read from offset %d on", f.offset, f.topic, f.partition, f.from)
	case f.at >= f.next:
		return usagef("no batch has taken %s so far: %s-%d is read up to before offset %d", f.offset, f.topic, f.partition, f.next)
	}
	return nil
}

// followEvery is how often a ledger that is followed is asked for.
const followEvery = 250 * time.Millisecond

// follow prints the entries that a running daemon adds, until ctx or the daemon ends.
func followLedger(ctx context.Context, dir string, after batch.Txid, emit func(server.LedgerEntry) error, flush func() error) error {
	client, err := server.Dial(dir)
	if errors.Is(err, server.ErrNotRunning) {
		return usagef("%s: no daemon is running there: nothing is added to the ledger", dir)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		err := client.Ledger(ctx, after+1, 0, func(e server.LedgerEntry) error {
			after = e.Txid
			return emit(e)
		})
		switch {
		case ctx.Err() != nil || errors.Is(err, server.ErrNotRunning):
			return flush()
		case err != nil:
			return err
		}
		if err := flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
	}
}
