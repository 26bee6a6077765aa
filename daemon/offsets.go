package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

func (a *app) offsetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offsets",
		Short: "Show, set and pass on where a pipeline stands",
		Long: "The truth about where a pipeline stands lies in its data directory. The consumer group and ZooKeeper show it to others; they\n" +
			"may lag behind and never lead.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command offsets %q; tridentd offsets --help lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.offsetsShowCommand(), a.offsetsResetCommand(), a.offsetsExportCommand(), a.offsetsImportCommand())
	return cmd
}

// errUnconfirmed is what a command that changes something says where nobody can be asked.
var errUnconfirmed = usagef("nothing was changed: say --yes to go on")

// confirm asks on a terminal whether to go on. Where there is none it takes --yes for an answer, and nothing else.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !isatty.IsTerminal(os.Stdin.Fd()) {
		return errUnconfirmed
	}
	return ask(os.Stdin, a.err, question)
}

// ask puts a question. Everything but yes is a no.
func ask(in io.Reader, out io.Writer, question string) error {
	fmt.Fprintf(out, "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return &exitError{exitFailed, errors.New("nothing was changed")}
}
