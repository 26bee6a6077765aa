package daemon_test

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tridentd/tridentd/server"
)

// found is one line of doctor's JSON.
type found struct{ Level, Subject, Code, Text, Remedy string }

// doctor runs the command and returns its findings.
func (w *groupWorld) doctor(want int, flags ...string) []found {
	w.t.Helper()
	code, out, errs := w.command(append([]string{"doctor", w.file, "--data", w.data, "--format", "json"}, flags...)...)
	if code != want {
		w.t.Errorf("doctor: exit %d, want %d\n%s%s", code, want, out, errs)
	}
	var all []found
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return all
}

// finds fails unless there is a finding with this level, code and subject, with text in it.
func (w *groupWorld) finds(all []found, level, subject, code, text string) {
	w.t.Helper()
	for _, f := range all {
		if f.Level == level && f.Code == code && f.Subject == subject && strings.Contains(f.Text, text) {
			if (f.Remedy == "") != (level == "ok") {
				w.t.Errorf("a remedy is due where something is wrong: %+v", f)
			}
			return
		}
	}
	w.t.Errorf("no finding %s %q %q with %q among %+v", level, subject, code, text, all)
}

func doctorWorld(t *testing.T) *groupWorld {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return newGroupWorld(t, fake.ListenAddrs(), 2, "")
}

// TestDoctorOverARun follows a pipeline from before its first run to a run that works.
func TestDoctorOverARun(t *testing.T) {
	w := doctorWorld(t)
	data, group := "data "+filepath.Join(w.data, w.pipeline), "kafka group "+w.group
	all := w.doctor(0)
	w.finds(all, "ok", data, "", "nothing yet")
	w.finds(all, "ok", "kafka "+w.brokers[0], "", "cluster of 1 broker")
	w.finds(all, "ok", "kafka topic "+w.topic, "", "2 partitions, all led")
	w.finds(all, "ok", group, "", "may be read and written")
	if _, err := os.Stat(w.data); err == nil {
		t.Error("doctor made the data directory")
	}

	w.produce(10, 0, 1)
	w.run(0)
	w.produce(3, 1)
	all = w.doctor(0)
	w.finds(all, "ok", data, "", "at rest, committed txid 1")
	w.finds(all, "ok", "kafka topic "+w.topic, "", "3 records not processed yet")

	// Another data directory, which is empty: a run would refuse it.
	was := w.data
	w.data = filepath.Join(w.dir, "elsewhere")
	w.finds(w.doctor(1), "error", group, "store_missing", "up to txid 1")
	w.data = was

	// The group ahead of the store, and written by somebody else.
	var os kadm.Offsets
	os.AddOffset(w.topic, 0, 7, -1)
	if err := w.adm.CommitAllOffsets(t.Context(), w.group, os); err != nil {
		t.Fatal(err)
	}
	w.finds(w.doctor(0), "warn", group, "group_foreign", "written by somebody else")

	stop := w.start()
	w.await("all is committed", 30*time.Second, func(st server.Status) bool { return committed(st) == 23 && w.offsets() == "10,13" })
	all = w.doctor(0)
	w.finds(all, "ok", data, "", "works in it, committed txid 2")
	w.finds(all, "ok", group, "", "may be read and written")
	if code, log := stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, log)
	}
	w.deletedBelow(0)
	w.counted(23)
}

// deletedBelow makes sure that a check has left the topic as it is.
func (w *groupWorld) deletedBelow(want int64) {
	w.t.Helper()
	starts, err := w.adm.ListStartOffsets(w.t.Context(), w.topic)
	if err != nil {
		w.t.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Offset != want {
			w.t.Errorf("partition %d begins at %d", o.Partition, o.Offset)
		}
	})
}

// TestDoctorForms prints the same findings in each form, in the same order each time.
func TestDoctorForms(t *testing.T) {
	w := doctorWorld(t)
	w.write(strings.ReplaceAll(w.read(), w.topic, "nosuch"))
	var tables []string
	for range 3 {
		code, out, errs := w.command("doctor", w.file, "--data", w.data)
		if code != 1 || errs != "1 fault must be mended\n" {
			t.Fatalf("exit %d, %q\n%s", code, errs, out)
		}
		tables = append(tables, regexp.MustCompile(`(?m)^.*free$`).ReplaceAllString(out, ""))
	}
	if tables[0] != tables[1] || tables[1] != tables[2] {
		t.Errorf("the order changes:\n%s\n%s\n%s", tables[0], tables[1], tables[2])
	}
	if line := `(?m)^error  kafka topic nosuch +topic "nosuch" does not exist at .*   → create the topic`; !regexp.MustCompile(line).MatchString(tables[0]) {
		t.Errorf("no line %s in\n%s", line, tables[0])
	}
	if code, out, errs := w.command("doctor", w.file, "--data", w.data, "--format", "csv"); code != 1 || !strings.HasPrefix(out, "level,subject,code,text,remedy\n") {
		t.Errorf("exit %d, %q\n%s", code, errs, out)
	}
}

