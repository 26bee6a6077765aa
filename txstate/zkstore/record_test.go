package zkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

const (
	store = "0123456789abcdef0123456789abcdef"
	other = "fedcba9876543210fedcba9876543210"
	base  = "/trident/words"
)

// history is the ledger of a store: chain(txid) = 100 + txid, unless another is given.
type history struct {
	id    string
	txid  batch.Txid
	chain func(batch.Txid) uint64
	from  batch.Txid // the first entry that the ledger still has
}

func (h history) standing() txstate.Standing {
	if h.chain == nil {
		h.chain = chainOf
	}
	s := txstate.Standing{
		Store: h.id, Empty: h.txid == 0, Txid: h.txid, Epoch: 1,
		ChainAt: func(_ context.Context, txid batch.Txid) (uint64, bool, error) {
			return h.chain(txid), txid >= h.from && txid <= h.txid, nil
		},
	}
	if h.txid > 0 {
		s.Chain, s.Positions = h.chain(h.txid), at(h.txid).Positions
	}
	return s
}

func chainOf(txid batch.Txid) uint64 { return 100 + uint64(txid) }

// at is where a store stands after txid: two partitions, of which one moves.
func at(txid batch.Txid) txstate.Point {
	return txstate.Point{
		Txid: txid, Epoch: 2, Time: time.Date(2026, 12, 1, 10, 0, int(txid%60), 0, time.UTC), Chain: chainOf(txid),
		Positions: []txstate.SavedPosition{saved("lines", "lines", 0, int64(10*txid), txid), saved("lines", "lines", 1, 5, 1)},
	}
}

