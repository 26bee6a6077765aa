//go:build crash

package daemon_test

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tridentd/tridentd/internal/testenv"
)

// TestKillWithFormsOfFiles writes the lines of a file to CSV, and to Parquet in four folders, in a process that is killed by SIGKILL again
// and again. Each line must be in one file of each form, once, and no file may be other than one of a run that nobody disturbs.
func TestKillWithFormsOfFiles(t *testing.T) {
	records, kills := 20_000, 25
	if testenv.Full() {
		records, kills = 120_000, 200
	}
	dir := t.TempDir()
	bin := build(t, dir)
	file := filepath.Join(dir, "files.yaml")
	write(t, file, `pipeline: files
batch:
  max_records: 100
sources:
  in:
    file: {paths: [in.jsonl]}
    decode: json
    types: {n: int}
streams:
  odd:
    from: in
    steps:
      - filter: n % 2 == 1
      - set:
          at: timestamp(n % 8 * 3600000)
          half: decimal(n) * decimal("0.5")
sinks:
  rows: {from: odd, fields: [n, at, half], encode: csv, file: {dir: csv, compression: gzip}}
  hours: {from: odd, fields: [n, at, half], encode: parquet, file: {dir: parquet, by: {field: at, unit: hour}, compression: zstd}}
`)
	var in bytes.Buffer
	for i := range records {
		fmt.Fprintf(&in, "{\"n\":%d}\n", i)
	}
	write(t, filepath.Join(dir, "in.jsonl"), in.String())

	data := filepath.Join(dir, "data")
	store := filepath.Join(data, "files")
	running := runKilled(t, bin, file, data, store, kills, 20261203)
	replayed := verified(t, bin, file, data)

	killed := map[string][]byte{}
	csvs, parquets := map[int]int{}, map[int]int{}
	for _, form := range []string{"csv", "parquet"} {
		for name, b := range filesBelow(t, filepath.Join(dir, form)) {
			killed[form+"/"+name] = b
			if form == "csv" {
				countCSV(t, b, csvs)
			} else {
				countParquet(t, name, b, parquets)
			}
		}
	}
	for form, seen := range map[string]map[int]int{"CSV": csvs, "Parquet": parquets} {
		for n := 1; n < records; n += 2 {
			if seen[n] != 1 {
				t.Errorf("%s: record %d is there %d times", form, n, seen[n])
			}
		}
		if len(seen) != records/2 {
			t.Errorf("%s: %d records, want %d", form, len(seen), records/2)
		}
	}

	// Undisturbed, and elsewhere: the batches are cut alike, so the files are the same, byte for byte.
	elsewhere := filepath.Join(dir, "elsewhere")
	file = filepath.Join(elsewhere, "files.yaml")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	def, err := os.ReadFile(filepath.Join(dir, "files.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(def))
	write(t, filepath.Join(elsewhere, "in.jsonl"), in.String())
	toTheEnd(t, bin, file, filepath.Join(elsewhere, "data"))
	undisturbed := 0
	for _, form := range []string{"csv", "parquet"} {
		for name, b := range filesBelow(t, filepath.Join(elsewhere, form)) {
			undisturbed++
			if got, ok := killed[form+"/"+name]; !ok || !bytes.Equal(got, b) {
				t.Errorf("%s/%s: there: %v, and it isn't what an undisturbed run writes", form, name, ok)
			}
		}
	}
	if undisturbed != len(killed) {
		t.Errorf("%d files, an undisturbed run writes %d", len(killed), undisturbed)
	}
	t.Logf("%d records, %d kills, %d of them after a commit, %d files: %s", records, kills, running, len(killed), replayed)
}

// filesBelow reads all files of a folder that readers see.
func filesBelow(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".tridentd":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[filepath.ToSlash(rel)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func countCSV(t *testing.T, b []byte, seen map[int]int) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(rows[0], ",") != "n,at,half" {
		t.Fatalf("the header is %q", rows[0])
	}
	for _, r := range rows[1:] {
		n, err := strconv.Atoi(r[0])
		if err != nil || r[2] != fmt.Sprintf("%d.5", n/2) {
			t.Fatalf("row %q: %v", r, err)
		}
		seen[n]++
	}
}

func countParquet(t *testing.T, name string, b []byte, seen map[int]int) {
	t.Helper()
	type row struct {
		N  int64     `parquet:"n"`
		At time.Time `parquet:"at,timestamp(nanosecond)"`
	}
	rows, err := parquet.Read[row](bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, r := range rows {
		if folder := fmt.Sprintf("day=1970-01-01/hour=%02d/", r.N%8); !strings.HasPrefix(name, folder) || r.At.UTC().Hour() != int(r.N%8) {
			t.Fatalf("%s: row %+v isn't of that folder", name, r)
		}
		seen[int(r.N)]++
	}
}
