package daemon_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tridentd/tridentd/agg"
	"github.com/tridentd/tridentd/codec"
	"github.com/tridentd/tridentd/connect/kafka"
	"github.com/tridentd/tridentd/engine"
)

// TestG25FloatKeys: zeros are one group, so are NaNs, null is one of its own, and each is found again.
func TestG25FloatKeys(t *testing.T) {
	t.Parallel()
	j := newJob(t, nil, `pipeline: floats
sources:
  readings:
    file: {paths: [readings.csv]}
    decode:
      csv: {null_values: [""]}
    types: {v: float, id: int}
streams:
  by_v:
    from: readings
    steps:
      - group_by: [v]
      - aggregate: {n: count(), ids: sum(id)}
`)
	j.put("readings.csv", lines("id,v", "1,0.0", "2,-0.0", "4,NaN", "8,NaN", "16,"))
	j.run(0)
	j.holds("by_v", ",1,16", "0,2,3", "NaN,2,12")
	for key, want := range map[string]string{"0": "0,2,3", "-0.0": "0,2,3", "NaN": "NaN,2,12"} {
		if got := j.rows("by_v", "--", key); !slices.Equal(got, []string{want}) {
			t.Errorf("key %s: %q, want %q", key, got, want)
		}
	}
	want := []map[string]any{
		{"v": nil, "n": json.Number("1"), "ids": json.Number("16")},
		{"v": json.Number("0"), "n": json.Number("2"), "ids": json.Number("3")},
		{"v": "NaN", "n": json.Number("2"), "ids": json.Number("12")},
	}
	if got := j.table("by_v"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("as JSON: %v, want %v", got, want)
	}
}

// TestG26IntegerSums: a sum beyond int64 is exact, however its numbers are split into batches.
func TestG26IntegerSums(t *testing.T) {
	t.Parallel()
	for _, batching := range []string{"{}", "{max_records: 1}"} {
		t.Run("batch "+batching, func(t *testing.T) {
			t.Parallel()
			b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
			b.produce("t",
				`{"k":"sum","v":9223372036854775807}`, `{"k":"sum","v":1}`,
				`{"k":"avg","v":4611686018427387904}`, `{"k":"avg","v":4611686018427387904}`, `{"k":"avg","v":4611686018427387904}`,
				`{"k":"low","v":-9223372036854775808}`, `{"k":"low","v":-1}`)
			j := newJob(t, b, `pipeline: sums
batch: `+batching+`
sources:
  numbers:
    kafka: {brokers: BROKERS, topics: [t]}
    decode: json
    types: {k: string, v: int}
streams:
  sums:
    from: numbers
    steps:
      - group_by: [k]
      - aggregate: {total: sum(v), mean: avg(v), most: max(v)}
`)
			j.run(0)
			j.holds("sums",
				"avg,13835058055282163712,4611686018427387904,4611686018427387904",
				"low,-9223372036854775809,-4611686018427387904,-1",
				"sum,9223372036854775808,4611686018427387904,9223372036854775807")
		})
	}
}

// nulls writes the values "a b", null and "b" to topic t, the second with a null key too.
func (b *brokers) nulls(quote string) {
	b.t.Helper()
	b.send(
		&kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte(quote + "a b" + quote)},
		&kgo.Record{Topic: "t"},
		&kgo.Record{Topic: "t", Value: []byte(quote + "b" + quote)})
}