func open(t *testing.T, f *fake, change func(*Config)) *Record {
	t.Helper()
	cfg := Config{Pipeline: "words", ID: "words"}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shut ends a record; it must succeed.
func shut(t *testing.T, r *Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// found reads the record that is there.
func (f *fake) found(t *testing.T) *recordNode {
	t.Helper()
	r, err := parseRecord([]byte(f.get(base + "/record")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// follows lets a new record of a store reconcile and write where that stands.
func follows(t *testing.T, f *fake, h history, rewind bool) error {
	t.Helper()
	r := open(t, f, nil)
	defer shut(t, r)
	if rewind {
		r.Rewind()
	}
	if err := r.Reconcile(t.Context(), h.standing()); err != nil {
		return err
	}
	p := at(h.txid)
	if h.chain != nil {
		p.Chain = h.chain(h.txid)
	}
	r.Advance(p)
	synctest.Wait()
	return r.Err()
}

// foreignChain is that of another history.
func foreignChain(txid batch.Txid) uint64 { return 7000 + uint64(txid) }

// TestReconcile goes through what a start may find.
func TestReconcile(t *testing.T) {
	written := func(pipeline, id string, txid batch.Txid, chain func(batch.Txid) uint64) func(*fake) {
		return func(f *fake) {
			p := at(txid)
			if chain != nil {
				p.Chain = chain(txid)
			}
			c := contentOf(pipeline, id, &p, nil, time.Unix(0, 0))
			f.put(base+"/record", string(c.record.encode()))
			for _, page := range c.pages {
				f.put(base+"/"+pagePath(page.source, page.page), string(page.data))
			}
		}
	}
	page := func(data string) func(*fake) {
		return func(f *fake) {
			written("words", store, 7, nil)(f)
			f.put(base+"/sources/lines/0000", data)
		}
	}
	ours := history{id: store, txid: 8}
	empty := history{id: store}
	for _, tc := range []struct {
		name   string
		found  func(*fake) // nil: nothing
		store  history
		rewind bool
		code   batch.Code // of the refusal; empty: it is written
		says   []string   // in the refusal
		kept   string     // what is kept beside
	}{
		{name: "missing", store: ours},
		{name: "missing, empty store", store: empty},
		{name: "older", found: written("words", store, 5, nil), store: ours},
		{name: "equal", found: written("words", store, 8, nil), store: ours},
		{name: "older than the ledger reaches", found: written("words", store, 5, nil), store: history{id: store, txid: 8, from: 7}},
		{
			name: "newer", found: written("words", store, 9, nil), store: ours, code: batch.CodeRecordAhead,
			says: []string{"txid 9 (lines-0 at 90, lines-1 at 5)", "stands at txid 8 (lines-0 at 80, lines-1 at 5)", "--data", "savepoint", "offsets export FILE --to zookeeper", base + "/record"},
		},
		{name: "garbled", found: func(f *fake) { f.put(base+"/record", "{]") }, store: ours, kept: "{]"},
		{name: "garbled, empty store", found: func(f *fake) { f.put(base+"/record", "{]") }, store: empty, code: batch.CodeRecordGarbled, says: []string{base + "/record", "--fresh"}},
		{name: "garbled, empty store, fresh", found: func(f *fake) { f.put(base+"/record", "{]") }, store: empty, rewind: true, kept: "{]"},
		{name: "an empty node", found: func(f *fake) { f.put(base+"/record", "") }, store: ours},
		{name: "an empty node, empty store", found: func(f *fake) { f.put(base+"/record", "") }, store: empty, code: batch.CodeRecordGarbled, says: []string{"it is empty"}},
		{name: "another pipeline", found: written("sums", other, 3, nil), store: ours, code: batch.CodeRecordForeign, says: []string{"pipeline sums", base + "/record", "zookeeper.id"}},
		{name: "another pipeline, fresh", found: written("sums", other, 3, nil), store: empty, rewind: true, code: batch.CodeRecordForeign, says: []string{"pipeline sums"}},
		{name: "another store", found: written("words", other, 5, foreignChain), store: ours, code: batch.CodeRecordForeign, says: []string{"another history", "offsets export"}},
		{name: "another store ahead", found: written("words", other, 9, foreignChain), store: ours, code: batch.CodeRecordForeign, says: []string{"another store", "txid 9"}},
		{name: "another store of the same history", found: written("words", other, 5, nil), store: ours},
		{name: "another store, older than the ledger reaches", found: written("words", other, 5, nil), store: history{id: store, txid: 8, from: 7}, code: batch.CodeRecordForeign, says: []string{"doesn't reach back"}},
		{name: "a copy of the store that went another way", found: written("words", store, 5, foreignChain), store: ours, code: batch.CodeRecordForeign, says: []string{"another history"}},
		{name: "another store that has committed nothing", found: written("words", other, 0, nil), store: ours},
		{name: "another store, fresh", found: written("words", other, 9, foreignChain), store: empty, rewind: true},
		{name: "written on purpose, by positions alone", found: written("words", "", 5, nil), store: ours},
		{name: "written on purpose, ahead", found: written("words", "", 9, nil), store: ours, code: batch.CodeRecordAhead},
		{name: "a garbled page", found: page("?"), store: ours, kept: "?"},
		{name: "an empty page", found: page(""), store: ours},
		{name: "a page of another pipeline", found: page(`{"tridentd":1,"pipeline":"sums","source":"lines"}`), store: ours, code: batch.CodeRecordForeign, says: []string{base + "/sources/lines/0000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				if tc.found != nil {
					tc.found(f)
				}
				before := f.get(base + "/record")
				err := follows(t, f, tc.store, tc.rewind)
				if tc.code != "" {
					if batch.CodeOf(err) != tc.code || batch.KindOf(err) != batch.Permanent {
						t.Errorf("%v, want a permanent %s", err, tc.code)
					}
					for _, s := range tc.says {
						if err == nil || !strings.Contains(err.Error(), s) {
							t.Errorf("%v doesn't say %q", err, s)
						}
					}
					if f.get(base+"/record") != before {
						t.Error("what was found has been written over")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if r := f.found(t); r.Pipeline != "words" || r.Store != store || r.Committed.Txid != tc.store.txid {
					t.Errorf("the record is %+v", r)
				}
				var beside []string
				for _, p := range f.paths(base) {
					if isGarbledName(p) {
						beside = append(beside, f.get(base+"/"+p))
					}
				}
				if want := []string{tc.kept}; tc.kept != "" && !slices.Equal(beside, want) || tc.kept == "" && len(beside) > 0 {
					t.Errorf("kept beside: %q, want %q", beside, tc.kept)
				}
			})
		})
	}
}

// TestCarried: what an empty store is held against.
func TestCarried(t *testing.T) {
	f := newFake()
	if err := runTo(t, f, 3); err != nil {
		t.Fatal(err)
	}
	r := open(t, f, nil)
	defer shut(t, r)
	all, err := r.Carried(t.Context())
	if err != nil || len(all) != 2 || all[0].Txid != 3 || all[0].Next != 30 || all[1].Next != 5 || all[0].Epoch != 2 {
		t.Errorf("carried %+v, %v", all, err)
	}
	f.remove(base + "/record")
	if all, err := r.Carried(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("by pages alone: %+v, %v", all, err)
	}
	f.put(base+"/record", "?")
	if _, err := r.Carried(t.Context()); batch.CodeOf(err) != batch.CodeRecordGarbled || batch.KindOf(err) != batch.Permanent {
		t.Errorf("a garbled record: %v", err)
	}
	p := txstate.Point{Txid: 9, Epoch: 1}
	c := contentOf("words", store, &p, nil, time.Unix(0, 0))
	f.put(base+"/record", string(c.record.encode()))
	f.remove(base + "/sources")
	if all, err := r.Carried(t.Context()); err != nil || len(all) != 1 || all[0].Txid != 9 {
		t.Errorf("without a position: %+v, %v", all, err)
	}
}

// runTo has a record follow a store from txid 1 to txid.
func runTo(t *testing.T, f *fake, txid batch.Txid) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { err = follows(t, f, history{id: store, txid: txid}, false) })
	return err
}

// TestWrites: only what has changed is written, at the interval; the newest wins; first beginnings go along, further ones are
// written for themselves.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var ops [][]string
		f.before = func(all []any) error {
			var names []string
			for _, op := range all {
				switch op := op.(type) {
				case *zk.CreateRequest:
					names = append(names, "create "+op.Path)
				case *zk.SetDataRequest:
					names = append(names, "set "+op.Path)
				}
			}
			ops = append(ops, names)
			return nil
		}
		r := open(t, f, func(c *Config) { c.UpdateInterval = 2 * time.Second })
		defer shut(t, r)
		if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
			t.Fatal(err)
		}
		r.Advance(at(1))
		synctest.Wait()
		for txid := batch.Txid(2); txid <= 40; txid++ { // 100 ms apart
			r.Begun(txid, batch.Attempt{Epoch: 2, N: 1})
			time.Sleep(100 * time.Millisecond)
			r.Advance(at(txid))
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		first := []string{"create /trident/words/sources", "create /trident/words/sources/lines", "create /trident/words/sources/lines/0000", "create /trident/words/record"}
		if len(ops) != 3 || !slices.Equal(ops[0], first) || !slices.Equal(ops[1], []string{"set /trident/words/sources/lines/0000", "set /trident/words/record"}) {
			t.Errorf("in 4 s: %q", ops)
		}
		if rec := f.found(t); rec.Committed.Txid != 40 || rec.Committed.Chain != "000000000000008c" || rec.Working != nil || rec.Epoch != 2 {
			t.Errorf("the record is %+v", rec)
		}
		if st := r.Status(); st.Txid != 40 || st.Pending || st.Err != nil || st.Written.IsZero() {
			t.Errorf("status %+v", st)
		}
		ops = nil
		r.Begun(41, batch.Attempt{Epoch: 2, N: 1})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(ops) != 0 {
			t.Errorf("a first beginning was written for itself: %q", ops)
		}
		r.Begun(41, batch.Attempt{Epoch: 2, N: 2})
		r.Begun(42, batch.Attempt{Epoch: 2, N: 1})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w := f.found(t).Working; w == nil || *w != (workingPart{Txid: 41, Attempt: 2, Epoch: 2}) || len(ops) != 1 {
			t.Errorf("working on %+v, written by %q", w, ops)
		}
	})
}

