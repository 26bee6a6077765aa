package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/engine"
)

// row is a row of the files, as somebody else's program reads it.
type row struct {
	Sensor  string    `parquet:"sensor"`
	At      time.Time `parquet:"at,timestamp(nanosecond)"`
	Celsius *[16]byte `parquet:"celsius,optional"`
	Battery int64     `parquet:"battery"`
}

// TestReadings runs the pipeline as it is declared in YAML and as it is written in Go, twice each, and compares what each folder holds with
// an answer that was computed from the data alone.
func TestReadings(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "hours.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][][]any
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{"yaml": t.TempDir(), "go": t.TempDir()}
	t.Setenv("READINGS_DIR", dirs["yaml"])
	for name, c := range map[string]struct {
		target    []string
		pipelines []*engine.Pipeline
	}{
		"yaml": {target: []string{"readings.yaml"}},
		"go":   {pipelines: []*engine.Pipeline{Readings(dirs["go"])}},
	} {
		t.Run(name, func(t *testing.T) {
			run := append(append([]string{"run"}, c.target...), "--data", t.TempDir(), "--until", "caught-up", "--listen", "off")
			for range 2 {
				var out, errs bytes.Buffer
				if code := daemon.Execute(t.Context(), run, &out, &errs, c.pipelines...); code != 0 {
					t.Fatalf("tridentd %v: exit code %d\n%s", run, code, &errs)
				}
			}
			got := map[string][][]any{}
			files, err := filepath.Glob(filepath.Join(dirs[name], "*", "*", "hours-*.parquet"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files { // of a folder in the order of batches
				folder, err := filepath.Rel(dirs[name], filepath.Dir(file))
				if err != nil {
					t.Fatal(err)
				}
				rows, err := parquet.ReadFile[row](file)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rows {
					got[filepath.ToSlash(folder)] = append(got[filepath.ToSlash(folder)], []any{r.Sensor, r.At.UTC().Format("2006-01-02T15:04:05.000Z"), hundredths(r.Celsius), float64(r.Battery)})
				}
			}
			if len(files) <= len(want) {
				t.Errorf("%d files in %d folders: no hour is of two batches", len(files), len(want))
			}
			for folder, rows := range want {
				if !reflect.DeepEqual(got[folder], rows) {
					t.Errorf("%s: %v, want %v", folder, got[folder], rows)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d folders, want %d", len(got), len(want))
			}
		})
	}
}

// hundredths is a decimal of two digits behind the point as text; nil for null.
func hundredths(b *[16]byte) any {
	if b == nil {
		return nil
	}
	n := new(big.Int).SetBytes(b[:])
	if b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), 128))
	}
	sign := ""
	if n.Sign() < 0 {
		sign = "-"
	}
	n.Abs(n)
	return fmt.Sprintf("%s%d.%02d", sign, n.Int64()/100, n.Int64()%100)
}
