package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/server"
)

// runFlags are the settings of run.
type runFlags struct {
	data      string
	until     string
	listen    string
	onStop    string
	logLevel  string
	logFormat string
	procs     int
	fresh     bool
}

// The least that a stop leaves to whatever hangs, all in all.
const hardStop = 18 * time.Second

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a pipeline",
		Long: "run processes batches until it is told to stop. Ctrl-C or SIGTERM: the batches in flight are finished, then it ends,\n" +
			"within 20 seconds whatever hangs; what wasn't committed is done by the next run. A second signal ends it at once.\n" +
			"With --until caught-up it ends by itself once every partition has reached the end that it had at the start.",
		Example: "  tridentd run flights.yaml --until caught-up",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			return a.run(cmd.Context(), t, &f)
		},
	}
	dataFlag(cmd, &f.data)
	runFlagsOf(cmd, &f)
	cmd.Flags().StringVar(&f.until, "until", "", "caught-up: end once every partition has reached its present end")
	cmd.Flags().StringVar(&f.onStop, "on-stop", "exit", "after a stop that a restart won't mend: exit, or hold (stay up, /readyz names the cause)")
	return cmd
}

func runFlagsOf(cmd *cobra.Command, f *runFlags) {
	cmd.Flags().BoolVar(&f.fresh, "fresh", false, "start over if the data directory is empty, although the pipeline's consumer group says that it has run; deletes nothing")
	cmd.Flags().StringVar(&f.listen, "listen", "", "loopback address of the HTTP interface, or off (default "+server.DefaultListen+", or the next free port)")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "text", "text or json")
	cmd.Flags().IntVar(&f.procs, "procs", 0, "how many partitions and shards are worked on at once (default: GOMAXPROCS); no result depends on it")
}

func (f *runFlags) check() error {
	if f.until != "" && f.until != "caught-up" {
		return usagef("--until %q: the only choice is caught-up", f.until)
	}
	if f.onStop != "" && f.onStop != "exit" && f.onStop != "hold" {
		return usagef("--on-stop %q: it is exit or hold", f.onStop)
	}
	if hclog.LevelFromString(f.logLevel) == hclog.NoLevel {
		return usagef("--log-level %q: it is trace, debug, info, warn or error", f.logLevel)
	}
	if f.logFormat != "text" && f.logFormat != "json" {
		return usagef("--log-format %q: it is text or json", f.logFormat)
	}
	if f.procs < 0 {
		return usagef("--procs %d is negative", f.procs)
	}
	return usage(server.CheckListen(f.listen))
}

func (f *runFlags) logger(w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "tridentd", Level: hclog.LevelFromString(f.logLevel), Output: w, JSONFormat: f.logFormat == "json",
		TimeFormat: "2006-01-02T15:04:05.000Z", TimeFn: func() time.Time { return time.Now().UTC() },
	})
}

// run runs a pipeline with everything around it.
func (a *app) run(ctx context.Context, t *target, f *runFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	tuneMemory()
	obs := &observer{metrics: server.NewMetrics(t.pipeline.Name())}
	bar := newProgress(a.err, t.pipeline.Name(), obs)
	log := f.logger(bar.logs())
	h, err := engine.Start(context.WithoutCancel(ctx), t.pipeline, engine.Options{
		DataDir: t.root, Logger: log, UntilCaughtUp: f.until != "", Procs: f.procs, Fresh: f.fresh, Observer: obs,
	})
	if err != nil {
		bar.stop()
		return runError(err)
	}
	b := &backend{h: h}
	srv, err := server.Start(server.Config{Backend: b, Metrics: obs.metrics, Listen: f.listen, Dir: h.Dir(), Logger: log})
	if err != nil {
		h.Drain()
		bar.stop()
		return runError(errors.Join(err, h.Wait()))
	}
	if addr := srv.Addr(); addr != "" {
		b.listen.Store(&addr)
		log.Info("listening", "url", "http://"+addr)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	defer close(ended)
	held := make(chan struct{})
	go stopOnSignal(ctx, signals, ended, held, h, log)

	go bar.follow(h)
	err = h.Wait()
	bar.stop()
	if err != nil && f.onStop == "hold" && runError(err).(*exitError).code == exitStop { //nolint:errorlint // runError returns just this type
		log.Error("stopped for good; staying up until told to end", "error", err)
		<-held
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if cerr := srv.Close(closing); cerr != nil {
		log.Warn("closing the HTTP interface", "error", cerr)
	}
	fmt.Fprintln(a.err, bar.line())
	return runError(err)
}

// stopOnSignal drains at the first signal (or when ctx ends) and ends the process at the second, or when the stop takes
// too long. held is closed at the first.
func stopOnSignal(ctx context.Context, signals <-chan os.Signal, ended <-chan struct{}, held chan<- struct{}, h *engine.Handle, log hclog.Logger) {
	select {
	case s := <-signals:
		log.Info("stopping: finishing the batches in flight", "signal", s.String())
	case <-ctx.Done():
	case <-ended:
		return
	}
	close(held)
	t := time.NewTimer(hardStop)
	defer t.Stop()
	go h.Drain() // whatever hangs, the process ends in time
	select {
	case s := <-signals:
		log.Warn("ending at once: what was not committed is done by the next run", "signal", s.String())
	case <-t.C:
		log.Error("the stop took too long: ending at once; what was not committed is done by the next run", "after", hardStop)
	case <-ended:
		return
	}
	os.Exit(exitFailed)
}

// tuneMemory trades memory for less work of the garbage collector, within half of what the machine has, unless the
// environment says otherwise.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if n := memoryTotal(); n > 0 {
			debug.SetMemoryLimit(n / 2)
		}
	}
}