// TestEachBatch: without an interval nothing waits.
func TestEachBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := open(t, f, nil)
		defer shut(t, r)
		for txid := batch.Txid(1); txid <= 5; txid++ {
			r.Advance(at(txid))
			synctest.Wait()
			if got := f.found(t).Committed.Txid; got != txid {
				t.Errorf("at txid %d, after %d", got, txid)
			}
		}
		if f.multi != 5 {
			t.Errorf("%d requests", f.multi)
		}
	})
}

// TestLostReply: a write whose outcome isn't known is looked at again; our own content counts as written, and nothing is
// written twice, lost or complained about.
func TestLostReply(t *testing.T) {
	// always, never, by turns
	for name, carriedOut := range map[string]func(batch.Txid) bool{
		"carried out":     func(batch.Txid) bool { return true },
		"not carried out": func(batch.Txid) bool { return false },
		"by turns":        func(txid batch.Txid) bool { return txid%2 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				var lose bool
				var now batch.Txid
				drop := func(done bool) func([]any) error {
					return func([]any) error {
						if !lose || carriedOut(now) != done {
							return nil
						}
						lose = false
						return batch.NewError(batch.Transient, batch.CodeZKCut, "zookeeper", zk.ErrConnectionClosed, "")
					}
				}
				f.before, f.after = drop(false), drop(true)
				r := open(t, f, nil)
				defer shut(t, r)
				for now = 1; now <= 4; now++ {
					lose = true
					r.Advance(at(now))
					time.Sleep(time.Second)
					synctest.Wait()
					if got := f.found(t).Committed.Txid; got != now {
						t.Errorf("at txid %d, after %d", got, now)
					}
				}
				st := r.Status()
				if st.Err != nil || st.Pending || st.Failures[batch.CodeZKCut] != 4 || len(st.Failures) != 1 || f.multi != 4 {
					t.Errorf("status %+v after %d requests", st, f.multi)
				}
			})
		})
	}
}

