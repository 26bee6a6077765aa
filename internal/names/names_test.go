package names

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"DepDelay": "dep_delay", "ID": "id", "TimeHour": "time_hour", "N": "n", "CustomerID": "customer_id",
		"HTTPServer": "http_server", "UserIDs": "user_ids", "IDsOfUsers": "ids_of_users", "Sum2": "sum2", "A1B": "a1_b",
		"PlacedAt": "placed_at", "Already_Snake": "already_snake", "": "", "Übergang": "übergang", "GoHTTP": "go_http",
		"dep_delay": "dep_delay",
	} {
		if got := Snake(in); got != want {
			t.Errorf("Snake(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		s          string
		candidates []string
		want       string
	}{
		{"max_record", []string{"max_bytes", "max_records", "max_pending"}, "max_records"},
		{"dep_dealy", []string{"arr_delay", "dep_delay", "dep_time"}, "dep_delay"},
		{"lins", []string{"lines", "links"}, "lines"},
		{"lins", []string{"links", "lines"}, "lines"},
		{"Carrier", []string{"carrier"}, "carrier"},
		{"xyz", []string{"carrier"}, ""},
		{"a", []string{"b"}, ""},
		{"", []string{"b"}, ""},
		{"filter", nil, ""},
	} {
		got, ok := Nearest(c.s, c.candidates)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Nearest(%q, %q) = %q, %v; want %q", c.s, c.candidates, got, ok, c.want)
		}
	}
}

func TestNearestIgnoresOrder(t *testing.T) {
	word := rapid.StringMatching(`[a-c_]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		s := word.Draw(t, "s")
		cs := rapid.SliceOfN(word, 1, 8).Draw(t, "candidates")
		a, okA := Nearest(s, cs)
		slices.Reverse(cs)
		b, okB := Nearest(s, cs)
		if a != b || okA != okB {
			t.Fatalf("%q among %q: %q forwards, %q backwards", s, cs, b, a)
		}
		if slices.Contains(cs, s) && a != s {
			t.Fatalf("%q is a candidate, yet %q was suggested", s, a)
		}
	})
}

func TestDistanceIsSymmetric(t *testing.T) {
	word := rapid.StringMatching(`[a-d]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d, e := distance([]rune(a), []rune(b)), distance([]rune(b), []rune(a))
		if d != e || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Fatalf("distance(%q, %q) = %d, reversed %d", a, b, d, e)
		}
		if strings.HasPrefix(b, a) && d != len(b)-len(a) {
			t.Fatalf("%q is a prefix of %q, distance %d", a, b, d)
		}
	})
}
