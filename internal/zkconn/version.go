package zkconn

import (
	"fmt"
	"strconv"
	"strings"
)

// version is one of ZooKeeper's, as 3.9.5.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) before(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// parseVersion reads what a server calls itself: "3.9.5-293c895a8d96, built on 2026-02-11 20:18 UTC".
func parseVersion(text string) (version, bool) {
	var v version
	text, _, _ = strings.Cut(text, ",")
	text, _, _ = strings.Cut(text, "-")
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// oldest is the first version that has Multi.
var oldest = version{3, 4, 0}

// faults are versions in which acknowledged writes can be lost or servers can come to differ. from is the first with the
// fault, fixed the first of the same minor version without it.
var faults = []struct {
	from, fixed version
	issue, text string
}{
	{version{3, 5, 0}, version{3, 5, 10}, "ZOOKEEPER-3911", "after a crash of the leader servers can differ"},
	{version{3, 6, 0}, version{3, 6, 3}, "ZOOKEEPER-3911", "after a crash of the leader servers can differ"},
	{version{3, 8, 0}, version{3, 8, 4}, "ZOOKEEPER-4785", "a follower that ends while it catches up can lose acknowledged writes"},
	{version{3, 9, 0}, version{3, 9, 2}, "ZOOKEEPER-4785", "a follower that ends while it catches up can lose acknowledged writes"},
	{version{3, 9, 3}, version{3, 9, 4}, "ZOOKEEPER-4925", "a follower that becomes leader can pass on a history with holes"},
}

// maintained is the first version that still gets corrections.
var maintained = version{3, 8, 0}

// complaint is what is wrong with a version: tooOld tells that it can't be used at all. Empty if nothing is known.
func (v version) complaint() (text string, tooOld bool) {
	if v.before(oldest) {
		return fmt.Sprintf("version %s has no transactions of several nodes; %s is the oldest that works", v, oldest), true
	}
	for _, f := range faults {
		if !v.before(f.from) && v.before(f.fixed) {
			return fmt.Sprintf("version %s has a known fault (%s, mended in %s): %s", v, f.issue, f.fixed, f.text), false
		}
	}
	if v.before(maintained) {
		return fmt.Sprintf("version %s gets no corrections any more", v), false
	}
	return "", false
}