// TestGarbledIsKeptByTheWrite: judging writes nothing; what can't be read is kept beside just before it is written over, on the
// same condition.
func TestGarbledIsKeptByTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(base+"/record", "{]")
		f.put(base+"/lock/holder", "")
		f.put(base+"/sources/lines/0000", "?")
		before := f.paths(base)
		r := open(t, f, func(c *Config) {
			c.Guard = func() []any { return []any{&zk.CheckVersionRequest{Path: base + "/lock/holder"}} }
		})
		for range 2 {
			if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.paths(base); !slices.Equal(got, before) || f.multi != 0 || len(r.Status().Failures) != 0 {
			t.Errorf("judging leaves %q after %d requests, and counts %v", got, f.multi, r.Status().Failures)
		}
		f.put(base+"/lock/holder", "another process")
		r.Advance(at(1))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := f.paths(base); !slices.Equal(got, before) || f.multi != 0 {
			t.Errorf("without the lock it leaves %q after %d requests", got, f.multi)
		}
		f.mu.Lock()
		f.nodes[base+"/lock/holder"].version = 0
		f.mu.Unlock()
		time.Sleep(time.Minute)
		shut(t, r)
		var kept []string
		for _, p := range f.paths(base) {
			if isGarbledName(path.Base(p)) {
				kept = append(kept, f.get(base+"/"+p))
			}
		}
		if !slices.Equal(kept, []string{"{]", "?"}) || f.found(t).Committed.Txid != 1 || r.Status().Failures[batch.CodeRecordGarbled] != 1 {
			t.Errorf("kept %q, status %+v", kept, r.Status())
		}
	})
}

// TestMeddling: what somebody does to the nodes while a run writes them.
func TestMeddling(t *testing.T) {
	takeOver := func(pipeline, id string, txid batch.Txid, epoch batch.Epoch) func(*fake) {
		return func(f *fake) {
			p := at(txid)
			p.Epoch = epoch
			c := contentOf(pipeline, id, &p, nil, time.Unix(0, 0))
			f.put(base+"/record", string(c.record.encode()))
		}
	}
	for _, tc := range []struct {
		name string
		do   func(*fake)
		code batch.Code // the run ends with it; empty: the next batch is written
		fail batch.Code // counted
	}{
		{"the record deleted", func(f *fake) { f.remove(base + "/record") }, "", ""},
		{"a page deleted", func(f *fake) { f.remove(base + "/sources/lines/0000") }, "", ""},
		{"everything deleted", func(f *fake) { f.remove("/trident") }, "", ""},
		{"a page made by hand", func(f *fake) { f.put(base+"/sources/lines/0001", "") }, "", ""},
		{"rubbish in the record", func(f *fake) { f.put(base+"/record", "rubbish") }, "", batch.CodeRecordGarbled},
		{"rubbish in a page", func(f *fake) { f.put(base+"/sources/lines/0000", "rubbish") }, "", batch.CodeRecordGarbled},
		{"an older record", takeOver("words", store, 1, 2), "", batch.CodeRecordForeign},
		{"touched", func(f *fake) { f.put(base+"/record", f.get(base+"/record")) }, "", ""},
		{"a later run", takeOver("words", store, 2, 3), batch.CodeRecordForeign, ""},
		{"a copy of the store, ahead", takeOver("words", store, 9, 2), batch.CodeRecordAhead, ""},
		{"another store", takeOver("words", other, 9, 2), batch.CodeRecordForeign, ""},
		{"another pipeline", takeOver("sums", other, 1, 1), batch.CodeRecordForeign, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				r := open(t, f, nil)
				defer shut(t, r)
				if err := r.Reconcile(t.Context(), history{id: store, txid: 2}.standing()); err != nil {
					t.Fatal(err)
				}
				r.Advance(at(2))
				synctest.Wait()
				tc.do(f)
				before := f.get(base + "/record")
				r.Advance(at(3))
				time.Sleep(time.Minute)
				synctest.Wait()
				if tc.code != "" {
					select {
					case <-r.Broken():
					default:
						t.Fatal("the run isn't ended")
					}
					if err := r.Err(); batch.CodeOf(err) != tc.code || batch.KindOf(err) != batch.Permanent || !strings.Contains(err.Error(), base+"/record") {
						t.Errorf("%v, want %s", err, tc.code)
					}
					if err := r.Pass(t.Context()); batch.CodeOf(err) != tc.code {
						t.Errorf("the gate says %v", err)
					}
					if f.get(base+"/record") != before {
						t.Error("somebody else's record has been written over")
					}
					return
				}
				st := r.Status()
				if f.found(t).Committed.Txid != 3 || st.Err != nil || st.Pending || !strings.Contains(f.get(base+"/sources/lines/0000"), `"next":30`) {
					t.Errorf("not written: status %+v", st)
				}
				if tc.fail != "" && st.Failures[tc.fail] == 0 || tc.fail == "" && len(st.Failures) > 0 {
					t.Errorf("failures %v, want %q", st.Failures, tc.fail)
				}
			})
		})
	}
}