// TestG29NullValues: a record without a value is neither an empty text nor the word null, and no reason to panic.
func TestG29NullValues(t *testing.T) {
	t.Parallel()
	const text = `pipeline: words
on_bad_record: POLICY
sources:
  lines:
    kafka: {brokers: BROKERS, topics: [t]}
    decode: DECODE
    types: {value: string}
streams:
  counts:
    from: lines
    steps:
      - FIRST
      - flat_map:
          word: split(value, " ")
      - group_by: [word]
      - aggregate: {n: count()}
  by_value:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`
	for decode, quote := range map[string]string{"string": "", "json": `"`} {
		prepared := func(t *testing.T, first, policy string) *job {
			b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
			b.nulls(quote)
			s := strings.NewReplacer("DECODE", decode, "FIRST", first, "POLICY", policy).Replace(text)
			if decode == "string" {
				s = strings.Replace(s, "    types: {value: string}\n", "", 1)
			}
			return newJob(t, b, s)
		}
		t.Run(decode+" filtered", func(t *testing.T) {
			t.Parallel()
			j := prepared(t, "filter: value != nil", "stop")
			j.run(0)
			j.holds("counts", "a,1", "b,2")
			j.checkRanges(0, 3)
			if got := j.table("by_value"); len(got) != 3 || got[0]["value"] != nil || fmt.Sprint(got[0]["n"]) != "1" {
				t.Errorf("by_value: %v, want a group of null first", got)
			}
		})
		t.Run(decode+" unfiltered", func(t *testing.T) {
			t.Parallel()
			j := prepared(t, "filter: true", "stop")
			j.refused(4, "lines/t-0 offset 1", "flat_map", "nil")
			if n := len(j.ledger()); n != 0 {
				t.Errorf("%d batches committed", n)
			}
		})
		t.Run(decode+" turned away", func(t *testing.T) {
			t.Parallel()
			j := prepared(t, "filter: true", "skip")
			j.run(0)
			j.holds("counts", "a,1", "b,2")
			j.checkRanges(0, 3)
			rejected := j.table("_rejected")
			if len(rejected) != 1 || rejected[0]["topic"] != "t" || fmt.Sprint(rejected[0]["offset"]) != "1" {
				t.Errorf("_rejected: %v, want offset 1 of topic t", rejected)
			}
		})
	}
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
		b.nulls("")
		p := engine.New("words")
		s := engine.From(p, "lines", kafka.New(b.addrs...).Topics("t"), codec.NullString())
		words := engine.FlatMap(s, func(v codec.Null[string]) []string {
			if !v.Valid {
				return nil
			}
			return strings.Fields(v.V)
		})
		engine.Aggregate(engine.GroupBy(words, func(w string) string { return w }, "word"), "counts", agg.Count[string]("n"))
		engine.Aggregate(engine.GroupBy(s, func(v codec.Null[string]) codec.Null[string] { return v }, "value"), "by_value", agg.Count[codec.Null[string]]("n"))
		j := goJob(t, p)
		j.run(0)
		j.holds("counts", "a,1", "b,2")
		j.checkRanges(0, 3)
		if got := j.table("by_value"); len(got) != 3 || got[0]["value"] != nil || fmt.Sprint(got[0]["n"]) != "1" {
			t.Errorf("by_value: %v, want a group of null first", got)
		}
	})
}

// TestG30LargeIntegers: identities above 2^53 keep their last digit.
func TestG30LargeIntegers(t *testing.T) {
	t.Parallel()
	for _, types := range []string{"", "\n    types: {id: int}"} {
		t.Run("types"+types, func(t *testing.T) {
			t.Parallel()
			b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
			b.produce("t", `{"id":9007199254740993}`, `{"id":9007199254740992}`)
			j := newJob(t, b, `pipeline: ids
sources:
  ids:
    kafka: {brokers: BROKERS, topics: [t]}
    decode: json`+types+`
streams:
  by_id:
    from: ids
    steps:
      - group_by: [id]
      - aggregate: {n: count()}
  largest:
    from: ids
    steps:
      - set:
          all: '"all"'
      - group_by: [all]
      - aggregate: {id: max(id)}
`)
			j.run(0)
			j.holds("by_id", "9007199254740992,1", "9007199254740993,1")
			j.holds("largest", "all,9007199254740993")
		})
	}
}

// zipped is a gzip file of one member.
func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestG30JoinedGzip: every member of a joined file is read, and a file that was cut is no shorter file.
func TestG30JoinedGzip(t *testing.T) {
	t.Parallel()
	whole := append(zipped(t, lines("a", "b", "c")), zipped(t, lines("d", "e", "f"))...)
	const text = `pipeline: joined
batch: {max_records: 1}
sources:
  lines:
    file: {paths: [lines.gz]}
    decode: string
streams:
  counts:
    from: lines
    steps:
      - group_by: [value]
      - aggregate: {n: count()}
`
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, nil, text)
		j.put("lines.gz", string(whole))
		j.run(0)
		j.holds("counts", "a,1", "b,1", "c,1", "d,1", "e,1", "f,1")
	})
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		j := newJob(t, nil, text)
		j.put("lines.gz", string(whole[:len(whole)-20]))
		errs := j.refused(4, "lines.gz", "the file is cut off")
		had := j.rows("counts")
		if want := []string{"a,1", "b,1", "c,1", "d,1", "e,1", "f,1"}; len(had) < 3 || !slices.Equal(had, want[:len(had)]) {
			t.Errorf("the batches before the cut left %q", had)
		}
		j.checkRanges(0, int64(len(had)))
		j.tells(errs, fmt.Sprintf("damaged behind record %d", len(had)-1)) // from 0
		j.put("lines.gz", string(whole))
		j.run(0)
		j.holds("counts", "a,1", "b,1", "c,1", "d,1", "e,1", "f,1")
		j.checkRanges(0, 6)
	})
}

