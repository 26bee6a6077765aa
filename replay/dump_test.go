package replay_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/replay"
)

func rowText(row []value.Value) string {
	if row == nil {
		return "-"
	}
	var all []string
	for _, v := range row {
		all = append(all, string(value.AppendText(nil, v)))
	}
	return strings.Join(all, " ")
}

// dump returns what a batch wrote as "state op key: old change new".
func (w *world) dump(data string, o replay.Options) (lines []string, from replay.Written) {
	w.t.Helper()
	db := w.open(data, true)
	defer db.Close() //nolint:errcheck // nothing was written
	o.Store = db
	from, err := replay.Writes(w.t.Context(), w.pipeline(), o, func(wr replay.Write) error {
		old, now := "?", "?"
		if wr.KnownOld {
			old = rowText(wr.Old)
		}
		if wr.KnownNew {
			now = rowText(wr.New)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %s, %s, %s", wr.Schema.Name, wr.Op, rowText(wr.Key), old, rowText(wr.Change), now))
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return lines, from
}

// TestDump looks into batches of a small input: what they read, and what they wrote, by kept changes and without them.
func TestDump(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep %t", keep), func(t *testing.T) {
			w := newWorld(t)
			w.keep = keep
			for _, f := range []string{"in-0.txt", "in-1.txt", "in-2.txt"} {
				w.write(f, "")
			}
			w.write("in-1.txt", strings.Repeat("a b\n", perBatch)+"b c\nc c\n")
			w.run("data")
			_, ledger := w.load("data")
			last := ledger[len(ledger)-1]
			if len(ledger) < 2 || len(last.Ranges) != 1 || last.Ranges[0].Start < perBatch {
				t.Fatalf("the last batch is %+v", last)
			}
			n := last.Counts.Read
			lines, from := w.dump("data", replay.Options{})
			want := []string{
				fmt.Sprintf("counts add b: %d, 1, %d", perBatch+0, perBatch+1),
				"counts add c: -, 3, 3",
			}
			if keep {
				want = []string{"counts add b: ?, 1, ?", "counts add c: ?, 3, ?"}
			}
			if from.Kept != keep || from.Different != nil {
				t.Errorf("%+v", from)
			}
			if n == 2 && !slices.Equal(lines[:2], want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "lines_by_length add 1970-01-01T00:00:03Z") }) {
				t.Errorf("no write of the windowed state:\n%s", strings.Join(lines, "\n"))
			}

			db := w.open("data", true)
			defer db.Close() //nolint:errcheck // nothing was written
			var input []string
			err := replay.Input(t.Context(), w.pipeline(), replay.Options{Store: db}, func(p batch.Partition, r *batch.Record) error {
				input = append(input, fmt.Sprintf("%s %d %s", filepath.Base(p.Topic), r.Offset, r.Value))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(input)) != n || input[len(input)-1] != fmt.Sprintf("in-1.txt %d c c", perBatch+1) {
				t.Errorf("%d records: %q", len(input), input)
			}

			w.write("in-1.txt", strings.Repeat("a b\n", perBatch)+"b x\nc c\n")
			err = replay.Input(t.Context(), w.pipeline(), replay.Options{Store: db}, func(batch.Partition, *batch.Record) error {
				t.Error("a record of an input that has changed")
				return nil
			})
			if batch.KindOf(err) != batch.Permanent || err == nil {
				t.Errorf("%v", err)
			}
			for _, o := range []replay.Options{{Store: db, To: last.Txid + 1}} {
				if _, err := replay.Writes(t.Context(), w.pipeline(), o, nil); batch.CodeOf(err) != batch.CodeConfiguration {
					t.Errorf("%v", err)
				}
			}
		})
	}
}
