package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/bench/workload"
	"github.com/tridentd/tridentd/txstate"
)

// watch tells what has been committed.
type watch struct {
	began         time.Time
	before        int64 // allocations
	want          int64
	live          bool
	read, batches int64
	said          time.Time // the last AT
	told          bool      // the result
	log           *bufio.Writer
	file          *os.File
	line          []byte
}

// said is how often AT is printed.
const every = 100 * time.Millisecond

func (w *watch) Resumed(batch.Txid) { fmt.Println("READY") }

func (w *watch) Begun(batch.Txid, batch.Attempt) {}

func (w *watch) Failed(err error) { fmt.Fprintf(os.Stderr, "ours: %v\n", err) }

// Committed is called in txid order, after the batch has been synced.
func (w *watch) Committed(e *txstate.Entry) {
	now := time.Now()
	if w.batches == 0 {
		fmt.Printf("FIRST %d\n", now.UnixMilli())
	}
	w.batches++
	w.read += e.Counts.Read
	for i := range e.Ranges {
		if w.log == nil {
			break
		}
		r := &e.Ranges[i]
		w.line = strconv.AppendInt(w.line[:0], int64(r.Partition.Number), 10)
		w.line = strconv.AppendInt(append(w.line, ' '), r.End, 10)
		w.line = strconv.AppendInt(append(w.line, ' '), now.UnixNano(), 10)
		_, _ = w.log.Write(append(w.line, '\n')) // an error shows when the log is closed
	}
	if w.live && (now.Sub(w.said) >= every || w.read == w.want) {
		w.said = now
		fmt.Printf("AT %d %d\n", now.UnixMilli(), w.read)
	}
	if w.want > 0 && w.read >= w.want && !w.told {
		w.told = true
		r := workload.Result{Records: w.read, First: w.began.UnixMilli(), Commit: now.UnixMilli(), Batches: w.batches, Allocs: allocs() - w.before}
		if err := r.Print(os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "ours: %v\n", err)
		}
	}
}

func (w *watch) logInto(name string) error {
	f, err := os.Create(name)
	w.file, w.log = f, bufio.NewWriterSize(f, 1<<20)
	return err
}

func (w *watch) closeLog() error {
	if err := w.log.Flush(); err != nil {
		return err
	}
	return w.file.Close()
}
