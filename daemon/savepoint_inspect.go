package daemon

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/savepoint"
	"github.com/tridentd/tridentd/state"
)

func (a *app) savepointInspect() *cobra.Command {
	var f savepointFlags
	var format string
	cmd := &cobra.Command{
		Use:   "inspect FILE NAME",
		Short: "Show what a savepoint holds: txid, states, positions, plan, build, size",
		Long: "inspect shows what a savepoint says of itself, without reading its files: verify reads them. With --format json it is\n" +
			"savepoint.json itself, with every file and its checksum.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return a.at(cmd.Context(), &f, args, 1, 1, "the savepoint's name", func(_ *target, place savepoint.Place, rest []string) error {
				info, err := place.Load(cmd.Context(), rest[0])
				if err != nil {
					return savepointError(err)
				}
				return a.printSavepoint(&info, place, format)
			})
		},
	}
	f.add(cmd)
	formatFlag(cmd, &format)
	return cmd
}

var inspectColumns = []state.Column{{Name: "field", Type: "string"}, {Name: "value", Type: "string"}}

func (a *app) printSavepoint(i *savepoint.Info, place savepoint.Place, format string) error {
	if format == formatJSON {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		return enc.Encode(i)
	}
	p := newPrinter(format, a.out)
	if err := p.Begin(i.Txid, inspectColumns); err != nil {
		return err
	}
	rows := [][2]string{
		{"name", i.Name},
		{"place", place.String()},
		{"pipeline", i.Pipeline},
		{"store", i.Identity},
		{"made", madeFor(i)},
		{"created", i.Created.Format(time.RFC3339)},
		{"txid", i.Txid.String()},
		{"epoch", fmt.Sprint(i.Epoch)},
		{"chain", i.Chain},
	}
	if !i.Committed.IsZero() {
		rows = append(rows, [2]string{"committed", i.Committed.Format(time.RFC3339)}, [2]string{"plan", i.Plan}, [2]string{"build", i.Build})
	}
	rows = append(rows, [2]string{"files", fmt.Sprint(len(i.Files))}, [2]string{"bytes", fmt.Sprint(i.Bytes)})
	for _, s := range i.States {
		rows = append(rows, [2]string{"state " + s.State, fmt.Sprintf("%d rows, digest %016x", s.Rows, s.Digest)})
	}
	for _, at := range i.Positions {
		rows = append(rows, [2]string{fmt.Sprintf("position %s %s-%d", at.Source, at.Topic, at.Partition), fmt.Sprint(at.Next)})
	}
	for _, r := range rows {
		if err := p.Row([]value.Value{value.StringOf(r[0]), value.StringOf(r[1])}); err != nil {
			return err
		}
	}
	return p.end()
}
