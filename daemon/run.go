package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
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
	twice     float64
	fresh     bool
	standby   bool
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
			s, end := newStopper(cmd.Context(), f.logger(a.err))
			defer end()
			t, rest, err := a.resolve(args, f.data)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("unexpected argument %q", rest[0])
			}
			return a.run(cmd.Context(), t, &f, s)
		},
	}
	dataFlag(cmd, &f.data)
	runFlagsOf(cmd, &f)
	cmd.Flags().StringVar(&f.until, "until", "", "caught-up: end once every partition has reached its present end")
	cmd.Flags().BoolVar(&f.standby, "standby", false, "wait for the pipeline's lock and data directory while another process has them, then take over; needs zookeeper with role: lock")
	cmd.Flags().StringVar(&f.onStop, "on-stop", "exit", "after a stop that a restart won't mend: exit, or hold (stay up, /readyz names the cause)")
	return cmd
}

func runFlagsOf(cmd *cobra.Command, f *runFlags) {
	cmd.Flags().BoolVar(&f.fresh, "fresh", false, "start over if the data directory is empty, although the pipeline's consumer group or ZooKeeper says that it has run; deletes nothing")
	cmd.Flags().StringVar(&f.listen, "listen", "", "loopback address of the HTTP interface, or off (default "+server.DefaultListen+", or the next free port)")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "text", "text or json")
	cmd.Flags().Float64Var(&f.twice, "check-determinism", 0, "compute this share of the batches, 0 to 1, twice before they commit, and stop at the first that comes out otherwise")
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
	if !(f.twice >= 0 && f.twice <= 1) {
		return usagef("--check-determinism %v: it is a share of the batches, between 0 and 1", f.twice)
	}
	return usage(server.CheckListen(f.listen))
}

func (f *runFlags) logger(w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "tridentd", Level: hclog.LevelFromString(f.logLevel), Output: w, JSONFormat: f.logFormat == "json",
		TimeFormat: "2006-01-02T15:04:05.000Z", TimeFn: func() time.Time { return time.Now().UTC() },
	})
}

// run runs a pipeline with everything around it, until s says that it is to end.
func (a *app) run(ctx context.Context, t *target, f *runFlags, s *stopper) error {
	if err := f.check(); err != nil {
		return err
	}
	obs, reg, growing := &observer{}, prometheus.NewRegistry(), newLagGrowing(t.pipeline.Name())
	reg.MustRegister(growing)
	bar := newProgress(a.err, t.pipeline.Name(), obs)
	defer bar.stop()
	log := f.logger(bar.logs())
	s.log.Store(&log)

	known, err := newAnswers(t.pipeline)
	if err != nil {
		return err
	}
	door := &access{standby: f.standby, log: log}
	h, err := engine.Start(context.WithoutCancel(ctx), t.pipeline, engine.Options{
		DataDir: t.root, Logger: log, UntilCaughtUp: f.until != "", Procs: f.procs, CheckDeterminism: f.twice, Fresh: f.fresh, Standby: f.standby, Registerer: reg, Observer: obs,
		MemoryLimit: defaultMemoryLimit(),
		AfterOpen:   door.begin, BeforeClose: door.end,
	})
	if err != nil {
		bar.stop()
		return a.hold(ctx, t, f, s, log, runError(err))
	}
	boundHeap(h.MemoryLimit())
	s.passOn(h)
	b := &backend{h: h, answers: known, stop: s.ask}
	cfg := server.Config{Backend: b, Metrics: reg, Listen: f.listen, Dir: h.Dir(), Logger: log}
	if f.standby {
		cfg.Dir = "" // the socket there is the leader's
	}
	serving, err := server.Start(cfg)
	if err != nil {
		h.Drain()
		bar.stop()
		return runError(errors.Join(err, h.Wait()))
	}
	door.serve(serving, h.Dir())
	if addr := serving.Addr(); addr != "" {
		log.Info("listening", "url", "http://"+addr)
	}

	go bar.follow(h)
	go watchLag(h, growing, log)
	err = h.Wait()
	bar.stop()
	if f.holds(err) {
		log.Error("stopped for good; staying up until told to end", "error", err)
		<-s.asked
	}
	closeServer(ctx, serving, log)
	fmt.Fprintln(a.err, bar.line())
	return runError(err)
}

// holds tells whether the process stays up after err.
func (f *runFlags) holds(err error) bool {
	e, ok := errors.AsType[*exitError](runError(err))
	return f.onStop == "hold" && ok && e.code == exitStop
}

// hold stays up, if that is wanted, for a pipeline that didn't start, and returns err.
func (a *app) hold(ctx context.Context, t *target, f *runFlags, s *stopper, log hclog.Logger, err error) error {
	if !f.holds(err) {
		return err
	}
	b := &idle{target: t, began: time.Now(), why: err, stop: s.ask}
	reg := prometheus.NewRegistry()
	reg.MustRegister(engine.NewMetrics(t.pipeline.Name(), b.status))
	cfg := server.Config{Backend: b, Metrics: reg, Listen: f.listen, Logger: log}
	if info, serr := os.Stat(t.dir); serr == nil && info.IsDir() {
		cfg.Dir = t.dir // for the socket
	}
	srv, serr := server.Start(cfg)
	if serr != nil {
		return errors.Join(err, serr)
	}
	log.Error("not started, for good; staying up until told to end", "error", err, "url", "http://"+srv.Addr())
	<-s.asked
	closeServer(ctx, srv, log)
	return err
}

func closeServer(ctx context.Context, srv *server.Server, log hclog.Logger) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := srv.Close(closing); err != nil {
		log.Warn("closing the HTTP interface", "error", err)
	}
}

// stopper passes on that the process is to end: by a signal, by the socket, or as its context ended.
type stopper struct {
	once  sync.Once
	asked chan struct{} // closed when somebody has asked
	ended chan struct{} // closed when the process is about to end
	log   atomic.Pointer[hclog.Logger]
}

// newStopper listens for signals until end is called. A second signal ends the process at once, and so does a stop that takes
// too long. It is the first thing that a command does: before, a signal kills the process, whatever it has begun.
func newStopper(ctx context.Context, log hclog.Logger) (s *stopper, end func()) {
	s = &stopper{asked: make(chan struct{}), ended: make(chan struct{})}
	s.log.Store(&log)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go s.listen(ctx, signals)
	return s, func() {
		signal.Stop(signals)
		close(s.ended)
	}
}

// ask asks for the end, and returns at once.
func (s *stopper) ask() { s.once.Do(func() { close(s.asked) }) }

func (s *stopper) logger() hclog.Logger { return *s.log.Load() }

func (s *stopper) listen(ctx context.Context, signals <-chan os.Signal) {
	select {
	case sig := <-signals:
		s.logger().Info("stopping: finishing the batches in flight", "signal", sig.String())
	case <-ctx.Done():
	case <-s.asked:
	case <-s.ended:
		return
	}
	s.ask()
	t := time.NewTimer(hardStop)
	defer t.Stop()
	select {
	case sig := <-signals:
		s.logger().Warn("ending at once: what was not committed is done by the next run", "signal", sig.String())
	case <-t.C:
		s.logger().Error("the stop took too long: ending at once; what was not committed is done by the next run", "after", hardStop)
	case <-s.ended:
		return
	}
	os.Exit(exitFailed)
}

// passOn drains h when the end is asked for.
func (s *stopper) passOn(h *engine.Handle) {
	go func() {
		select {
		case <-s.asked:
			h.Drain() // whatever hangs, the process ends in time
		case <-h.Done():
		}
	}()
}
