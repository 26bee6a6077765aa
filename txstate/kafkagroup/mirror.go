package kafkagroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

const (
	// maxWrite bounds the partitions of one request: the broker writes them to __consumer_offsets as one record batch,
	// which may have 1 MB.
	maxWrite = 2000

	// requestRetries are those of a single request within a round. They pass over a coordinator that has just moved;
	// everything longer is a failure with a back-off of its own.
	requestRetries = 3

	// quiet is for how long a cause that comes and goes isn't warned of again.
	quiet = 5 * time.Minute
)

// The last versions of the requests that name topics by name. Later ones name them by id, which the client would have
// to look up before each write.
const (
	maxOffsetCommit = 9
	maxOffsetFetch  = 9
)

// Mirror keeps one source's offsets in a consumer group.
type Mirror struct {
	cfg    Config
	name   string
	log    hclog.Logger
	client *kgo.Client
	fence  *fence // nil: a plain commit of offsets; set before the first round

	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{} // room for one
	closing chan struct{}
	done    chan struct{}
	once    sync.Once

	mu     sync.Mutex
	want   latest
	status txstate.MirrorStatus
	rewind bool

	// Everything below belongs to the goroutine that does the rounds.

	has     map[part]held // what the group holds, as far as known
	known   bool          // has was read, and no failure came since
	readAt  time.Time
	written map[part]mark
	aside   map[part]refusal // partitions that are refused by themselves
	round   uint64           // the latest.seq that was written
	roundAt time.Time
	retryAt time.Time // after a failure; zero: there is none
	backoff time.Duration
	warned  map[batch.Code]time.Time
}

// refusal is why a partition is left alone, and until when.
type refusal struct {
	err   error
	until time.Time
}

// latest is what Committed was last told. seq numbers the calls.
type latest struct {
	seq       uint64
	txid      batch.Txid
	epoch     batch.Epoch
	positions []txstate.SavedPosition
}

var _ txstate.Mirror = (*Mirror)(nil)

// New returns a mirror. It contacts nobody before Carried or the first Committed.
func New(cfg Config) (*Mirror, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.OffsetCommit), maxOffsetCommit)
	versions.SetMaxKeyVersion(int16(kmsg.OffsetFetch), maxOffsetFetch)
	limitTransactions(versions)
	client, err := kgo.NewClient(append(slices.Clone(cfg.Client), kgo.MaxVersions(versions), kgo.RequestRetries(requestRetries))...)
	if err != nil {
		return nil, configError("kafka", "correct the client's options", "%w", err)
	}
	m := &Mirror{
		cfg: cfg, client: client, log: cfg.Logger.With("group", cfg.Group),
		name:    fmt.Sprintf("kafka group %s, source %s", cfg.Group, cfg.Source),
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		status:  txstate.MirrorStatus{Failures: map[batch.Code]int64{}},
		written: map[part]mark{},
		aside:   map[part]refusal{},
		warned:  map[batch.Code]time.Time{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	go m.run()
	return m, nil
}

// Name implements txstate.Mirror.
func (m *Mirror) Name() string { return m.name }

// Carried implements txstate.Mirror: it lists the offsets of the source's topics that this pipeline has written,
// under whichever source's name.
func (m *Mirror) Carried(ctx context.Context) ([]txstate.Carried, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	if m.fence != nil {
		// Whatever a predecessor left unfinished is settled first. Who may not do that may be able to read the group nevertheless, and
		// may have written to it before.
		if err := m.fence.claim(ctx, m.client); err != nil {
			if e := failure(m.cfg.Group, err); e.Code != batch.CodeUnauthorized {
				return nil, e
			}
		}
		ctx = kadm.RequireStable(ctx)
	}
	has, err := m.fetch(ctx)
	if err != nil {
		return nil, failure(m.cfg.Group, err)
	}
	var all []txstate.Carried
	for at, h := range has {
		if h.stamp == nil || h.stamp.Pipeline != m.cfg.Pipeline || !m.cfg.Reads(at.topic) {
			continue
		}
		all = append(all, txstate.Carried{
			Partition: batch.Partition{Source: h.stamp.Source, Topic: at.topic, Number: at.number},
			Next:      h.next, Txid: h.stamp.Txid, Epoch: h.stamp.Epoch,
		})
	}
	slices.SortFunc(all, func(a, b txstate.Carried) int { return a.Compare(b.Partition) })
	return all, nil
}

// Rewind implements txstate.Mirror.
func (m *Mirror) Rewind() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rewind = true
}

// Committed implements txstate.Mirror.
func (m *Mirror) Committed(txid batch.Txid, epoch batch.Epoch, positions []txstate.SavedPosition) {
	m.mu.Lock()
	m.want = latest{seq: m.want.seq + 1, txid: txid, epoch: epoch, positions: positions}
	m.status.Pending = true
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Status implements txstate.Mirror.
func (m *Mirror) Status() txstate.MirrorStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.status
	st.Failures = maps.Clone(st.Failures)
	return st
}

