package storm

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
)

// sound fails the test for what a reader may not return: neither an error nor positions that could be gone on from.
func sound(t *testing.T, l *Left, err error) {
	t.Helper()
	if err != nil {
		if batch.KindOf(err) != batch.Permanent {
			t.Fatalf("%v is transient", err)
		}
		return
	}
	if len(l.Positions) == 0 {
		t.Fatal("neither positions nor an error: a pipeline would begin anew")
	}
	for _, p := range l.Positions {
		if p.Next < 0 || p.Partition < 0 || p.Topic == "" {
			t.Fatalf("%+v is no position", p)
		}
	}
}

func FuzzReadFile(f *testing.F) {
	f.Add([]byte(`{"topic":"words","partition":0,"next":120}`))
	f.Add([]byte(`[{"topic":"words","partition":0,"next":120},{"topic":"words","partition":1,"next":1e3}]`))
	f.Add([]byte(`{"positions":[{"topic":"words","partition":0,"next":120}, 3]}`))
	f.Add([]byte("topic,partition,next\nwords,0,120\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ReadFile("positions", bytes.NewReader(b))
		sound(t, l, err)
		if err != nil && !strings.Contains(err.Error(), "positions") {
			t.Errorf("%v doesn't name the file", err)
		}
	})
}

// FuzzNodes puts anything into one of the nodes that Storm's spouts leave.
func FuzzNodes(f *testing.F) {
	for _, w := range written {
		text, err := os.ReadFile(filepath.Join("testdata", w.file))
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, data, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
				f.Add([]byte(data), uint8(0))
				f.Add([]byte(data), uint8(3))
			}
		}
	}
	f.Add([]byte(`{"offset":9223372036854775807,"nextOffset":-1}`), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		for _, w := range written {
			paths, nodes := fixture(t, w.file)
			nodes[paths[int(which)%len(paths)]] = string(data)
			l, err := w.read(t, nodes, "")
			sound(t, l, err)
		}
	})
}

func FuzzCommitted(f *testing.F) {
	f.Add(int64(7), `{"topologyId":"words-1","taskId":3,"threadName":"t"}`)
	f.Add(int64(7), "{topic-partition=words-0, offset=7, numFails=0}")
	f.Add(int64(9223372036854775807), "{topic-partition=words-0, offset=9223372036854775807, numFails=0}")
	f.Fuzz(func(t *testing.T, offset int64, metadata string) {
		if n, _, err := Committed(offset, metadata); err == nil && (n < 0 || n != offset && n != offset+1) {
			t.Errorf("offset %d goes on at %d", offset, n)
		}
	})
}

func FuzzSettle(f *testing.F) {
	f.Add([]byte("[3,10]"), int64(4), uint8(1))
	f.Add([]byte("[4,10,null]"), int64(4), uint8(2))
	f.Add([]byte("12"), int64(4), uint8(0))
	f.Fuzz(func(t *testing.T, stored []byte, current int64, format uint8) {
		v, ok, err := Format(format%uint8(len(formats))).Settle(json.RawMessage(stored), current)
		if err == nil && ok && format%uint8(len(formats)) != 0 && !json.Valid(v) {
			t.Errorf("%q settles as %q", stored, v)
		}
	})
}
