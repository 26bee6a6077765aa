package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tridentd/tridentd/batch"
)

// memory are nodes by path; those above them exist.
type memory map[string]string

func (m memory) Get(_ context.Context, path string) ([]byte, bool, error) {
	data, ok := m[path]
	return []byte(data), ok, nil
}

func (m memory) Children(_ context.Context, path string) ([]string, bool, error) {
	names := map[string]bool{}
	_, there := m[path]
	for p := range m {
		if rest, ok := strings.CutPrefix(p, strings.TrimRight(path, "/")+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			names[name], there = true, true
		}
	}
	return slices.Sorted(maps.Keys(names)), there, nil
}

// spoutNode is what PartitionManager.commit writes.
func spoutNode(topic string, partition int, offset int64) string {
	return fmt.Sprintf(`{"topology":{"id":"f0a4-1","name":"words"},"offset":%d,"partition":%d,"broker":{"host":"kafka1","port":9092},"topic":%q}`, offset, partition, topic)
}

// oldNode is what TridentKafkaEmitter leaves.
func oldNode(topic string, partition int, offset, next int64) string {
	return fmt.Sprintf(`{"instanceId":"f0a4-1","topic":%q,"partition":%d,"offset":%d,"broker":{"host":"kafka1","port":9092},"topology":{"id":"f0a4-1","name":"words"},"nextOffset":%d}`, topic, partition, offset, next)
}

// clientNode is what KafkaTridentSpoutBatchMetadata leaves since 2.0.
func clientNode(first, last int64) string {
	return fmt.Sprintf(`{"firstOffset":%d,"lastOffset":%d,"topologyId":"words-1-1700000000"}`, first, last)
}

func show(l *Left, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var s []string
	for _, p := range l.Positions {
		s = append(s, fmt.Sprintf("%s-%d=%d", p.Topic, p.Partition, p.Next))
	}
	return fmt.Sprintf("%s current %d", strings.Join(s, " "), l.Current)
}

func expect(t *testing.T, l *Left, err error, want string) {
	t.Helper()
	got := show(l, err)
	if want, isErr := strings.CutPrefix(want, "error: "); isErr {
		if err == nil || !strings.Contains(got, want) {
			t.Errorf("%s, want an error with %q", got, want)
		} else if code := batch.CodeOf(err); code != batch.CodeRecordGarbled {
			t.Errorf("code %s of %v", code, err)
		}
		return
	}
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReadSpout(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes memory
		want  string
	}{
		"one topic": {memory{
			"/kafka/words/partition_1": spoutNode("lines", 1, 0), "/kafka/words/partition_0": spoutNode("lines", 0, 120), "/kafka/words/partition_10": spoutNode("lines", 10, 7),
		}, "lines-0=120 lines-1=0 lines-10=7 current 0"},
		"wildcard": {memory{
			"/kafka/words/b/partition_0": spoutNode("b", 0, 5), "/kafka/words/a.x/partition_0": spoutNode("a.x", 0, 6),
		}, "a.x-0=6 b-0=5 current 0"},
		"escaped":         {memory{"/kafka/words/partition_0": `{"topology":{"id":"a\/b","name":"w"},"offset":9223372036854775807,"partition":0,"topic":"lines"}`}, "lines-0=9223372036854775807 current 0"},
		"missing":         {memory{"/kafka/other/partition_0": spoutNode("lines", 0, 1)}, "error: /kafka/words doesn't exist"},
		"empty":           {memory{"/kafka/words": ""}, "error: /kafka/words holds no position"},
		"garbled":         {memory{"/kafka/words/partition_0": `{"topology":{"id":"`}, "error: /kafka/words/partition_0 isn't JSON"},
		"no data":         {memory{"/kafka/words/partition_0": ""}, "error: /kafka/words/partition_0 isn't JSON"},
		"null":            {memory{"/kafka/words/partition_0": "null"}, "error: /kafka/words/partition_0 holds null"},
		"a number":        {memory{"/kafka/words/partition_0": "7"}, `error: /kafka/words/partition_0 holds "7"`},
		"two values":      {memory{"/kafka/words/partition_0": spoutNode("lines", 0, 1) + "x"}, "error: /kafka/words/partition_0 has something behind its JSON"},
		"no offset":       {memory{"/kafka/words/partition_0": `{"partition":0,"topic":"lines"}`}, `error: /kafka/words/partition_0 has no field "offset"`},
		"a fraction":      {memory{"/kafka/words/partition_0": `{"offset":1.5,"partition":0,"topic":"lines"}`}, `error: /kafka/words/partition_0 has 1.5 in field "offset"`},
		"text":            {memory{"/kafka/words/partition_0": `{"offset":"12","partition":0,"topic":"lines"}`}, `error: /kafka/words/partition_0 has 12 in field "offset"`},
		"too large":       {memory{"/kafka/words/partition_0": `{"offset":9223372036854775808,"partition":0,"topic":"lines"}`}, `error: has 9223372036854775808 in field "offset"`},
		"negative":        {memory{"/kafka/words/partition_0": spoutNode("lines", 0, -2)}, `error: has -2 in field "offset"`},
		"other partition": {memory{"/kafka/words/partition_0": spoutNode("lines", 1, 2)}, "error: /kafka/words/partition_0 is about partition 1"},
		"other topic":     {memory{"/kafka/words/a/partition_0": spoutNode("b", 0, 2)}, "error: /kafka/words/a/partition_0 is about topic b"},
		"foreign":         {memory{"/kafka/words/partition_0": spoutNode("lines", 0, 1), "/kafka/words/notes": "x"}, "error: /kafka/words/notes is no node of a Kafka spout"},
		"foreign below":   {memory{"/kafka/words/a/partition_x": ""}, "error: /kafka/words/a/partition_x is no node"},
		"twice":           {memory{"/kafka/words/a/partition_0": spoutNode("a", 0, 1), "/kafka/words/partition_0": spoutNode("a", 0, 2)}, "error: is about a-0, and so is"},
		"all at once":     {memory{"/kafka/words/partition_0": "", "/kafka/words/partition_1": "null"}, "error: /kafka/words/partition_1 holds null"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ReadSpout(t.Context(), tc.nodes, "/kafka", "words")
			expect(t, l, err, tc.want)
		})
	}
	l, err := ReadSpout(t.Context(), memory{"/words/partition_0": spoutNode("lines", 0, 3)}, "", "words")
	expect(t, l, err, "lines-0=3 current 0")
	if p := l.Positions[0]; p.From != "/words/partition_0" || p.Topology != "words" || p.Txid != 0 {
		t.Errorf("%+v", p)
	}
}