// Close implements txstate.Mirror. It tells what couldn't be written.
func (m *Mirror) Close(ctx context.Context) error {
	m.once.Do(func() { close(m.closing) })
	select {
	case <-m.done:
	case <-ctx.Done():
		m.cancel()
		<-m.done
	}
	m.cancel()
	m.client.Close()
	st := m.Status()
	if !st.Pending {
		return nil
	}
	err := st.Err
	if err == nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: what has committed since txid %d isn't written; the next run writes it: %w", m.name, st.Txid, err)
}

// run does the rounds until Close, and one more then if something is outstanding.
func (m *Mirror) run() {
	defer close(m.done)
	for {
		var timer <-chan time.Time
		if at, ok := m.next(); ok {
			timer = time.After(time.Until(at))
		}
		select {
		case <-m.closing:
			if m.Status().Pending {
				m.do()
			}
			return
		case <-m.wake:
		case <-timer:
			m.do()
		}
	}
}

// next tells when a round is due.
func (m *Mirror) next() (at time.Time, ok bool) {
	m.mu.Lock()
	seq := m.want.seq
	m.mu.Unlock()
	switch {
	case seq == 0:
		return time.Time{}, false
	case !m.retryAt.IsZero():
		return m.retryAt, true
	case seq != m.round:
		return m.roundAt.Add(m.cfg.Interval), true
	}
	return m.readAt.Add(m.cfg.Reread), true
}

// do does a round and takes note of its outcome.
func (m *Mirror) do() {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	m.mu.Lock()
	want, rewind := m.want, m.rewind
	m.mu.Unlock()
	standing, err := m.attempt(ctx, &want, rewind)
	now := time.Now()
	m.roundAt = now
	if err != nil {
		// Whether a request that failed was carried out isn't known.
		m.known = false
		m.backoff = min(max(2*m.backoff, m.cfg.RetryMin), m.cfg.RetryMax)
		m.retryAt = now.Add(m.backoff)
		standing = append(standing, failure(m.cfg.Group, err))
		m.count(standing[len(standing)-1])
	} else {
		m.backoff, m.retryAt, m.round = 0, time.Time{}, want.seq
	}
	m.conclude(&want, standing, now)
}

// conclude sets the status after a round.
func (m *Mirror) conclude(want *latest, standing []*batch.Error, now time.Time) {
	m.mu.Lock()
	was := m.status.Err
	if len(standing) == 0 {
		m.status.Txid, m.status.Err, m.status.Since = want.txid, nil, time.Time{}
		m.status.Pending = m.want.seq != want.seq
		m.rewind = false
	} else {
		if was == nil {
			m.status.Since = now.UTC()
		}
		m.status.Err = standing[0]
	}
	m.mu.Unlock()
	for _, e := range standing {
		m.warn(e, "the offsets in the consumer group are not up to date; trying again, batches go on", now)
	}
	if len(standing) == 0 && was != nil {
		m.log.Info("the offsets in the consumer group are up to date again", "txid", uint64(want.txid))
		delete(m.warned, batch.CodeOf(was))
	}
}

// warn logs a cause, unless it was logged shortly before.
func (m *Mirror) warn(e *batch.Error, what string, now time.Time) {
	args := []any{"error", e, "code", string(e.Code)}
	last, ok := m.warned[e.Code]
	m.warned[e.Code] = now
	if ok && now.Sub(last) < quiet {
		m.log.Debug(what, args...)
		return
	}
	m.log.Warn(what, args...)
}

func (m *Mirror) count(e *batch.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Failures[e.Code]++
}

