package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/emitter/file"
	"github.com/tridentd/tridentd/engine"
	"github.com/tridentd/tridentd/sink/deadletter"
	"github.com/tridentd/tridentd/sink/filesink"
)

// numerals is a pipeline that counts whole numbers by their last digit; what is no number is a bad record.
func numerals(dir string, opts ...engine.PipelineOption) *engine.Pipeline {
	p := engine.New("test", append(opts, engine.WithBatching(engine.Batching{MaxRecords: 4}))...)
	s := engine.From(p, "lines", file.Paths(filepath.Join(dir, "lines.txt")), codec.String())
	n := engine.TryMap(s, func(_ *engine.Batch, l string) (int, error) { return strconv.Atoi(l) })
	engine.Aggregate(engine.GroupBy(n, func(n int) int { return n % 10 }, "digit"), "digits", agg.Count[int]("n"))
	return p
}

// TestDeadLetters runs a pipeline of Go whose bad records go to files, up to its limit.
func TestDeadLetters(t *testing.T) {
	dir := t.TempDir()
	var lines []string
	for i := range 20 {
		if i%5 == 4 {
			lines = append(lines, fmt.Sprintf("x%d", i))
			continue
		}
		lines = append(lines, strconv.Itoa(i))
	}
	if err := os.WriteFile(filepath.Join(dir, "lines.txt"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	target := filesink.DeadLetters(filepath.Join(dir, "dead"))
	read := func() (got []string) {
		t.Helper()
		err := target.ReadLetters(t.Context(), emitter.Env{}, "test", func(l *deadletter.Letter) error {
			got = append(got, fmt.Sprintf("%d %s %s/%d:%d %s", l.Txid, l.Kind, l.Partition.Source, l.Partition.Number, l.Offset, l.Value))
			if !strings.HasPrefix(l.Step, "map") || !strings.Contains(l.Cause, "invalid syntax") {
				t.Errorf("step %q, cause %q", l.Step, l.Cause)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	o := engine.Options{DataDir: filepath.Join(dir, "data"), UntilCaughtUp: true}
	err := engine.Run(t.Context(), numerals(dir, engine.DeadLetters(target), engine.WithDeadLimit(engine.DeadLimit{Count: 3, Within: time.Minute})), o)
	e, ok := errors.AsType[*batch.Error](err)
	if !ok || e.Code != batch.CodeDeadLetters || e.Kind != batch.Permanent || e.Txid != 5 || e.Offset != 19 ||
		!strings.Contains(err.Error(), "4 of 20 records within 1m0s of batch time would be dead letters, the limit is 3") {
		t.Errorf("over the limit: %v", err)
	}
	want := []string{"2 bad lines/0:4 x4", "3 bad lines/0:9 x9", "4 bad lines/0:14 x14"}
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := engine.Run(t.Context(), numerals(dir, engine.DeadLetters(target), engine.WithDeadLimit(engine.DeadLimit{Share: 0.5, Within: time.Minute})), o); err != nil {
		t.Fatal(err)
	}
	if got, want := read(), append(want, "5 bad lines/0:19 x19"); !slices.Equal(got, want) {
		t.Errorf("with a higher limit: %q, want %q", got, want)
	}
}

// TestDeadLetterOptions reports options that don't go together.
func TestDeadLetterOptions(t *testing.T) {
	target := filesink.DeadLetters("dead")
	for want, opts := range map[string][]engine.PipelineOption{
		"no option says where dead letters go":                  {engine.OnBadRecord(engine.DeadLetter)},
		"WithDeadLimit: no option says where dead letters go":   {engine.WithDeadLimit(engine.DeadLimit{Count: 3})},
		"by OnBadRecord(skip) nothing would go there":           {engine.DeadLetters(target), engine.OnBadRecord(engine.Skip)},
		"DeadLimit: a value out of range in {Count:-1":          {engine.DeadLetters(target), engine.WithDeadLimit(engine.DeadLimit{Count: -1})},
		"DeadLimit: a value out of range in {Count:0 Share:1.5": {engine.DeadLetters(target), engine.WithDeadLimit(engine.DeadLimit{Share: 1.5})},
	} {
		if _, err := numerals("", opts...).Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p, err := numerals("", engine.DeadLetters(target)).Plan()
	if err != nil || len(p.Sinks) != 1 || p.Sinks[0].Name != "dead_letters" || !slices.Contains(p.Lines, "dead letters: files, dead letters; at most 1000 or 1% within 1h0m0s") {
		t.Errorf("%v: %q", err, p.Lines)
	}
}