// TestContinue: nothing waits for servers that are away; what was missed is made up for soon after they are back.
func TestContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.setDown(errDown)
		r := open(t, f, func(c *Config) { c.RetryFor = 10 * time.Second })
		defer shut(t, r)
		if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
			t.Fatalf("a start with a store that isn't empty waits: %v", err)
		}
		for txid := batch.Txid(1); txid <= 60; txid++ {
			if err := r.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.Advance(at(txid))
			time.Sleep(time.Second)
		}
		st := r.Status()
		if st.Err == nil || batch.CodeOf(st.Err) != batch.CodeZKRefused || !st.Pending || st.Failures[batch.CodeZKRefused] < 5 || time.Since(st.Since) < 59*time.Second {
			t.Errorf("status while away: %+v", st)
		}
		f.setDown(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if st := r.Status(); st.Err != nil || st.Pending || f.found(t).Committed.Txid != 60 {
			t.Errorf("status a second after: %+v", st)
		}
	})
}

// TestLateJudgement: what a start under continue couldn't be told ends the run once it can, and isn't written over.
func TestLateJudgement(t *testing.T) {
	f := newFake()
	if err := runTo(t, f, 9); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f.setDown(errDown)
		r := open(t, f, nil)
		defer shut(t, r)
		if err := r.Reconcile(t.Context(), history{id: store, txid: 3}.standing()); err != nil {
			t.Fatal(err)
		}
		r.Advance(at(3))
		time.Sleep(time.Second)
		r.Advance(at(4))
		f.setDown(nil)
		<-r.Broken()
		if err := r.Err(); batch.CodeOf(err) != batch.CodeRecordAhead {
			t.Errorf("ended with %v", err)
		}
		if txid := f.found(t).Committed.Txid; txid != 9 {
			t.Errorf("the record is at %d", txid)
		}
	})
}

// TestUnreachedStart: who can't tell whether the pipeline has run waits, for retry.for if there is one.
func TestUnreachedStart(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy Policy
		txid   batch.Txid
	}{{"continue, empty store", Continue, 0}, {"stall", Stall, 5}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.setDown(errDown)
				r := open(t, f, func(c *Config) { c.WhileAway, c.RetryFor = tc.policy, time.Minute })
				defer shut(t, r)
				ask := func() error {
					if tc.txid == 0 {
						if _, err := r.Carried(t.Context()); err != nil {
							return err
						}
					}
					return r.Reconcile(t.Context(), history{id: store, txid: tc.txid}.standing())
				}
				if err := ask(); batch.KindOf(err) != batch.Transient || batch.CodeOf(err) != batch.CodeZKRefused {
					t.Errorf("at once: %v", err)
				}
				time.Sleep(30 * time.Second)
				f.setDown(nil)
				if err := ask(); err != nil {
					t.Errorf("once they are back: %v", err)
				}
				f.setDown(errDown)
				_ = ask()
				time.Sleep(time.Minute)
				if err := ask(); batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeZKRefused || !strings.Contains(err.Error(), "retry.for") {
					t.Errorf("after a minute: %v", err)
				}
			})
		})
	}
}

