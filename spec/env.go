package spec

import (
	"fmt"
	"strings"
)

// expandEnv replaces ${NAME} and ${NAME:-default} in one scalar value. It works on values that YAML has already
// parsed: a variable's content is never read as YAML, and comments are never looked at. $${ stands for a plain ${.
// changed tells whether anything was replaced.
func expandEnv(s string, lookup func(string) (string, bool)) (out string, changed bool, err error) {
	if !strings.Contains(s, "${") {
		return s, false, nil
	}
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), true, nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return "", false, fmt.Errorf("${ without a closing }")
		}
		ref := s[i+2 : i+end]
		s = s[i+end+1:]
		name, def, hasDefault := strings.Cut(ref, ":-")
		if !isEnvName(name) {
			return "", false, fmt.Errorf("${%s} doesn't name an environment variable", ref)
		}
		v, ok := lookup(name)
		switch {
		case ok && (v != "" || !hasDefault):
			b.WriteString(v)
		case hasDefault:
			b.WriteString(def)
		default:
			return "", false, fmt.Errorf("environment variable %s is not set", name)
		}
	}
}

func isEnvName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}