// TestG32Mistakes: what is wrong in a pipeline's file is told with its place by validate and run alike, before
// anything starts.
func TestG32Mistakes(t *testing.T) {
	t.Parallel()
	valid := strings.Replace(counting(""), "[value]", "[value, tag]", 1)
	valid = strings.Replace(valid, "      - group_by", "      - set:\n          tag: '\"x\"'\n      - group_by", 1)
	for _, tc := range []struct {
		name, old, text string
		place           string
		tells           []string
	}{
		{"typo", "sources:\n", "batch: {max_record: 10}\nsources:\n", "2:9", []string{`unknown field "max_record"`, "did you mean max_records?"}},
		{"missing bracket", `'"x"'`, "upper(value", "11:27", []string{"a closing ) is missing"}},
		{"missing quote", `'"x"'`, `lower("x`, "11:24", []string{"a string has no closing quote"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
			j := newJob(t, b, strings.Replace(valid, tc.old, tc.text, 1))
			code, out, errs := j.command("validate")
			if code != 2 || out != "" {
				t.Errorf("validate: exit %d\n%s", code, out)
			}
			j.tells(errs, append(tc.tells, j.file+":"+tc.place+":", "1 error, nothing was started")...)
			if again := j.run(2); again != errs {
				t.Errorf("validate says\n%s\nrun says\n%s", errs, again)
			}
			if _, err := os.Stat(j.data); !os.IsNotExist(err) {
				t.Errorf("a data directory was made: %v", err)
			}
		})
	}
}

// TestG32Environment: comments need no variables, and a variable's value is a value, whatever it looks like.
func TestG32Environment(t *testing.T) {
	const odd = `a: b #c "d"`
	t.Setenv("TRIDENTD_TEST_ODD", odd)
	text := `pipeline: odd
# x: ${NOPE}
sources:
  lines:
    kafka: {brokers: BROKERS, topics: [t]}   # ${NOPE} too
    decode: json
    types: {"${TRIDENTD_TEST_ODD}": string}
streams:
  counts:
    from: lines
    steps:
      - group_by: ["${TRIDENTD_TEST_ODD}"]
      - aggregate: {n: count()}
`
	b := fakeBrokers(t, kfake.SeedTopics(1, "t"))
	b.produce("t", `{"a: b #c \"d\"":"x"}`)
	j := newJob(t, b, text)
	if code, _, errs := j.command("validate"); code != 0 {
		t.Fatalf("validate: exit %d\n%s", code, errs)
	}
	j.run(0)
	if got := j.table("counts"); len(got) != 1 || got[0][odd] != "x" {
		t.Errorf("counts: %v, want a column named %s", got, odd)
	}
	j.rewrite(b, strings.Replace(text, "# x: ${NOPE}", "batch: {max_records: \"${NOPE}\"}", 1))
	_, _, first := j.command("validate")
	j.tells(first, j.file+":2:", "NOPE")
	if again := j.run(2); again != first {
		t.Errorf("validate says\n%s\nrun says\n%s", first, again)
	}
}

// TestG32MissingTopic: a misspelt topic is an error, and isn't made by asking for it.
func TestG32MissingTopic(t *testing.T) {
	t.Parallel()
	missingTopic(t, fakeBrokers(t, kfake.SeedTopics(1, "lines"), kfake.AllowAutoTopicCreation()))
}

func missingTopic(t *testing.T, b *brokers) {
	j := newJob(t, b, strings.Replace(counting(""), "[t]", "[lins]", 1))
	if code, _, errs := j.command("validate"); code != 0 {
		t.Fatalf("validate: exit %d\n%s", code, errs)
	}
	j.refused(2, `topic "lins" does not exist`, "did you mean lines?")
	topics, err := b.adm.ListTopics(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if topics.Has("lins") {
		t.Error("the topic was made by asking for it")
	}
	if _, err := os.Stat(filepath.Join(j.store(), "tridentd.sock")); !os.IsNotExist(err) {
		t.Errorf("something is left running: %v", err)
	}
}

// TestG38SmallPartitionsAreInTheFirstBatch: a big partition neither fills a batch nor starves the small ones.
func TestG38SmallPartitionsAreInTheFirstBatch(t *testing.T) {
	t.Parallel()
	b := fakeBrokers(t, kfake.SeedTopics(3, "t"))
	for p, n := range []int{100_000, 10, 1} {
		recs := make([]*kgo.Record, n)
		for i := range recs {
			recs[i] = &kgo.Record{Topic: "t", Partition: int32(p), Value: []byte("a")}
		}
		for part := range slices.Chunk(recs, 10_000) {
			b.send(part...)
		}
	}
	j := newJob(t, b, strings.Replace(counting(""), "\n", "\nbatch: {max_records: 1000}\n", 1))
	j.run(0)
	j.holds("counts", "a,100011")
	entries := j.ledger()
	for _, e := range entries {
		for _, r := range e.Ranges {
			if n := r.End - r.Start; n > 1000 || r.Records > 1000 {
				t.Errorf("txid %d takes %d offsets of partition %d", e.Txid, n, r.Partition)
			}
		}
	}
	if got, want := j.ranges()[0], "1 t/0[0,1000) t/1[0,10) t/2[0,1)"; got != want {
		t.Errorf("the first batch is %s, want %s", got, want)
	}
}