// TestStall: while the record can't be written nothing passes; afterwards it goes on.
func TestStall(t *testing.T) {
	for _, interval := range []time.Duration{0, 2 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				r := open(t, f, func(c *Config) { c.WhileAway, c.UpdateInterval = Stall, interval })
				defer shut(t, r)
				if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
					t.Fatal(err)
				}
				r.Advance(at(1))
				synctest.Wait()
				if err := r.Pass(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.setDown(errDown)
				passed := make(chan error, 1)
				go func() { passed <- r.Pass(t.Context()) }()
				time.Sleep(10 * time.Minute)
				select {
				case err := <-passed:
					t.Fatalf("passed while away: %v", err)
				default:
				}
				if h := r.Holding(); batch.CodeOf(h) != batch.CodeZKRefused {
					t.Errorf("held back as %v", h)
				}
				f.setDown(nil)
				began := time.Now()
				if err := <-passed; err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("held back for %s more", d)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				f.setDown(errDown)
				go func() { passed <- r.Pass(ctx) }()
				time.Sleep(time.Minute)
				why := errors.New("the run ends")
				cancel(why)
				if err := <-passed; !errors.Is(err, why) {
					t.Errorf("cut: %v", err)
				}
				f.setDown(nil)
			})
		})
	}
}

// TestStallWithoutAnswer: a server that takes requests and doesn't answer holds batches back, too.
func TestStallWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := open(t, f, func(c *Config) { c.WhileAway, c.UpdateInterval = Stall, 2*time.Second })
		defer shut(t, r)
		if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
			t.Fatal(err)
		}
		r.Advance(at(1))
		synctest.Wait()
		r.Advance(at(2)) // not written before the interval has passed
		time.Sleep(1900 * time.Millisecond)
		if err := r.Holding(); err != nil {
			t.Errorf("held back within the interval: %v", err)
		}
		r.mu.Lock()
		r.behind = r.behind.Add(-2 * time.Second) // as if its write took that long
		r.mu.Unlock()
		if err := r.Holding(); batch.CodeOf(err) != batch.CodeZKNoAnswer {
			t.Errorf("not held back: %v", err)
		}
	})
}

// TestStallEnds: after retry.for the run ends with the cause.
func TestStallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := open(t, f, func(c *Config) { c.WhileAway, c.RetryFor = Stall, time.Minute })
		defer shut(t, r)
		r.Advance(at(1))
		synctest.Wait()
		f.setDown(errDown)
		r.Advance(at(2))
		began := time.Now()
		err := r.Pass(t.Context())
		if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeZKRefused || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("passed with %v", err)
		}
		if d := time.Since(began); d < time.Minute || d > time.Minute+time.Second {
			t.Errorf("after %s", d)
		}
		f.setDown(nil)
	})
}

// TestStallIdle: servers that go away while everything is written are found out about by the batch that waits for them: it
// shows, and lasts for retry.for at most, however long the interval is.
func TestStallIdle(t *testing.T) {
	for _, tc := range []struct {
		name     string
		interval time.Duration
		pending  bool
	}{{"each batch", 0, false}, {"at an interval", 2 * time.Second, false}, {"within a long interval", time.Hour, true}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				var log bytes.Buffer
				r := open(t, f, func(c *Config) {
					c.WhileAway, c.RetryFor, c.UpdateInterval = Stall, time.Minute, tc.interval
					c.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
				})
				defer shut(t, r)
				r.Advance(at(1))
				synctest.Wait()
				if tc.pending {
					r.Advance(at(2))
				}
				time.Sleep(10 * time.Minute)
				f.setDown(errDown)
				time.Sleep(10 * time.Minute) // nobody waits
				passed := make(chan error, 1)
				began := time.Now()
				go func() { passed <- r.Pass(t.Context()) }()
				time.Sleep(time.Second)
				synctest.Wait()
				if st := r.Status(); batch.CodeOf(st.Err) != batch.CodeZKRefused || st.Failures[batch.CodeZKRefused] == 0 {
					t.Errorf("status while a batch waits: %+v", st)
				}
				if n := strings.Count(log.String(), "no batch commits until it can"); n != 1 {
					t.Errorf("warned %d times: %s", n, log.String())
				}
				f.setDown(nil)
				if err := <-passed; err != nil || time.Since(began) > 2*time.Second {
					t.Errorf("once they are back: %v, after %s", err, time.Since(began))
				}
				f.setDown(errDown)
				began = time.Now()
				err := r.Pass(t.Context())
				if batch.KindOf(err) != batch.Permanent || batch.CodeOf(err) != batch.CodeZKRefused || !strings.Contains(err.Error(), "retry.for") {
					t.Errorf("passed with %v", err)
				}
				if d := time.Since(began); d < time.Minute || d > time.Minute+time.Second {
					t.Errorf("after %s", d)
				}
				f.setDown(nil)
			})
		})
	}
}

