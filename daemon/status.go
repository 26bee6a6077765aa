package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/state"
)

func (a *app) statusCommand() *cobra.Command {
	var data, format string
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Show where a running pipeline stands",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			dir, rest, err := a.dataDir(args, data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			client, err := server.Dial(dir)
			if errors.Is(err, server.ErrNotRunning) {
				return fmt.Errorf("%s: no daemon is running there; tridentd ledger and query read it at rest", dir)
			}
			if err != nil {
				return err
			}
			defer client.Close()
			st, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			return a.printStatus(&st, format)
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	return cmd
}

var statusColumns = []state.Column{
	{Name: "source", Type: "string"},
	{Name: "topic", Type: "string"},
	{Name: "partition", Type: "int"},
	{Name: "committed", Type: "int"},
	{Name: "end", Type: "int"},
	{Name: "lag", Type: "int"},
	{Name: "note", Type: "string"},
}

func (a *app) printStatus(st *server.Status, format string) error {
	if format == formatJSON {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		return enc.Encode(st)
	}
	if format == formatTable {
		ready := "ready"
		if !st.Ready {
			ready = "not ready: " + strings.Join(st.Reasons, "; ")
		}
		fmt.Fprintf(a.out, "pipeline %s  pid %d  up %s  epoch %d  committed txid %d  in flight %d\n%s\n",
			st.Pipeline, st.PID, time.Duration(st.Uptime*float64(time.Second)).Round(time.Second), st.Epoch, st.Committed, len(st.InFlight), ready)
		if e := st.LastError; e != nil {
			fmt.Fprintf(a.out, "last error (%s, %s, since %s): %s\n", e.Kind, e.Code, e.Since.Format(time.RFC3339), e.Message)
		}
		if st.Role != "" {
			fmt.Fprintf(a.out, "role: %s\n", st.Role)
		}
		for _, m := range st.Mirrors {
			fmt.Fprintf(a.out, "%s: written up to txid %d\n", m.Name, m.Txid)
			if e := m.Error; e != nil {
				fmt.Fprintf(a.out, "  not up to date (%s, since %s): %s", e.Code, e.Since.Format(time.RFC3339), e.Message)
				if e.Remedy != "" {
					fmt.Fprintf(a.out, " (%s)", e.Remedy)
				}
				fmt.Fprintln(a.out)
			}
		}
	}
	if format == formatTable {
		for _, k := range st.Sinks {
			fmt.Fprintf(a.out, "sink %s: %d records up to txid %d (%s)\n", k.Name, k.Records, k.Txid, k.Target)
		}
	}
	if format == formatTable && st.Savepoints != nil {
		a.printSavepointStatus(st.Savepoints)
	}
	if l := st.Ledger; format == formatTable && l != nil {
		fmt.Fprintf(a.out, "ledger from txid %d on: %s bytes\n", l.First, grouped(l.Bytes))
		if l.HeldFor != "" {
			fmt.Fprintf(a.out, "  more than its bounds allow, for savepoint %s\n", l.HeldFor)
		}
	}
	p := newPrinter(format, a.out)
	if err := p.Begin(st.Committed, statusColumns); err != nil {
		return err
	}
	known := func(n int64) value.Value {
		if n < 0 {
			return value.NullValue()
		}
		return value.IntOf(n)
	}
	for _, s := range st.Partitions {
		note := s.Error
		if note == "" && s.LogEnd > s.End && s.End >= 0 {
			note = fmt.Sprintf("held back by an open transaction: the log ends at %d", s.LogEnd)
		}
		err := p.Row([]value.Value{
			value.StringOf(s.Source), value.StringOf(s.Topic), value.IntOf(int64(s.Partition)),
			known(s.Committed), known(s.End), known(s.Lag), noted(note),
		})
		if err != nil {
			return err
		}
	}
	return p.end()
}

func (a *app) printSavepointStatus(s *server.SavepointStatus) {
	last := "none yet"
	if s.Name != "" {
		last = fmt.Sprintf("last %s, %s bytes", s.Name, grouped(s.Bytes))
	}
	fmt.Fprintf(a.out, "savepoints in %s: %s\n", s.Place, last)
	if e := s.Error; e != nil {
		fmt.Fprintf(a.out, "  one is due and can't be made (%s, since %s): %s", e.Code, e.Since.Format(time.RFC3339), e.Message)
		if e.Remedy != "" {
			fmt.Fprintf(a.out, " (%s)", e.Remedy)
		}
		fmt.Fprintln(a.out)
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  atMost(0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.out, "tridentd %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is the module's version, or the commit it was built from.
func version() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := bi.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" {
				v += " " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return v
}
