//go:build realzk

package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/internal/testenv"
	"github.com/tridentd/tridentd/internal/zkconn"
	"github.com/tridentd/tridentd/server"
	"github.com/tridentd/tridentd/txstate/zkstore"
)

// locked is a pipeline under a lock, with real servers.
type locked struct {
	*job
	b       *brokers
	z       *testenv.ZooKeeperServer
	by      *zk.Conn
	chroot  string
	topic   string
	group   string
	session time.Duration

	sent atomic.Int64 // records that were acknowledged
}

const lockedParts = 3

func newLocked(t *testing.T, session time.Duration) *locked {
	t.Helper()
	k, z := testenv.Kafka(t), testenv.ZooKeeper(t)
	w := &locked{
		b: connect(t, k.Brokers()), z: z, by: z.Conn(t), chroot: z.Chroot(t, "locked"), topic: k.Topic(t, "locked", lockedParts, nil),
		group: testenv.Unique("locked"), session: session,
	}
	w.job = newJob(t, w.b, w.text(z.Addr))
	return w
}

// text is the pipeline, with ZooKeeper at an address.
func (w *locked) text(addr string) string {
	return fmt.Sprintf(`pipeline: words
batch: {interval: 20ms}
zookeeper: {servers: %q, chroot: %s, role: lock, session_timeout: %s, update_interval: 100ms}
sources:
  lines:
    kafka: {brokers: BROKERS, topics: [%s], start: earliest, group: %s}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - aggregate: {n: count()}
`, addr, w.chroot, w.session, w.topic, w.group)
}

// through is the same pipeline, with the same data directory, that reaches ZooKeeper at another address.
func (w *locked) through(addr, name string) *job {
	j := *w.job
	j.put(name, strings.ReplaceAll(w.text(addr), "BROKERS", `["`+strings.Join(w.b.addrs, `", "`)+`"]`))
	j.file = filepath.Join(j.dir, name)
	return &j
}

// produce sends records to all partitions until stop is called.
func (w *locked) produce() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := int32(0); ; i++ {
			select {
			case <-tick.C:
				w.b.cl.Produce(context.Background(), &kgo.Record{Topic: w.topic, Partition: i % lockedParts, Value: []byte("x")}, func(_ *kgo.Record, err error) {
					if err != nil {
						w.t.Errorf("produce: %v", err)
						return
					}
					w.sent.Add(1)
				})
			case <-ctx.Done():
				return
			}
		}
	}()
	stop = func() {
		cancel()
		<-done
		if err := w.b.cl.Flush(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// offsets is what the group holds, by partition.
func (w *locked) offsets() (nexts [lockedParts]int64) {
	w.t.Helper()
	offsets, err := w.b.adm.FetchOffsets(kadm.RequireStable(w.t.Context()), w.group)
	if err != nil {
		w.t.Fatal(err)
	}
	for p := range nexts {
		if o, ok := offsets.Lookup(w.topic, int32(p)); ok {
			nexts[p] = o.At
		}
	}
	return nexts
}

// outside is everything that the pipeline keeps outside of its directory, but for the queue for the lock.
func (w *locked) outside() map[string]string {
	w.t.Helper()
	all := map[string]string{"group": fmt.Sprint(w.offsets())}
	var walk func(path string)
	walk = func(path string) {
		data, stat, err := w.by.Get(path)
		if err != nil {
			w.t.Fatalf("%s: %v", path, err)
		}
		all[path] = fmt.Sprintf("version %d: %s", stat.Version, data)
		children, _, err := w.by.Children(path)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, c := range children {
			if c != "lock" {
				walk(path + "/" + c)
			}
		}
	}
	walk(w.chroot + "/trident/words")
	return all
}

// exact holds everything against what was produced, once the pipeline is at rest.
func (w *locked) exact() {
	w.t.Helper()
	if got, want := w.number("counts"), fmt.Sprint(w.sent.Load()); got != want {
		w.t.Errorf("counted %s, want %s", got, want)
	}
	var total int64
	for _, next := range w.offsets() {
		total += next
	}
	if total != w.sent.Load() {
		w.t.Errorf("the group stands at %v, %d were produced", w.offsets(), w.sent.Load())
	}
	if rec := recordAt(w.t, w.by, w.chroot+"/trident/words"); rec.total() != w.sent.Load() || rec.Committed.Txid != w.committedTxid() {
		w.t.Errorf("ZooKeeper's record is %+v; %d were produced, the last txid is %d", rec, w.sent.Load(), w.committedTxid())
	}
	for i, e := range w.ledger() {
		if uint64(e.Txid) != uint64(i+1) {
			w.t.Fatalf("entry %d of the ledger has txid %d", i+1, e.Txid)
		}
	}
}

var listening = regexp.MustCompile(`url=(http://127\.0\.0\.1:\d+)`)

// url is where a process serves HTTP.
func (p *process) url() string {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if m := listening.FindStringSubmatch(p.errs.String()); m != nil {
			return m[1]
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("it doesn't say where it listens\n%s", p.errs.String())
		}
	}
}

func (p *process) get(path string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url()+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", path, err, p.errs.String())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (p *process) state() (st server.Status) {
	p.t.Helper()
	_, body := p.get("/api/v1/status")
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		p.t.Fatalf("%s: %v", body, err)
	}
	return st
}

