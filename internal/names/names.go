// Package names turns Go names into the names that users see, and finds the name that somebody probably meant.
//
// Both are pure functions of their arguments: the order of candidates doesn't reach a result.
package names

import (
	"strings"
	"unicode"
)

// Savepoints is the folder beside the pipelines' data directories that holds their savepoints, unless they name another place.
const Savepoints = "savepoints"

// Reserved tells whether a pipeline can't have that name: its data directory would be something else's. Letter case doesn't count,
// as it doesn't to every file system.
func Reserved(pipeline string) bool { return strings.EqualFold(pipeline, Savepoints) }

// Snake returns the snake_case form of a Go identifier: DepDelay gives dep_delay, ID gives id, HTTPPort gives
// http_port. A run of capitals is one word; its last letter begins the next word if a small letter follows, except
// for the s of a plural (UserIDs gives user_ids). Digits stay with the word before them.
func Snake(goName string) string {
	rs := []rune(goName)
	var b strings.Builder
	b.Grow(len(goName) + 4)
	for i, r := range rs {
		if unicode.IsUpper(r) && i > 0 && rs[i-1] != '_' && beginsWord(rs, i) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// beginsWord tells whether the capital at i, which is not the first rune, begins a word.
func beginsWord(rs []rune, i int) bool {
	if !unicode.IsUpper(rs[i-1]) {
		return true
	}
	if i+1 == len(rs) || !unicode.IsLower(rs[i+1]) {
		return false
	}
	plural := rs[i+1] == 's' && (i+2 == len(rs) || unicode.IsUpper(rs[i+2]))
	return !plural
}

// Nearest returns the candidate that s was most likely meant to be. Letter case doesn't count; insertions,
// deletions, substitutions and swaps of neighbours do, up to a third of the length of s (at least one). Among
// equally near candidates the first in byte order wins. ok is false if none is near enough.
func Nearest(s string, candidates []string) (name string, ok bool) {
	if s == "" {
		return "", false
	}
	want := []rune(strings.ToLower(s))
	best := max(1, len(want)/3) + 1
	for _, c := range candidates {
		have := []rune(strings.ToLower(c))
		if len(have) == 0 || len(have)-len(want) > best || len(want)-len(have) > best {
			continue
		}
		d := distance(want, have)
		// A distance as large as the word itself would suggest something that shares no letter with it.
		if d >= len(want) && d > 0 {
			continue
		}
		if d < best || d == best && ok && c < name {
			name, best, ok = c, d, true
		}
	}
	return name, ok
}

// distance is the optimal string alignment distance of a and b.
func distance(a, b []rune) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
