package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func records(s Spec) (all []string, e Expected) {
	g := NewGenerator(s)
	for range s.Records {
		b, _ := g.Next(nil)
		all = append(all, string(b))
	}
	return all, g.Expected()
}

func TestRecordsAreTheSameEachTime(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want Expected
	}{
		"views":   {Spec{Kind: Views, Records: 5000, Partitions: 4}, Expected{5000, 1770, 5000, 24840, "1dd001cc5172c108"}},
		"uniform": {Spec{Kind: Views, Records: 5000, Partitions: 4, Users: 2000, Uniform: true}, Expected{5000, 2000, 5000, 24846, "2e5ff3d10fb92b8d"}},
		"lines":   {Spec{Kind: Lines, Records: 500, Partitions: 4}, Expected{500, 1348, 5000, 0, "cdcdd6921eb81feb"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, ea := records(c.spec)
			b, eb := records(c.spec)
			if strings.Join(a, "\n") != strings.Join(b, "\n") || ea != eb {
				t.Fatal("two generators made different records")
			}
			if ea != c.want {
				t.Fatalf("expected totals are %#v, were %#v: figures can't be held against older ones", ea, c.want)
			}
		})
	}
}

func TestViews(t *testing.T) {
	all, e := records(Spec{Kind: Views, Records: 10_000, Partitions: 3})
	totals := map[string]Total{}
	for _, r := range all {
		if len(r) < 64 || len(r) > 80 {
			t.Fatalf("%q has %d bytes, want 64 to 80", r, len(r))
		}
		var v struct {
			User, Page string
			MS, N      int64
		}
		if err := json.Unmarshal([]byte(r), &v); err != nil {
			t.Fatalf("%q: %v", r, err)
		}
		x := totals[v.User]
		x.Count++
		x.Sum += v.N
		totals[v.User] = x
	}
	var file bytes.Buffer
	for k, x := range totals { // order: the digest is a sum
		file.Write(AppendLine(nil, k, x))
	}
	if err := e.Compare(bytes.NewReader(file.Bytes())); err != nil {
		t.Fatal(err)
	}
	// One record more of one user, one less of another: count, sum and keys stay the same.
	moved := strings.Replace(strings.Replace(file.String(), fmt.Sprintf("u00000 %d ", totals["u00000"].Count), fmt.Sprintf("u00000 %d ", totals["u00000"].Count-1), 1),
		fmt.Sprintf("u00001 %d ", totals["u00001"].Count), fmt.Sprintf("u00001 %d ", totals["u00001"].Count+1), 1)
	if err := e.Compare(strings.NewReader(moved)); err == nil {
		t.Fatal("a record counted for another user wasn't noticed")
	}
	for _, bad := range []string{"u1 2\n", "u1 x 3\n", "u1 2 y\n"} {
		if err := e.Compare(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestUniformHasAllUsers(t *testing.T) {
	_, e := records(Spec{Kind: Views, Records: 3000, Partitions: 4, Users: 2000, Uniform: true})
	if e.Keys != 2000 {
		t.Fatalf("%d users, want 2000", e.Keys)
	}
}

func TestWriteUsers(t *testing.T) {
	var b strings.Builder
	if err := (Spec{Kind: Views, Users: 3}).WriteUsers(&b); err != nil {
		t.Fatal(err)
	}
	if want := "user,country\nu00000,c000\nu00001,c001\nu00002,c002\n"; b.String() != want {
		t.Fatalf("%q, want %q", &b, want)
	}
}

func TestTopicTellsTheRecords(t *testing.T) {
	seen := map[string]Spec{}
	for _, s := range []Spec{
		{Kind: Views, Records: 10, Partitions: 4},
		{Kind: Lines, Records: 10, Partitions: 4},
		{Kind: Views, Records: 11, Partitions: 4},
		{Kind: Views, Records: 10, Partitions: 5},
		{Kind: Views, Records: 10, Partitions: 4, Users: 7},
		{Kind: Views, Records: 10, Partitions: 4, Users: 7, Uniform: true},
	} {
		if other, ok := seen[s.Topic()]; ok {
			t.Errorf("%+v and %+v have one topic", s, other)
		}
		seen[s.Topic()] = s
	}
}

func TestResult(t *testing.T) {
	want := Result{Records: 5, First: 1, Commit: 2, Batches: 3, Allocs: 4}
	var line bytes.Buffer
	if err := want.Print(&line); err != nil {
		t.Fatal(err)
	}
	got, ok, err := ParseResult(line.String())
	if err != nil || !ok || got != want {
		t.Fatalf("%+v %v %v", got, ok, err)
	}
	if _, ok, err := ParseResult("something else"); ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := ParseResult("RESULT {"); !ok || err == nil {
		t.Fatal(ok, err)
	}
}

func TestExpectedIsKept(t *testing.T) {
	_, want := records(Spec{Kind: Views, Records: 100, Partitions: 1})
	name := filepath.Join(t.TempDir(), "expected.json")
	if err := want.Save(name); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadExpected(name); err != nil || got != want {
		t.Fatalf("%+v %v, want %+v", got, err, want)
	}
}