func (w *groupWorld) read() string {
	w.t.Helper()
	b, err := os.ReadFile(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func (w *groupWorld) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// Two sources of one cluster say once what they find of its brokers.
func TestDoctorTwoSources(t *testing.T) {
	w := doctorWorld(t)
	w.write(strings.Replace(w.read(), "streams:", `  more:
    kafka: {brokers: ["`+w.brokers[0]+`"], topics: [`+w.topic+`-other], group: more}
    decode: string
streams:
  others:
    from: more
    steps:
      - group_by: [value]
      - aggregate: {m: count()}`, 1))
	all := w.doctor(0)
	n := 0
	for _, f := range all {
		if f.Subject == "kafka "+w.brokers[0] {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the broker has %d lines: %+v", n, all)
	}
	w.finds(all, "ok", "kafka topic "+w.topic+"-other", "", "1 partition, all led")
	w.finds(all, "ok", "kafka group more", "", "")
}

// TestDoctorInTime: whatever takes connections and never answers, the command ends within its limit, and names it.
func TestDoctorInTime(t *testing.T) {
	w := doctorWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, conn) //nolint:errcheck // until the other end has enough
		}
	}()
	w.write(strings.ReplaceAll(w.read(), w.brokers[0], l.Addr().String()))
	for _, tc := range []struct {
		limit string
		most  time.Duration
	}{{"500ms", 3500 * time.Millisecond}, {"15s", 13 * time.Second}} { // the limit of one check of a broker is 4 s
		began := time.Now()
		all := w.doctor(1, "--timeout", tc.limit)
		if took := time.Since(began); took > tc.most {
			t.Errorf("with --timeout %s it took %s", tc.limit, took)
		}
		w.finds(all, "error", "kafka "+l.Addr().String(), "timeout", "")
	}
}

// TestDoctorLocal: the data directory and files.
func TestDoctorLocal(t *testing.T) {
	w := &groupWorld{t: t, pipeline: "copy", dir: t.TempDir()}
	w.file, w.data = filepath.Join(w.dir, "copy.yaml"), filepath.Join(w.dir, "data")
	data := "data " + filepath.Join(w.data, "copy")
	pipeline := func(paths string) {
		t.Helper()
		w.write("pipeline: copy\nsources:\n  lines:\n    file: {paths: [" + paths + "]}\n    decode: string\nstreams:\n  counts:\n    from: lines\n" +
			"    steps:\n      - group_by: [value]\n      - aggregate: {n: count()}\n")
	}
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file("words.txt", "a\n")
	file("more-1.txt", "a\n")
	pipeline("words.txt, 'more-*.txt'")
	all := w.doctor(0)
	w.finds(all, "ok", "file words.txt", "", "can be read")
	w.finds(all, "ok", "file more-*.txt", "", "1 file, can be read")
	w.finds(all, "ok", data, "", "nothing yet")

	pipeline("word.txt, 'none-*'")
	all = w.doctor(1)
	w.finds(all, "error", "file word.txt", "file_missing", "did you mean "+filepath.Join(w.dir, "words.txt"))
	w.finds(all, "warn", "file none-*", "no_match", "")
	pipeline("'.'")
	w.finds(w.doctor(1), "error", "file .", "configuration", "isn't a file")

	// A file where the data directory is to be.
	pipeline("words.txt")
	file("data", "")
	w.finds(w.doctor(1), "error", data, "not_writable", "isn't a directory")
	if err := os.Remove(w.data); err != nil {
		t.Fatal(err)
	}

	w.run(0)
	w.finds(w.doctor(0), "ok", data, "", "opens, at rest, committed txid 1")
	if err := os.Remove(currentManifest(t, filepath.Join(w.data, "copy"))); err != nil {
		t.Fatal(err)
	}
	w.finds(w.doctor(1), "error", data, "store_damaged", "")
}
