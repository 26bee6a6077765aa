package zkstore

import (
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// FuzzNodes puts anything into the nodes of a record. A start on an empty store must be told of what is there or be refused: what can't
// be read never counts as nothing, as the pipeline would begin at 1 then. A start on a store that has run must not panic either.
func FuzzNodes(f *testing.F) {
	p := at(12)
	whole := contentOf("words", "0123456789abcdef0123456789abcdef", &p, &workingPart{Txid: 13, Attempt: 1, Epoch: 2}, time.Unix(0, 0))
	f.Add(whole.record.encode(), whole.pages[0].data)
	f.Add([]byte(`{"tridentd":1,"pipeline":"words","committed":{"txid":-1}}`), []byte("{}"))
	f.Add([]byte("null"), []byte(`{"tridentd":1,"pipeline":"words","source":"lines","positions":[{"topic":"lines","partition":-1,"next":-1}]}`))
	f.Add(whole.record.encode(), []byte(`{"tridentd":1,"pipeline":"words","source":"lines","positions":[{"topic":"lines","partition":0,"next":-1}]}`))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, record, page []byte) {
		ens := newFake()
		ens.put(base+"/record", string(record))
		ens.put(base+"/sources/lines/0000", string(page))
		r := open(t, ens, nil)
		defer shut(t, r)
		carried, err := r.Carried(t.Context())
		rec, recErr := parseRecord(record)
		switch {
		case recErr != nil && err == nil:
			t.Fatalf("a record that can't be read (%v) is passed over: %+v", recErr, carried)
		case err != nil && batch.KindOf(err) != batch.Permanent:
			t.Fatalf("%v is transient: it would be asked again for ever", err)
		case err == nil && rec.Committed.Txid > 0 && len(carried) == 0:
			t.Fatalf("the record tells of txid %d, and nothing is carried", rec.Committed.Txid)
		}
		for _, c := range carried {
			if c.Next < 0 || c.Number < 0 {
				t.Fatalf("%+v is no position", c)
			}
		}
		if _, err := r.Shown(t.Context()); err != nil && batch.KindOf(err) != batch.Permanent {
			t.Fatal(err)
		}
		_ = r.Reconcile(t.Context(), txstate.Standing{Store: "s", Empty: true, Epoch: 1})
		_ = r.Reconcile(t.Context(), history{id: "0123456789abcdef0123456789abcdef", txid: 12, from: 1}.standing())
	})
}

// FuzzEpoch puts anything into the lock's nodes: an epoch that can't be read is an error, never the epoch 0.
func FuzzEpoch(f *testing.F) {
	f.Add(encodeNode(epochNode{Version: lockFormat, Pipeline: "words", Epoch: 7}), encodeNode(self(time.Unix(0, 0), true)))
	f.Add([]byte(`{"tridentd":1,"pipeline":"words"}`), []byte("null"))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, epoch, holder []byte) {
		ens := newFake()
		l, err := NewLock(Config{Pipeline: "words", ID: "words"}, newFakeSession(ens, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		ens.put(l.epoch, string(epoch))
		ens.put(l.dir+"/x-0000000001", string(holder))
		got, _, err := l.readEpoch(t.Context())
		if err == nil && got == 0 {
			t.Errorf("%q is taken for epoch 0", epoch)
		}
		if err != nil && batch.KindOf(err) != batch.Permanent {
			t.Errorf("%v is transient", err)
		}
		if _, err := l.ask(t.Context(), "x-0000000001"); err != nil {
			t.Error(err)
		}
	})
}
