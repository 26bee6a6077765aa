package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// restart fills a state with many keys, then starts on it again and again, with a few new records waiting, and takes the time from the
// process' start to its first commit.
func restart(ctx context.Context, b *bench) (err error) {
	b.say("\nrestart with %d keys", b.keys)
	topic, remove, err := b.liveTopic(ctx, "restart", 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	load := []string{"-brokers", b.kafka.address, "-topic", topic, "-users", fmt.Sprint(b.keys), "-uniform", "-more", "-n"}
	if out, err := exec.CommandContext(ctx, b.bin("load"), append(load, fmt.Sprint(b.keys))...).CombinedOutput(); err != nil {
		return fmt.Errorf("loading: %w\n%s", err, out)
	}
	dir := filepath.Join(b.dir, fmt.Sprintf("restart-%d", os.Getpid()))
	defer os.RemoveAll(dir) //nolint:errcheck // only room on the disk is lost
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ours := []string{b.bin("ours"), "-brokers", b.kafka.address, "-topic", topic, "-dir", filepath.Join(dir, "data")}
	fill, err := b.start(ctx, filepath.Join(dir, "fill.log"), append(ours, "-n", fmt.Sprint(b.keys))...)
	if err != nil {
		return err
	}
	if _, err := fill.until(ctx, runLimit, "RESULT"); err != nil {
		return errors.Join(err, fill.stop())
	}
	if err := fill.wait(); err != nil {
		return err
	}
	disk, err := size(filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	var took []float64
	disturbed := false
	for range b.rounds {
		more := exec.CommandContext(ctx, b.bin("load"), append(load, "1000")...)
		if out, err := more.CombinedOutput(); err != nil {
			return fmt.Errorf("adding records: %w\n%s", err, out)
		}
		if err := b.waitQuiet(ctx); err != nil {
			return err
		}
		before, err := b.usage(0)
		if err != nil {
			return err
		}
		c, err := b.start(ctx, filepath.Join(dir, "again.log"), append(ours, "-live")...)
		if err != nil {
			return err
		}
		line, err := c.until(ctx, startLimit, "FIRST ")
		if err != nil {
			return errors.Join(err, c.stop())
		}
		after, err := b.usage(c.cmd.Process.Pid)
		if err := errors.Join(err, c.stop()); err != nil {
			return err
		}
		var at int64
		if _, err := fmt.Sscanf(line, "FIRST %d", &at); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		took = append(took, float64(at-c.began.UnixMilli())/1000)
		disturbed = disturbed || others(before, after) > quietShare
	}
	b.figure("restart", "data directory", float64(disk)/(1<<20), "MB")
	b.atMost(fmt.Sprintf("restart with %d keys, to the first commit", b.keys), median(took), 1, "s", disturbed)
	return nil
}
