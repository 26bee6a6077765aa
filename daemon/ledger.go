package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/pebblestate"
	"github.com/tridentd/tridentd/server"
)

func (a *app) ledgerCommand() *cobra.Command {
	var data, format string
	var from, to uint64
	var filter ledgerFilter
	var txid uint64
	var follow, wide bool
	cmd := &cobra.Command{
		Use:   "ledger FILE",
		Short: "List the committed batches",
		Long: "ledger lists the committed batches: txid, when it committed, how many records it read, its offset ranges, the digest\n" +
			"that it left (over all batches so far) and how long it took. --wide adds all else that an entry has but for topic ids and\n" +
			"times by partition; --txid shows one entry whole. JSON and CSV always have everything, CSV one line for each range.",
		Example: "  tridentd ledger orders.yaml --from 1200\n  tridentd ledger orders.yaml --txid 1234\n" +
			"  tridentd ledger orders.yaml --offset orders-3:123456\n  tridentd ledger orders.yaml -f",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if to != 0 && to < from {
				return usagef("--to %d is below --from %d", to, from)
			}
			if err := filter.check(); err != nil {
				return err
			}
			one := cmd.Flags().Changed("txid")
			if one {
				switch {
				case follow || cmd.Flags().Changed("from") || to != 0 || filter.set():
					return usagef("--txid names one batch: leave the other choices out")
				case txid == 0:
					return usagef("--txid 0: the first batch is 1")
				}
				from, to = txid, txid
			}
			if follow && to != 0 {
				return usagef("--follow has no end: leave --to out")
			}
			dir, rest, err := a.dataDir(args, data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			p := newLedgerPrinter(format, a.out, wide, one)
			first, shown := batch.Txid(0), false
			last := batch.Txid(max(from, 1)) - 1
			emit := func(e server.LedgerEntry) error {
				last = e.Txid
				if first == 0 {
					first = e.Txid
				}
				if !filter.takes(&e) {
					return nil
				}
				shown = true
				return p.entry(e)
			}
			if follow {
				err = followLedger(cmd.Context(), dir, last, emit, p.flush)
			} else {
				err = ledgerDir(cmd.Context(), dir, batch.Txid(from), batch.Txid(to), emit)
			}
			if err != nil {
				return queryError(err)
			}
			if one && !shown {
				return a.noEntry(cmd.Context(), dir, batch.Txid(txid))
			}
			if whole := !cmd.Flags().Changed("from") && to == 0 && filter.since == "" && filter.until == ""; filter.offset != "" && !shown && whole && !follow {
				if err := filter.noBatch(first); err != nil {
					return err
				}
			}
			if asked := cmd.Flags().Changed("from") || filter.set() && !shown; asked && first > batch.Txid(max(from, 1)) {
				fmt.Fprintf(a.err, "the ledger begins at txid %d: what lies before has been trimmed\n", first)
			}
			if by := filter.skipped; !shown && by != 0 {
				fmt.Fprintf(a.err, "no batch took %s: txid %d skipped it (offsets reset or import)\n", filter.offset, by)
			}
			return p.end()
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	cmd.Flags().Uint64Var(&from, "from", 1, "first txid")
	cmd.Flags().Uint64Var(&to, "to", 0, "last txid (default: the last committed)")
	cmd.Flags().Uint64Var(&txid, "txid", 0, "only this txid, in the table as one field a line")
	cmd.Flags().BoolVarP(&wide, "wide", "w", false, "more columns in the table")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what the running daemon commits, until Ctrl-C")
	filter.add(cmd)
	return cmd
}

// noEntry says why the ledger has no entry of a txid.
func (a *app) noEntry(ctx context.Context, dir string, txid batch.Txid) error {
	var first batch.Txid
	found := errors.New("found")
	err := ledgerDir(ctx, dir, 1, 0, func(e server.LedgerEntry) error {
		first = e.Txid
		return found
	})
	switch {
	case err != nil && !errors.Is(err, found):
		return queryError(err)
	case first > txid:
		return fmt.Errorf("txid %d has been trimmed: the ledger begins at txid %d", txid, first)
	}
	return usagef("txid %d isn't committed", txid)
}

func ledgerDir(ctx context.Context, dir string, from, to batch.Txid, emit func(server.LedgerEntry) error) error {
	return askOrRead(ctx, dir, func(c *server.Client) error {
		return c.Ledger(ctx, from, to, emit)
	}, func(db *pebblestate.DB) error {
		for e, err := range db.Store().Entries(ctx, from, to) {
			if err != nil {
				return err
			}
			if err := emit(server.LedgerEntryOf(&e)); err != nil {
				return err
			}
		}
		return nil
	})
}