// TestPermanent: what no retry mends ends a run that stalls at once, and is told a run that goes on as an error, once.
func TestPermanent(t *testing.T) {
	refusal := batch.NewError(batch.Permanent, batch.CodeConfiguration, "zookeeper", zk.ErrInvalidACL, "correct acl")
	for _, policy := range []Policy{Continue, Stall} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				var log bytes.Buffer
				r := open(t, f, func(c *Config) {
					c.WhileAway = policy
					c.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
				})
				f.before = func([]any) error { return refusal }
				r.Advance(at(1))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				err := r.Pass(ctx)
				if policy == Stall {
					if !errors.Is(err, zk.ErrInvalidACL) || batch.KindOf(err) != batch.Permanent || r.Err() == nil {
						t.Errorf("passed with %v, broken with %v", err, r.Err())
					}
					shut(t, r)
					return
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if err != nil || r.Err() != nil {
					t.Errorf("passed with %v, broken with %v", err, r.Err())
				}
				if n := strings.Count(log.String(), "[ERROR]"); n != 1 || strings.Contains(log.String(), "[WARN]") || r.Status().Failures[batch.CodeConfiguration] < 5 {
					t.Errorf("%d errors are logged for %+v: %s", n, r.Status(), log.String())
				}
				f.mu.Lock()
				f.before = nil
				f.mu.Unlock()
				time.Sleep(time.Minute)
				shut(t, r)
			})
		})
	}
}

// TestPermanentStart: so is what a start is told.
func TestPermanentStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.setDown(batch.NewError(batch.Permanent, batch.CodeConfiguration, "zookeeper", errors.New("the certificate is none"), "correct tls"))
		var log bytes.Buffer
		r := open(t, f, func(c *Config) { c.Logger = hclog.New(&hclog.LoggerOptions{Output: &log}) })
		if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); err != nil {
			t.Errorf("a start under continue ends with %v", err)
		}
		r.Advance(at(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if strings.Count(log.String(), "[ERROR]") != 1 || strings.Contains(log.String(), "[WARN]") {
			t.Errorf("logged: %s", log.String())
		}
		f.setDown(nil)
		shut(t, r)
		f.setDown(batch.NewError(batch.Permanent, batch.CodeConfiguration, "zookeeper", errors.New("the certificate is none"), "correct tls"))
		r = open(t, f, func(c *Config) { c.WhileAway = Stall })
		if err := r.Reconcile(t.Context(), history{id: store, txid: 1}.standing()); batch.KindOf(err) != batch.Permanent {
			t.Errorf("a start under stall waits: %v", err)
		}
		shut(t, r)
	})
}

// TestClose: what is outstanding is written at the end, and told if it can't be.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := open(t, f, func(c *Config) { c.UpdateInterval = time.Hour })
		r.Advance(at(1))
		synctest.Wait()
		r.Advance(at(2))
		shut(t, r)
		if txid := f.found(t).Committed.Txid; txid != 2 {
			t.Errorf("closed at txid %d", txid)
		}
		r = open(t, f, nil)
		f.setDown(errDown)
		r.Advance(at(3))
		synctest.Wait()
		if err := r.Close(t.Context()); batch.CodeOf(err) != batch.CodeZKRefused || !strings.Contains(err.Error(), "the next run writes it") {
			t.Errorf("closed with %v", err)
		}
	})
}

// TestGuard: a write is conditional on what the guard asks for.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("/trident/words/epoch", "7")
		r := open(t, f, func(c *Config) {
			c.Guard = func() []any { return []any{&zk.CheckVersionRequest{Path: "/trident/words/epoch"}} }
		})
		defer shut(t, r)
		r.Advance(at(1))
		synctest.Wait()
		f.put("/trident/words/epoch", "8")
		r.Advance(at(2))
		time.Sleep(time.Second)
		synctest.Wait()
		if st := r.Status(); st.Err == nil || f.found(t).Committed.Txid != 1 {
			t.Errorf("written by a master that was deposed: %+v", st)
		}
		f.put("/trident/words/epoch", "8")
		f.mu.Lock()
		f.nodes["/trident/words/epoch"].version = 0
		f.mu.Unlock()
	})
}

