package doctor

import (
	"errors"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/tridentd/tridentd/batch"
)

// Each code that only checks give has a row in the documentation, and each row there is a code.
func TestCodesAreDocumented(t *testing.T) {
	found := func(file, pattern string) map[string]bool {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(b), -1) {
			all[m[1]] = true
		}
		return all
	}
	codes := found("codes.go", `batch\.Code = "(\w+)"`)
	rows := found("../docs/reference/doctor.md", "(?m)^\\| `(\\w+)` \\| [^|]*(?:error|warn|same)")
	for _, level := range []Level{OK, Warn, Error} {
		delete(rows, level.String())
	}
	if len(codes) < 10 {
		t.Fatalf("only %d codes were found", len(codes))
	}
	for c := range codes {
		if !rows[c] {
			t.Errorf("code %s isn't documented", c)
		}
	}
	for c := range rows {
		if !codes[c] {
			t.Errorf("code %s is documented, and there is none", c)
		}
	}
}

func TestOf(t *testing.T) {
	cause := errors.New("why")
	f := Of("s", batch.NewError(batch.Permanent, batch.CodeTopicMissing, "open", cause, "make it"))
	if want := (Finding{Error, "s", batch.CodeTopicMissing, "why", "make it"}); f != want {
		t.Errorf("%+v, want %+v", f, want)
	}
	if f := Of("s", cause); f.Level != Error || f.Code != batch.CodeUnavailable || f.Text != "why" || f.Remedy == "" {
		t.Errorf("of a plain error: %+v", f)
	}
}

func TestTexts(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999 * time.Millisecond: "0s", time.Minute: "1m", 61 * time.Second: "1m 1s", 26 * time.Hour: "1d 2h", 24*time.Hour + time.Minute: "1d",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB", 15 << 30: "15 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
