package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/tridentd/tridentd/engine"
)

// progress shows how far a run has come: a bar on a terminal, a plain line now and then otherwise.
type progress struct {
	w     io.Writer
	name  string
	obs   *observer
	began time.Time
	tty   bool

	pool *mpb.Progress
	bar  *mpb.Bar

	mu      sync.Mutex
	stopped chan struct{}
	once    sync.Once
	took    time.Duration // valid after stop
}

const (
	redraw     = 200 * time.Millisecond
	plainEvery = 5 * time.Second
)

func newProgress(w io.Writer, name string, obs *observer) *progress {
	p := &progress{w: w, name: name, obs: obs, began: time.Now(), stopped: make(chan struct{})}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		p.draw()
	}
	return p
}

// draw makes the bar.
func (p *progress) draw() {
	p.tty = true
	p.pool = mpb.New(mpb.WithOutput(p.w), mpb.WithAutoRefresh(), mpb.WithRefreshRate(redraw), mpb.WithWidth(32))
	p.bar = p.pool.New(0, mpb.BarStyle().Lbound("").Filler("█").Tip("█").Padding("░").Rbound(""),
		mpb.PrependDecorators(decor.Name(p.name+"  ")),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return "  " + p.figures() })),
		mpb.BarRemoveOnComplete())
}

// logs is where logs go, so that they don't run into the bar.
func (p *progress) logs() io.Writer { return logs{p} }

type logs struct{ p *progress }

// Write writes above the bar, as long as there is one.
func (l logs) Write(b []byte) (int, error) {
	if l.p.tty {
		n, err := l.p.pool.Write(b)
		if _, gone := errors.AsType[mpb.ErrDone[*mpb.Progress]](err); !gone {
			return n, err
		}
	}
	return l.p.w.Write(b)
}

// follow shows progress until the run ends.
func (p *progress) follow(h *engine.Handle) {
	every := plainEvery
	if p.tty {
		every = redraw
	}
	t := time.NewTicker(every)
	defer t.Stop()
	var last int64
	for {
		select {
		case <-h.Done():
			return
		case <-p.stopped:
			return
		case <-t.C:
		}
		if !p.tty {
			if n := p.obs.batches.Load(); n != last {
				last = n
				fmt.Fprintln(p.w, p.line())
			}
			continue
		}
		var done, total int64
		for _, s := range h.Status().Partitions {
			if s.Committed >= 0 && s.End >= 0 {
				done += s.Committed
				total += max(s.End, s.Committed)
			}
		}
		p.bar.SetTotal(max(total, 1), false)
		p.bar.SetCurrent(done)
	}
}

func (p *progress) stop() {
	p.once.Do(func() {
		p.mu.Lock()
		p.took = time.Since(p.began)
		p.mu.Unlock()
		close(p.stopped)
		if p.tty {
			p.bar.Abort(true)
			p.pool.Wait()
		}
	})
}

func (p *progress) line() string { return p.name + "  " + p.figures() }

func (p *progress) figures() string {
	p.mu.Lock()
	took := p.took
	p.mu.Unlock()
	if took == 0 {
		took = time.Since(p.began)
	}
	n := p.obs.records.Load()
	rate := int64(float64(n) / max(took.Seconds(), 1e-3))
	return fmt.Sprintf("%s records  %s batches  %s/s  committed txid %d", grouped(n), grouped(p.obs.batches.Load()), grouped(rate), p.obs.txid.Load())
}