// TestManyPartitions: no request is too large, all is written, and a move of few partitions writes few pages.
func TestManyPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := open(t, f, nil)
		defer shut(t, r)
		p := txstate.Point{Txid: 1, Epoch: 1, Positions: wide(func(int) batch.Txid { return 1 })}
		r.Advance(p)
		synctest.Wait()
		if st := r.Status(); st.Err != nil || st.Pending {
			t.Fatalf("status %+v", st)
		}
		if f.bytes > 1<<20-1 || f.multi < 2 {
			t.Errorf("%d requests, the largest of %d bytes", f.multi, f.bytes)
		}
		if all, err := r.Carried(t.Context()); err != nil || len(all) != 25000 {
			t.Errorf("%d positions, %v", len(all), err)
		}
		sets := 0
		f.before = func(ops []any) error { sets += len(ops); return nil }
		p.Txid, p.Positions = 2, wide(func(topic int) batch.Txid {
			if topic == 1200 {
				return 2
			}
			return 1
		})
		r.Advance(p)
		synctest.Wait()
		if sets != 2 {
			t.Errorf("%d nodes written for one topic", sets)
		}
		// Fewer partitions: pages that aren't needed any more are removed.
		r.Rewind()
		p.Txid, p.Positions = 3, p.Positions[:100]
		r.Advance(p)
		synctest.Wait()
		if got := f.paths(base); !slices.Equal(got, []string{"record", "sources", "sources/wide", "sources/wide/0000"}) {
			t.Errorf("left are %q", got)
		}
	})
}

// TestCutInTheMiddle: whenever a write of several requests is cut off, each partition is found, not behind the record.
func TestCutInTheMiddle(t *testing.T) {
	all := wide(func(int) batch.Txid { return 1 })
	for cut := 1; cut < 9; cut++ {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			r := open(t, f, nil)
			p := txstate.Point{Txid: 1, Epoch: 1, Positions: all[100:]}
			r.Advance(p)
			synctest.Wait()
			n := 0
			f.before = func([]any) error {
				if n++; n > cut {
					return errDown
				}
				return nil
			}
			p.Txid, p.Positions = 2, wide(func(int) batch.Txid { return 2 }) // the first ones are new: the others move on
			r.Advance(p)
			synctest.Wait()
			_ = r.Close(t.Context())
			rec := f.found(t)
			r = open(t, f, nil)
			defer shut(t, r)
			got, err := r.Carried(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at := map[batch.Partition]batch.Txid{}
			for _, c := range got {
				at[c.Partition] = c.Txid
			}
			for _, p := range all[100:] {
				if at[p.Partition] < 1 || at[p.Partition] < rec.Committed.Txid {
					t.Fatalf("cut after %d requests: %s at txid %d, the record at %d", cut, p.Partition, at[p.Partition], rec.Committed.Txid)
				}
			}
		})
	}
}

// TestExport writes over whatever is there, and the store is taken for the record's own afterwards.
func TestExport(t *testing.T) {
	for name, found := range map[string]func(*fake){
		"nothing": func(*fake) {},
		"rubbish": func(f *fake) { f.put(base+"/record", "rubbish") },
		"ahead": func(f *fake) {
			c := contentOf("words", other, new(at(50)), nil, time.Unix(0, 0))
			f.put(base+"/record", string(c.record.encode()))
		},
		"a source": func(f *fake) { f.put(base+"/sources/gone/0000", `{"tridentd":1,"pipeline":"sums","source":"gone"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			found(f)
			r := open(t, f, nil)
			if err := r.ExportPoint(t.Context(), store, at(8)); err != nil {
				t.Fatal(err)
			}
			shut(t, r)
			if rec := f.found(t); rec.Committed.Txid != 8 || rec.Store != store {
				t.Errorf("the record is %+v", rec)
			}
			shown, err := r.Shown(t.Context())
			if err != nil || len(shown) != 2 || shown[0].Txid != 8 || shown[0].By != "" {
				t.Errorf("shown %+v, %v", shown, err)
			}
			if err := runTo(t, f, 9); err != nil {
				t.Errorf("the next run: %v", err)
			}
		})
	}
}