// becomes waits until a process's status is as wanted, and returns it with how long that took.
func (p *process) becomes(what string, ok func(st *server.Status) bool) (server.Status, time.Duration) {
	p.t.Helper()
	began := time.Now()
	for {
		st := p.state()
		if ok(&st) {
			return st, time.Since(began)
		}
		if time.Since(began) > patience {
			p.t.Fatalf("not within %s: %s; status %+v\n%s", patience, what, st, p.errs.String())
		}
		select {
		case <-p.done:
			p.t.Fatalf("ended before: %s\n%s", what, p.errs.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func leads(st *server.Status) bool { return st.Role == engine.Leader.String() && st.Ready }

// gauge is a metric of a process.
func (p *process) gauge(name string) float64 {
	p.t.Helper()
	_, body := p.get("/metrics")
	for line := range strings.Lines(body) {
		if f := strings.Fields(line); len(f) == 2 && strings.SplitN(f[0], "{", 2)[0] == name {
			v, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	p.t.Fatalf("no metric %s in\n%s", name, body)
	return 0
}

// TestLockShortCutsAndFailOver (G17): the master is cut off from ZooKeeper for a second, many times, while it counts; that changes nothing.
// Then it is killed, and the standby leads within the session's time-out and two seconds.
func TestLockShortCutsAndFailOver(t *testing.T) {
	cuts := 5
	if testenv.Full() {
		cuts = 20
	}
	w := newLocked(t, 10*time.Second)
	proxy := testenv.NewProxy(t, w.z.Addr)
	stop := w.produce()
	run := []string{"run", "--standby", "--listen", "127.0.0.1:0"}
	master := w.through(proxy.Addr, "proxied.yaml").spawn(run...)
	before, _ := master.becomes("the first leads", leads)
	standby := w.spawn(run...)
	waiting, _ := standby.becomes("the second knows who leads", func(st *server.Status) bool {
		return st.Role == engine.Standby.String() && strings.Contains(strings.Join(st.Reasons, "\n"), fmt.Sprintf("process %d on ", before.PID))
	})
	if waiting.Ready || standby.gauge("tridentd_leading") != 0 || master.gauge("tridentd_leading") != 1 {
		t.Errorf("the standby's status is %+v", waiting)
	}
	if code, _ := standby.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz of the standby: %d", code)
	}
	if code, body := standby.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "standby: ") {
		t.Errorf("/readyz of the standby: %d %s", code, body)
	}
	if st, ok := w.status(); !ok || st.PID != before.PID {
		t.Errorf("the socket is answered by process %d, the master is %d", st.PID, before.PID)
	}
	// A plain second run ends at once, in whichever directory.
	if code, _, errs := w.command(w.runArgs()...); code != 1 || !strings.Contains(errs, "is in use by process") {
		t.Errorf("a second run in the directory: exit %d\n%s", code, errs)
	}
	other := *w.job
	other.data = t.TempDir()
	if code, _, errs := other.command(other.runArgs()...); code != 1 || !strings.Contains(errs, fmt.Sprintf("is held by process %d on ", before.PID)) || !strings.Contains(errs, "since 20") {
		t.Errorf("a second run in another directory: exit %d\n%s", code, errs)
	}

	goroutines := master.gauge("go_goroutines")
	for i := range cuts {
		at := master.state().Committed
		proxy.Refuse()
		time.Sleep(time.Second) // the cut's length is what is tested
		proxy.Accept(t)
		st, took := master.becomes("the master goes on after a cut", func(st *server.Status) bool { return leads(st) && st.Committed > at+10 && proxy.Open() == 1 })
		if st.Epoch != before.Epoch {
			t.Fatalf("cut %d changed the epoch from %d to %d", i+1, before.Epoch, st.Epoch)
		}
		if took > w.session { // as one that has to take the lock again
			t.Errorf("cut %d held the master up for %s", i+1, took)
		}
	}
	if role := standby.state().Role; role != engine.Standby.String() {
		t.Errorf("the standby is %s", role)
	}
	// Those of HTTP and of fetches come and go.
	if now := master.gauge("go_goroutines"); now > goroutines+10 {
		t.Errorf("%v goroutines before %d cuts, %v afterwards", goroutines, cuts, now)
	}
	if n := proxy.Open(); n != 1 {
		t.Errorf("%d connections of one process", n)
	}

	master.signal(syscall.SIGKILL)
	killed := time.Now()
	after, _ := standby.becomes("the standby leads", leads)
	if took := time.Since(killed); took > w.session+2*time.Second {
		t.Errorf("the standby led %s after the kill", took)
	} else {
		t.Logf("the standby led %s after the kill, epoch %d after %d", took.Round(time.Millisecond), after.Epoch, before.Epoch)
	}
	if after.Epoch <= before.Epoch {
		t.Errorf("epoch %d after %d", after.Epoch, before.Epoch)
	}
	if st, ok := w.status(); !ok || st.PID != after.PID {
		t.Errorf("the socket is answered by process %d, the master is %d", st.PID, after.PID)
	}
	at := after.Committed
	standby.becomes("it counts", func(st *server.Status) bool { return st.Committed > at })
	stop()
	standby.becomes("all is counted", func(st *server.Status) bool { return committed(*st) == w.sent.Load() })
	standby.signal(syscall.SIGTERM)
	if code := standby.exit(patience); code != 0 {
		t.Errorf("exit %d\n%s", code, standby.errs.String())
	}
	w.exact()
}

// TestLockDeposedMaster: a master is stopped for longer than its session, and somebody else holds the lock when it wakes. It changes nothing
// outside its directory, says so, and ends.
func TestLockDeposedMaster(t *testing.T) {
	rounds := 2
	if testenv.Full() {
		rounds = 10
	}
	w := newLocked(t, 4*time.Second)
	stop := w.produce()
	for range rounds {
		p := w.spawn("run", "--listen", "127.0.0.1:0")
		began, _ := p.becomes("it leads", leads)
		p.becomes("it counts", func(st *server.Status) bool { return st.Committed > began.Committed+5 })
		p.signal(syscall.SIGSTOP)

		conn, err := zkconn.New(zkconn.Config{Servers: w.z.Servers(), Chroot: w.chroot})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := zkstore.NewLock(zkstore.Config{Pipeline: "words", ID: "words", Chroot: w.chroot}, sessionOf{conn}, conn.Close)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		lease, err := lock.Acquire(ctx, true)
		if err != nil {
			t.Fatalf("the lock of a stopped process: %v", err)
		}
		if err := lease.Claim(ctx, lease.Epoch()+1); err != nil {
			t.Fatal(err)
		}
		// What the process had sent before it was stopped, a transaction that the brokers are settling included, has landed by now.
		before := w.outside()
		p.signal(syscall.SIGCONT)
		code := p.exit(patience)
		if code != 1 {
			t.Errorf("exit %d, want 1\n%s", code, p.errs.String())
		}
		w.tells(p.errs.String(), "is lost", "start again")
		if after := w.outside(); len(differing(before, after)) > 0 {
			t.Errorf("the deposed master has changed %v\nbefore: %v\nafter: %v", differing(before, after), before, after)
		}
		if err := lock.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	stop()
	w.run(0)
	w.exact()
}

type sessionOf struct{ *zkconn.Conn }

func (c sessionOf) Session() zkstore.Session {
	s := c.Conn.Session()
	return zkstore.Session{ID: s.ID, Timeout: s.Timeout, Up: s.State == zkconn.Connected}
}

// TestLockChangesHands: the roles go back and forth between two processes on one directory: as the leader is stopped and wakes, and as it ends in
// order.
func TestLockChangesHands(t *testing.T) {
	w := newLocked(t, 10*time.Second)
	stop := w.produce()
	run := []string{"run", "--standby", "--listen", "127.0.0.1:0"}
	a := w.spawn(run...)
	first, _ := a.becomes("the first leads", leads)
	b := w.spawn(run...)
	b.becomes("the second waits", func(st *server.Status) bool {
		return st.Role == engine.Standby.String() && strings.Contains(fmt.Sprint(st.Reasons), "is held by")
	})

	a.signal(syscall.SIGSTOP)
	b.becomes("the second waits for the directory", func(st *server.Status) bool {
		return strings.Contains(fmt.Sprint(st.Reasons), fmt.Sprintf("is in use by process %d", first.PID))
	})
	a.signal(syscall.SIGCONT)
	second, _ := b.becomes("the second leads", leads)
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	again, _ := a.becomes("the first waits again", func(st *server.Status) bool {
		return st.Role == engine.Standby.String() && strings.Contains(fmt.Sprint(st.Reasons), fmt.Sprintf("is held by process %d", second.PID))
	})
	if again.PID != first.PID {
		t.Errorf("process %d in place of %d", again.PID, first.PID)
	}
	if st, ok := w.status(); !ok || st.PID != second.PID {
		t.Errorf("the socket is answered by process %d, the master is %d", st.PID, second.PID)
	}
	at := second.Committed
	b.becomes("it counts", func(st *server.Status) bool { return st.Committed > at })

	b.signal(syscall.SIGTERM)
	ended := time.Now()
	third, _ := a.becomes("the first leads again", leads)
	if took := time.Since(ended); took > w.session-time.Second { // what isn't given up goes with its session
		t.Errorf("an orderly end was followed by a new leader after %s", took)
	}
	if code := b.exit(patience); code != 0 {
		t.Errorf("exit %d\n%s", code, b.errs.String())
	}
	if third.Epoch <= second.Epoch {
		t.Errorf("epoch %d after %d", third.Epoch, second.Epoch)
	}
	stop()
	a.becomes("all is counted", func(st *server.Status) bool { return committed(*st) == w.sent.Load() })
	a.signal(syscall.SIGTERM)
	if code := a.exit(patience); code != 0 {
		t.Errorf("exit %d\n%s", code, a.errs.String())
	}
	w.exact()
	if left, _, err := w.by.Children(w.chroot + "/trident/words/lock"); err != nil || len(left) > 0 {
		t.Errorf("%v is left of the queue, %v", left, err)
	}
	names, err := os.ReadDir(w.store())
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == server.SocketName }) {
		t.Error("a socket is left")
	}
}

// TestStandbyNeedsALock: without one nothing says who leads.
func TestStandbyNeedsALock(t *testing.T) {
	j := newJob(t, nil, "pipeline: words\nsources:\n  lines:\n    generate: {kind: words, count: 5}\nstreams:\n  counts:\n    from: lines\n    steps:\n      - aggregate: {n: count()}\n")
	if code, _, errs := j.command(j.runArgs("--standby")...); code != 2 || !strings.Contains(errs, "role: lock") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}
