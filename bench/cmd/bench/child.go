package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// child is a process that goes on until it is stopped, and tells on its standard output how it fares.
type child struct {
	cmd   *exec.Cmd
	began time.Time
	lines chan string // closed at its end
	log   string
	told  []string // what until has passed over
}

func (b *bench) start(ctx context.Context, log string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, args[0], args[1:]...), lines: make(chan string, 1<<16), log: log}
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = 10 * time.Second
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the process has it, too
	c.cmd.Stderr = f
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.began = time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			c.lines <- sc.Text()
		}
	}()
	return c, nil
}

// until returns the first line that begins so, and keeps those before it.
func (c *child) until(ctx context.Context, limit time.Duration, prefix string) (string, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-timer.C:
			return "", fmt.Errorf("%s: no line %s within %v\n%s", filepath.Base(c.cmd.Path), prefix, limit, tail(c.log))
		case line, ok := <-c.lines:
			if !ok {
				return "", fmt.Errorf("%s ended without a line %s\n%s", filepath.Base(c.cmd.Path), prefix, tail(c.log))
			}
			c.told = append(c.told, line)
			if strings.HasPrefix(line, prefix) {
				return line, nil
			}
		}
	}
}

// stop asks it to end, and waits for that.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return c.wait()
}

// wait waits for its end.
func (c *child) wait() error {
	for line := range c.lines {
		c.told = append(c.told, line)
	}
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(c.cmd.Path), err, tail(c.log))
	}
	return nil
}

// counts are the lines of a form `MARK milliseconds n`.
func (c *child) counts(mark string) (at []int64, n []int64, err error) {
	for _, line := range c.told {
		rest, ok := strings.CutPrefix(line, mark+" ")
		if !ok {
			continue
		}
		var ms, k int64
		if _, err := fmt.Sscan(rest, &ms, &k); err != nil {
			return nil, nil, fmt.Errorf("%q: %w", line, err)
		}
		at, n = append(at, ms), append(n, k)
	}
	return at, n, nil
}