func TestReadTrident(t *testing.T) {
	const user, currtx = "/transactional/words/user", "/transactional/words/coordinator/currtx"
	for name, tc := range map[string]struct {
		nodes memory
		want  string
	}{
		// Of T-1 and T the one below currtx counts: T hasn't committed.
		"opaque, T written": {memory{
			currtx: "12", user + "/partition_0/11": oldNode("lines", 0, 100, 120), user + "/partition_0/12": oldNode("lines", 0, 120, 150),
		}, "lines-0=120 current 12"},
		"T committed": {memory{currtx: "13", user + "/partition_0/12": oldNode("lines", 0, 120, 150)}, "lines-0=150 current 13"},
		"several in flight": {memory{
			currtx: "9", user + "/partition_0/8": oldNode("lines", 0, 10, 20), user + "/partition_0/9": oldNode("lines", 0, 20, 30),
			user + "/partition_0/10": oldNode("lines", 0, 30, 40), user + "/partition_0/11": oldNode("lines", 0, 40, 50),
		}, "lines-0=20 current 9"},
		"by number, not by name": {memory{
			currtx: "10", user + "/partition_0/9": oldNode("lines", 0, 10, 20), user + "/partition_0/10": oldNode("lines", 0, 20, 30),
		}, "lines-0=20 current 10"},
		"wildcard": {memory{
			currtx: "3", user + "/a/partition_0/2": oldNode("a", 0, 0, 4), user + "/b/partition_1/2": oldNode("b", 1, 0, 5),
		}, "a-0=4 b-1=5 current 3"},
		"success told, currtx not written": {memory{currtx: "12", user + "/partition_0/12": oldNode("lines", 0, 120, 150)}, "lines-0=120 current 12"},
		"the first batch":                  {memory{user + "/partition_0/1": oldNode("lines", 0, 5, 9)}, "lines-0=5 current 1"},
		"an idle partition":                {memory{currtx: "12", user + "/partition_0/4": oldNode("lines", 0, 100, 120)}, "lines-0=120 current 12"},
		"a batch without records":          {memory{currtx: "12", user + "/partition_0/11": oldNode("lines", 0, 120, 120)}, "lines-0=120 current 12"},
		"a new partition": {memory{
			currtx: "12", user + "/partition_0/11": oldNode("lines", 0, 0, 1), user + "/partition_1": "7",
		}, "lines-0=1 current 12"},

		"client": {memory{
			currtx: "12", user + "/lines@0/11": clientNode(100, 119), user + "/lines@0/12": clientNode(120, 149), user + "/lines@1/11": clientNode(0, 0),
		}, "lines-0=120 lines-1=1 current 12"},
		"client, nothing read yet":       {memory{currtx: "2", user + "/lines@0/1": clientNode(-1, -1)}, "lines-0=0 current 2"},
		"client, no record":              {memory{currtx: "12", user + "/lines@0/11": clientNode(119, 119)}, "lines-0=120 current 12"},
		"client 1.x":                     {memory{currtx: "12", user + "/lines@3/11": `{"tp":{"partition":3,"topic":"lines"},"firstOffset":100,"lastOffset":119}`}, "lines-3=120 current 12"},
		"client, a transaction alone":    {memory{currtx: "12", user + "/lines@0/12": clientNode(120, 149)}, "lines-0=120 current 12"},
		"client, nobody knows":           {memory{currtx: "12", user + "/lines@0/12": clientNode(120, 120)}, "error: /lines@0/12 is of a transaction that hasn't committed"},
		"client 1.x, nobody knows":       {memory{currtx: "12", user + "/lines@0/12": `{"tp":{"partition":0,"topic":"lines"},"firstOffset":100,"lastOffset":119}`}, "error: /lines@0/12 is of a transaction that hasn't committed"},
		"client, another partition":      {memory{currtx: "12", user + "/lines@0/11": `{"tp":{"partition":3,"topic":"lines"},"firstOffset":100,"lastOffset":119}`}, `error: /lines@0/11 in field "tp" is about partition 3`},
		"client, the largest offset":     {memory{currtx: "12", user + "/lines@0/11": clientNode(0, 1<<63-1)}, "error: ends at the largest offset there is"},
		"client, backwards":              {memory{currtx: "12", user + "/lines@0/11": clientNode(20, 18)}, "error: ends at 18, before it begins at 20"},
		"client in a node of the other":  {memory{currtx: "12", user + "/partition_0/11": clientNode(1, 2)}, "error: is storm-kafka-client's in a node of storm-kafka"},
		"client 1.0, which can't either": {memory{currtx: "12", user + "/lines@0/11": "KafkaTridentSpoutBatchMetadata{topicPartition=lines-0}"}, "error: /lines@0/11 isn't JSON"},

		"no such spout":        {memory{"/transactional/other/coordinator/currtx": "2"}, "error: /transactional/words doesn't exist"},
		"nothing left":         {memory{currtx: "2"}, "error: holds no position"},
		"currtx garbled":       {memory{currtx: "x", user + "/partition_0/1": oldNode("lines", 0, 0, 1)}, "error: " + currtx + " isn't JSON"},
		"currtx null":          {memory{currtx: "null", user + "/partition_0/1": oldNode("lines", 0, 0, 1)}, "error: " + currtx + ` holds "null"`},
		"currtx an object":     {memory{currtx: "{}", user + "/partition_0/1": oldNode("lines", 0, 0, 1)}, "error: " + currtx + ` holds "{}"`},
		"a gap":                {memory{currtx: "12", user + "/partition_0/14": oldNode("lines", 0, 0, 1)}, "error: /partition_0 begins at txid 14"},
		"null":                 {memory{currtx: "12", user + "/partition_0/11": "null"}, "error: /partition_0/11 holds null"},
		"no txid":              {memory{currtx: "12", user + "/partition_0/x": ""}, "error: /partition_0/x is named after no txid"},
		"foreign":              {memory{currtx: "12", user + "/partition_0/11": oldNode("lines", 0, 0, 1), user + "/a": "1"}, "error: " + user + "/a is no node of a Kafka spout"},
		"neither":              {memory{currtx: "12", user + "/partition_0/11": `{"topic":"lines","partition":0}`}, "error: has neither nextOffset nor lastOffset"},
		"backwards":            {memory{currtx: "12", user + "/partition_0/11": oldNode("lines", 0, 9, 5)}, "error: ends at 5, before it begins at 9"},
		"another partition":    {memory{currtx: "12", user + "/partition_0/11": oldNode("lines", 1, 0, 1)}, "error: is about partition 1"},
		"another spout's kind": {memory{currtx: "12", user + "/partition_0/11": `[1,2]`}, "error: where an object was expected"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ReadTrident(t.Context(), tc.nodes, "/transactional", "words")
			expect(t, l, err, tc.want)
		})
	}
}

