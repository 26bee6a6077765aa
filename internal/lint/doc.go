// Package lint holds, as tests, the rules of this code base that no common linter knows:
//
//   - which package may import which, of ours and of others' (imports_test.go has the table);
//   - map order, the wall clock and random sources have no way into results;
//   - no marks of unfinished work, addresses of package registries or paths of one machine in any file;
//   - links between the documents lead somewhere.
//
// An exception is a comment at the place, on the same line or the line above, that begins with "order:" (map order) or
// "clock:" (clock or random source) and says why no result depends on it.
package lint
