package kafka

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/emitter"
)

// Emitter reads the partitions of the topics of one source. It implements emitter.Emitter.
type Emitter struct {
	id      string
	cfg     Config
	pattern *regexp.Regexp
	log     hclog.Logger
	now     func() time.Time // informs and paces; no result depends on it
	dec     kgo.Decompressor

	opts   []kgo.Opt
	client *kgo.Client // metadata, offsets and prefetching; set by Open
	replay *replayer

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ready  chan struct{}
	poke   chan struct{} // asks for metadata now

	buffered atomic.Int64 // the partitions' buf.total, added up
	failure  atomic.Pointer[batch.Error]

	mu         sync.RWMutex
	opened     bool
	closed     bool
	topics     map[string]*topic
	partitions map[batch.Partition]*partition
	sorted     []*partition      // all of them, in order
	order      []batch.Partition // admitted, in order
	discovered []batch.Position  // to be returned by Discovered
	fetchers   map[int32]*fetcher
	first      bool // no partition was known when the emitter was opened
}

var _ emitter.Emitter = (*Emitter)(nil)

// New returns an emitter that isn't opened yet. It checks cfg, contacts nobody and holds nothing that would have to
// be closed.
func New(id string, cfg Config, env emitter.Env) (*Emitter, error) {
	cfg.Brokers, cfg.Topics, cfg.Opts = slices.Clone(cfg.Brokers), slices.Clone(cfg.Topics), slices.Clone(cfg.Opts)
	pattern, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if env.Buffer > 0 {
		cfg.MaxBuffer = min(cfg.MaxBuffer, env.Buffer)
	}
	log := env.Logger
	if log == nil {
		log = hclog.NewNullLogger()
	}
	opts, err := cfg.ClientOptions(log)
	if err != nil {
		return nil, err
	}
	// The loops of this package try again themselves; few tries of the client bring the cause to light.
	opts = append([]kgo.Opt{kgo.RequestRetries(1)}, opts...)
	if err := kgo.ValidateOpts(opts...); err != nil {
		return nil, configError("kafka", "correct the client's options", "%w", err)
	}
	e := &Emitter{
		id: id, cfg: cfg, pattern: pattern, log: log, now: time.Now, dec: kgo.DefaultDecompressor(),
		opts:       opts,
		ready:      make(chan struct{}, 1),
		poke:       make(chan struct{}, 1),
		topics:     map[string]*topic{},
		partitions: map[batch.Partition]*partition{},
		fetchers:   map[int32]*fetcher{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.replay = newReplayer(e)
	return e, nil
}

// ID is the source's name in the pipeline.
func (e *Emitter) ID() string { return e.id }

// Mode says what a second attempt of a batch may hold.
func (e *Emitter) Mode() Mode { return e.cfg.Mode }

// Ready receives a value after Plan, Discovered or Err may have something new.
func (e *Emitter) Ready() <-chan struct{} { return e.ready }

func (e *Emitter) signal() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

// Err returns a failure that was noticed in the background and can't mend itself, or nil.
func (e *Emitter) Err() error {
	if err := e.failure.Load(); err != nil {
		return err
	}
	return nil
}

// stop keeps the first permanent failure. The caller doesn't hold p.mu.
func (e *Emitter) stop(p *partition, err *batch.Error) {
	p.mu.Lock()
	p.failed = true
	p.fail(err, e.now())
	p.mu.Unlock()
	if e.failure.CompareAndSwap(nil, err) {
		e.log.Error("the source can't go on", "topic", p.id.Topic, "partition", p.id.Number, "error", err)
	}
	e.signal()
}

// Partitions lists the admitted partitions in order.
func (e *Emitter) Partitions() []batch.Partition {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return slices.Clone(e.order)
}

// Discovered returns the starts of partitions that appeared since the last call.
func (e *Emitter) Discovered() []batch.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.discovered
	e.discovered = nil
	return d
}

// Admit lets partitions take part in planning, from the positions that Open or Discovered gave.
func (e *Emitter) Admit(starts []batch.Position) {
	if len(starts) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pos := range starts {
		p := e.partitions[pos.Partition]
		if p == nil {
			continue // its topic was deleted since it was offered
		}
		p.mu.Lock()
		if p.state == offered {
			p.state = admitted
			p.rewind(pos.Next, pos.LeaderEpoch)
			e.order = append(e.order, p.id)
		}
		leader := p.leader
		p.mu.Unlock()
		e.wake(leader)
	}
	slices.SortFunc(e.order, batch.Partition.Compare)
}

// wake makes the fetcher of a broker look for work. The caller holds e.mu.
func (e *Emitter) wake(leader int32) {
	if f := e.fetchers[leader]; f != nil {
		f.nudge()
	}
}

// know adds a partition. The caller holds e.mu.
func (e *Emitter) know(p *partition) {
	e.partitions[p.id] = p
	i, _ := slices.BinarySearchFunc(e.sorted, p.id, func(q *partition, id batch.Partition) int { return q.id.Compare(id) })
	e.sorted = slices.Insert(e.sorted, i, p)
}

func (e *Emitter) partition(id batch.Partition) *partition {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.partitions[id]
}

// Plan returns the next range of a partition from what has been fetched.
func (e *Emitter) Plan(id batch.Partition, from int64, limit emitter.Limit) (batch.Range, bool) {
	p := e.partition(id)
	if p == nil {
		return batch.Range{}, false
	}
	p.mu.Lock()
	if p.state != admitted || p.failed {
		p.mu.Unlock()
		return batch.Range{}, false
	}
	ahead := p.buf.ahead
	elsewhere := !p.buf.seek(from)
	if elsewhere {
		e.buffered.Add(-p.buf.total)
		p.rewind(from, batch.NoEpoch)
	}
	end, epoch := p.buf.plan(limit)
	r := batch.Range{Partition: id, Start: from, End: end, Identity: p.topic.identity(), LeaderEpoch: epoch}
	room, leader := p.buf.ahead < ahead, p.leader
	p.mu.Unlock()
	if room || elsewhere {
		e.mu.RLock()
		e.wake(leader)
		e.mu.RUnlock()
	}
	return r, end > from
}

// Ack tells that a batch has committed, and frees what its ranges held.
func (e *Emitter) Ack(_ batch.Txid, ranges []batch.Range) {
	for _, r := range ranges {
		p := e.partition(r.Partition)
		if p == nil {
			continue
		}
		p.mu.Lock()
		before := p.buf.total
		p.buf.release(r.End)
		freed, leader := before-p.buf.total, p.leader
		p.mu.Unlock()
		e.replay.forget(r.Partition, r.End)
		if freed > 0 {
			e.buffered.Add(-freed)
			e.mu.RLock()
			e.wake(leader)
			e.mu.RUnlock()
		}
	}
}

// Status lists the admitted partitions in order.
func (e *Emitter) Status() []emitter.Status {
	e.mu.RLock()
	defer e.mu.RUnlock()
	now := e.now()
	out := make([]emitter.Status, len(e.order))
	for i, id := range e.order {
		p := e.partitions[id]
		p.mu.Lock()
		end := p.hw
		if e.cfg.Isolation == ReadCommitted {
			end = p.lso
		}
		err := p.trouble(now)
		out[i] = emitter.Status{
			Partition: id, End: end, LogEnd: p.hw, Start: p.logStart,
			AtEnd:  err == nil && p.answered && p.buf.ahead == 0 && p.buf.planned == p.buf.next && p.buf.next >= p.hw,
			Oldest: p.buf.oldest(),
			Err:    err,
		}
		p.mu.Unlock()
	}
	return out
}

// Close ends all background work.
func (e *Emitter) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	client := e.client
	e.mu.Unlock()
	e.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if client != nil {
			client.Close()
		}
		e.replay.close()
		e.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return batch.NewError(batch.Transient, batch.CodeTimeout, "close", fmt.Errorf("source %s: requests to the brokers did not end: %w", e.id, context.Cause(ctx)), "")
	}
}