// TestReadTridentOfSeveralSpouts: they share their transactions, and the largest currtx counts, as a crash may have left some
// of them behind.
func TestReadTridentOfSeveralSpouts(t *testing.T) {
	nodes := memory{
		"/transactional/a/coordinator/currtx": "12", "/transactional/b/coordinator/currtx": "11",
		"/transactional/a/user/partition_0/11": oldNode("x", 0, 0, 5), "/transactional/b/user/partition_0/11": oldNode("y", 0, 0, 6),
	}
	l, err := ReadTrident(t.Context(), nodes, "/transactional", "b", "a")
	expect(t, l, err, "x-0=5 y-0=6 current 12")
}

// running is a topology that commits while it is read.
type running struct {
	memory
	reads int
}

func (r *running) Get(ctx context.Context, path string) ([]byte, bool, error) {
	if strings.HasSuffix(path, "/currtx") {
		r.reads++
		return strconv.AppendInt(nil, int64(11+r.reads), 10), true, nil
	}
	return r.memory.Get(ctx, path)
}

func TestReadTridentWhileItRuns(t *testing.T) {
	l, err := ReadTrident(t.Context(), &running{memory: memory{"/t/s/user/partition_0/11": oldNode("lines", 0, 1, 2)}}, "/t", "s")
	expect(t, l, err, "error: /t/s went on from txid 12 to txid 13 while it was read")
}

