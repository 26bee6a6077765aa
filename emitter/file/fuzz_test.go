package file

import "testing"

// FuzzFingerprint: an identity that is taken is the one that is written, so that equal ones are equal as text.
func FuzzFingerprint(f *testing.F) {
	f.Add("0:0000000000000000")
	f.Add(fingerprint{bytes: 1 << 40, sum: 0xabc}.String())
	f.Add("-1:1")
	f.Add("1")
	f.Fuzz(func(t *testing.T, s string) {
		fp, err := parseFingerprint(s)
		if err == nil && (fp.String() != s || fp.bytes < 0) {
			t.Errorf("%q is read as %s", s, fp)
		}
	})
}