// attempt reads the group if that is due and writes what differs. It returns what stands in the way of single
// partitions, and the failure of the round as a whole.
func (m *Mirror) attempt(ctx context.Context, want *latest, rewind bool) (standing []*batch.Error, err error) {
	if m.fence != nil {
		if err := m.fence.claim(ctx, m.client); err != nil {
			return nil, err
		}
		ctx = kadm.RequireStable(ctx) // the transaction before may still be landing
	}
	read := !m.known || time.Since(m.readAt) >= m.cfg.Reread
	if read {
		if m.has, err = m.fetch(ctx); err != nil {
			return nil, err
		}
		m.known, m.readAt = true, time.Now()
	}
	v := view{
		pipeline: m.cfg.Pipeline, source: m.cfg.Source, epoch: want.epoch, txid: want.txid, rewind: rewind,
		refresh: m.cfg.Refresh, now: time.Now(), written: m.written, aside: m.aside,
	}
	write, findings := v.compare(m.mine(want.positions), m.has)
	standing = m.report(findings, read)
	refused := map[part]error{}
	all := func() error {
		for chunk := range slices.Chunk(write, maxWrite) {
			if err := m.write(ctx, want.epoch, chunk, refused); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case len(write) == 0:
	case m.fence != nil:
		before := maps.Clone(m.written)
		if err = m.fence.transaction(ctx, m.client, m.cfg.Group, all); err != nil {
			m.written = before
		}
	default:
		err = all()
	}
	if err != nil {
		return standing, err
	}
	return append(standing, m.setAside(refused)...), nil
}

// mine picks the source's positions that stand at an offset.
func (m *Mirror) mine(positions []txstate.SavedPosition) []txstate.SavedPosition {
	var mine []txstate.SavedPosition
	for _, p := range positions {
		if p.Source == m.cfg.Source && m.cfg.Reads(p.Topic) {
			mine = append(mine, p)
		}
	}
	return mine
}

// report counts findings, if they are new, and returns those that a write doesn't mend.
func (m *Mirror) report(findings []finding, read bool) (standing []*batch.Error) {
	var seen []batch.Code
	for _, stays := range []bool{true, false} {
		of := slices.DeleteFunc(slices.Clone(findings), func(f finding) bool { return f.stays != stays })
		for _, f := range of {
			if slices.Contains(seen, f.code) {
				continue
			}
			seen = append(seen, f.code)
			e := sum(of, f.code, m.cfg.Source, m.cfg.Group)
			if read {
				m.count(e)
			}
			if stays {
				standing = append(standing, e)
			} else {
				m.warn(e, "the offsets in the consumer group were not the pipeline's", time.Now())
			}
		}
	}
	return standing
}

// setAside leaves partitions alone for a while that are refused by themselves, so that the others don't wait, and
// returns why any partition is left alone.
func (m *Mirror) setAside(refused map[part]error) (standing []*batch.Error) {
	now := time.Now()
	for at, err := range refused {
		m.aside[at] = refusal{err: err, until: now.Add(m.cfg.RetryMax)}
	}
	counted := map[batch.Code]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(m.aside), part.compare) {
		e := failure(m.cfg.Group, m.aside[at].err).At(batch.Partition{Source: m.cfg.Source, Topic: at.topic, Number: at.number}, batch.NoOffset)
		if _, ok := refused[at]; ok && !counted[e.Code] {
			counted[e.Code] = true
			m.count(e)
		}
		if !slices.ContainsFunc(standing, func(s *batch.Error) bool { return s.Code == e.Code }) {
			standing = append(standing, e)
		}
	}
	return standing
}

// fetch reads the group's offsets.
func (m *Mirror) fetch(ctx context.Context) (map[part]held, error) {
	offsets, err := kadm.NewClient(m.client).FetchOffsets(ctx, m.cfg.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // a group that isn't there holds nothing
		return nil, err
	}
	has := map[part]held{}
	for topic, parts := range offsets {
		for number, o := range parts {
			if o.Err != nil && !ofPartition(o.Err) {
				return nil, o.Err
			}
			if o.Err == nil && o.At >= 0 {
				has[part{topic, number}] = held{next: o.At, stamp: parseStamp(o.Metadata), metadata: o.Metadata}
			}
		}
	}
	return has, nil
}

// write commits offsets to the group. What is refused for single partitions goes to refused.
func (m *Mirror) write(ctx context.Context, epoch batch.Epoch, positions []txstate.SavedPosition, refused map[part]error) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = m.cfg.Group
	sent := make(map[part]held, len(positions))
	for _, p := range positions { // in order of topics
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = p.Topic
			req.Topics = append(req.Topics, t)
		}
		s := stamp{Pipeline: m.cfg.Pipeline, Source: m.cfg.Source, Txid: p.Txid, Epoch: epoch}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = p.Number, p.Next, p.LeaderEpoch
		rp.Metadata = new(s.encode())
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, rp)
		sent[part{p.Topic, p.Number}] = held{next: p.Next, stamp: &s}
	}
	now := time.Now()
	var failed error
	answered := func(topic string, partition int32, code int16) {
		at := part{topic, partition}
		h, ok := sent[at]
		if !ok {
			return
		}
		delete(sent, at)
		switch err := kerr.ErrorForCode(code); {
		case err == nil:
			m.has[at] = h
			delete(m.aside, at)
			m.written[at] = mark{next: h.next, txid: h.stamp.Txid, at: now}
		case ofPartition(err):
			refused[at] = err
		default:
			failed = err
		}
	}
	if m.fence != nil {
		if err := m.fence.request(ctx, m.client, req, answered); err != nil {
			return err
		}
	} else {
		resp, err := req.RequestWith(ctx, m.client)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answered(t.Topic, p.Partition, p.ErrorCode)
			}
		}
	}
	if failed == nil && len(sent) > 0 {
		failed = errors.New("the broker's answer leaves partitions out")
	}
	if failed == nil {
		m.mu.Lock()
		m.status.Written = now.UTC()
		m.mu.Unlock()
	}
	return failed
}