// TestChoose: whatever transactions have left their nodes, the position is where the last committed one ended.
func TestChoose(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		committed := rapid.Int64Range(0, 40).Draw(rt, "committed")
		kept := rapid.Int64Range(0, committed).Draw(rt, "kept") // those at and above it have nodes
		inFlight := rapid.Int64Range(0, 6).Draw(rt, "in flight")
		nodes := memory{"/t/s/coordinator/currtx": strconv.FormatInt(committed+1, 10)}
		for txid := max(kept, 1); txid <= committed+inFlight; txid++ {
			nodes[fmt.Sprintf("/t/s/user/partition_0/%d", txid)] = oldNode("lines", 0, (txid-1)*10, txid*10)
		}
		if committed == 0 && inFlight == 0 {
			return
		}
		l, err := ReadTrident(rt.Context(), nodes, "/t", "s")
		if want := fmt.Sprintf("lines-0=%d current %d", committed*10, committed+1); show(l, err) != want {
			rt.Fatalf("%s, want %s of %v", show(l, err), want, nodes)
		}
	})
}

// TestGarbage: nothing that a node may hold is a panic, and what is no position is an error.
func TestGarbage(t *testing.T) {
	pieces := []string{"{", "}", "[", "]", ",", ":", `"offset"`, `"nextOffset"`, `"firstOffset"`, `"lastOffset"`, `"topic"`, `"partition"`, `"tp"`, `"lines"`, "0", "1", "-1", "1e3", "null", "true", "99999999999999999999", " ", "\x00", "é"}
	rapid.Check(t, func(rt *rapid.T) {
		data := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 24).Draw(rt, "data"), "")
		for _, path := range []string{"partition_0", "lines@0", "lines/partition_0"} {
			for _, nodes := range []memory{{"/r/s/" + path: data}, {"/r/s/coordinator/currtx": "2", "/r/s/user/" + path + "/1": data}, {"/r/s/coordinator/currtx": data, "/r/s/user/" + path + "/1": oldNode("lines", 0, 1, 2)}} {
				for _, read := range []func() (*Left, error){
					func() (*Left, error) { return ReadSpout(rt.Context(), nodes, "/r", "s") },
					func() (*Left, error) { return ReadTrident(rt.Context(), nodes, "/r", "s") },
				} {
					l, err := read()
					if (l == nil) == (err == nil) {
						rt.Fatalf("%v, %v", l, err)
					}
					if err == nil && (len(l.Positions) != 1 || l.Positions[0].Next < 0) {
						rt.Fatalf("%+v of %q", l, data)
					}
				}
			}
		}
		if l, err := ReadFile("f", strings.NewReader(data)); (l == nil) == (err == nil) {
			rt.Fatalf("%v, %v", l, err)
		}
		Committed(1, data)                             //nolint:errcheck // it must not panic
		Opaque.Settle(json.RawMessage(data), 5)        //nolint:errcheck // likewise
		Transactional.Settle(json.RawMessage(data), 5) //nolint:errcheck // likewise
		partitionDir("partition_" + data)
	})
}

func TestCommitted(t *testing.T) {
	for metadata, want := range map[string]string{
		`{"topologyId":"words-1-1700000000","taskId":3,"threadName":"Thread-9-spout-executor[3, 3]"}`: "41 words-1-1700000000",
		`{topic-partition=lines-0, offset=41, numFails=0, thread='Thread-9'}`:                         "42 ",
		`{topic-partition=lines-0, offset=40, numFails=0, thread='Thread-9'}`:                         "is not the one in its metadata",
		"":                                  "isn't a KafkaSpout's",
		`{"tridentd":1,"pipeline":"words"}`: "isn't a KafkaSpout's",
	} {
		next, topology, err := Committed(41, metadata)
		if got := fmt.Sprintf("%d %s", next, topology); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %s", metadata, got, err, want)
		}
	}
	if _, _, err := Committed(-1, `{"topologyId":"w"}`); err == nil {
		t.Error("a negative offset was taken")
	}
}

func TestReadFile(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"lines":         {"{\"topic\":\"a\",\"partition\":1,\"next\":5}\n{\"topic\":\"a\",\"partition\":0,\"next\":0,\"lag\":3}\n", "a-0=0 a-1=5 current 0"},
		"array":         {`[{"topic":"a","partition":1,"next":5}, {"topic":"b","partition":1,"next":6}]`, "a-1=5 b-1=6 current 0"},
		"exported":      {`{"pipeline":"words","txid":9,"positions":[{"source":"s","topic":"a","partition":0,"next":7,"txid":9}]}`, "a-0=7 current 0"},
		"csv":           {"topic,x,next,partition\na,,5,1\na,,6,0\n", "a-0=6 a-1=5 current 0"},
		"empty":         {"", "error: f holds no position"},
		"empty array":   {"[]", "error: f holds no position"},
		"cut":           {`[{"topic":"a","partition":1,"next":5}`, "error: f is cut off"},
		"cut object":    {`{"topic":"a"`, "error: f: position 1 isn't a JSON object"},
		"twice":         {"topic,partition,next\na,0,1\na,0,1\n", "error: f: line 3 is about a-0, and so is f: line 2"},
		"no next":       {`{"topic":"a","partition":0,"offset":5}`, `error: f: position 1 has no field "next"`},
		"no column":     {"topic,partition,offset\n", `error: f has no column "next"`},
		"bad offset":    {"topic,partition,next\na,0,x\n", `error: f: line 2 has "x" where`},
		"bad partition": {"topic,partition,next\na,-1,1\n", `error: f: line 2 has partition "-1"`},
		"large":         {`{"topic":"a","partition":2147483648,"next":5}`, "error: f: position 1 has partition 2147483648"},
		"behind":        {`[{"topic":"a","partition":1,"next":5}] x`, "error: f has something behind"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ReadFile("f", strings.NewReader(tc.text))
			expect(t, l, err, tc.want)
		})
	}
}

func TestSettle(t *testing.T) {
	for _, tc := range []struct {
		form    Format
		stored  string
		current int64
		want    string
	}{
		{Plain, "7", 0, "7"},
		{Transactional, "[11,7]", 12, "7"},
		{Transactional, "[12,7]", 12, "counts in txid 12, which hasn't committed"},
		{Transactional, "[11,7,6]", 12, "is no transactional value"},
		{Opaque, "[11,7,6]", 12, "7"},
		{Opaque, "[12,7,6]", 12, "6"},
		{Opaque, " [ 12 , 7 , null ] ", 12, "absent"}, // a key that only T has made
		{Opaque, "[13,7,6]", 12, "it is of txid 13"},
		{Opaque, "[11,7]", 12, "is no opaque value"},
		{Opaque, "7", 12, "is no opaque value"},
		{Opaque, `["11",7,6]`, 12, "begins with no txid"},
		{Opaque, "[11,7,6]", 0, "no transaction is known"},
	} {
		v, ok, err := tc.form.Settle(json.RawMessage(tc.stored), tc.current)
		got := strings.TrimSpace(string(v))
		if !ok {
			got = "absent"
		}
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s %s at %d: %s, want %s", tc.form, tc.stored, tc.current, got, tc.want)
		}
	}
	for _, f := range []Format{Plain, Transactional, Opaque} {
		if g, err := ParseFormat(f.String()); g != f || err != nil {
			t.Errorf("%s: %v, %v", f, g, err)
		}
	}
	if _, err := ParseFormat("avro"); err == nil {
		t.Error("an unknown format was taken")
	}
}
