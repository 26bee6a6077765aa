package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Bounds of what may take long on a loaded machine.
const (
	startLimit = time.Minute
	extraLimit = 2 * time.Minute // beyond what a run takes anyway
)

// liveTopic makes a topic that exists for one run.
func (b *bench) liveTopic(ctx context.Context, name string, partitions int32) (topic string, remove func() error, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.address))
	if err != nil {
		return "", nil, err
	}
	defer cl.Close()
	b.runs++
	topic = fmt.Sprintf("bench-%s-%d-%d", name, os.Getpid(), b.runs)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return "", nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	for { // the broker hears of it a little later
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil && ends.Error() == nil && len(ends[topic]) == int(partitions) {
			break
		}
		select {
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return topic, func() error { return b.dropTopics(context.WithoutCancel(ctx), topic) }, nil
}

// live sends at an even rate and watches how far the commits are behind.
func live(ctx context.Context, b *bench) (err error) {
	b.say("\nlive: %d records/s for %d s", b.rate, b.seconds)
	topic, remove, err := b.liveTopic(ctx, "live", 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	dir := filepath.Join(b.dir, topic)
	defer os.RemoveAll(dir) //nolint:errcheck // only room on the disk is lost
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := b.waitQuiet(ctx); err != nil {
		return err
	}
	n := int64(b.rate) * int64(b.seconds)
	before, err := b.usage(0)
	if err != nil {
		return err
	}
	us, err := b.start(ctx, filepath.Join(dir, "ours.log"), b.bin("ours"), "-brokers", b.kafka.address, "-topic", topic, "-dir", filepath.Join(dir, "data"), "-live", "-n", fmt.Sprint(n))
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, us.stop())
		}
	}()
	if _, err := us.until(ctx, startLimit, "READY"); err != nil {
		return err
	}
	gen, err := b.start(ctx, filepath.Join(dir, "load.log"), b.bin("load"), "-brokers", b.kafka.address, "-topic", topic, "-rate", fmt.Sprint(b.rate), "-n", fmt.Sprint(n))
	if err != nil {
		return err
	}
	limit := time.Duration(b.seconds)*time.Second + extraLimit
	if _, err := us.until(ctx, limit, "RESULT"); err != nil {
		return errors.Join(err, gen.stop())
	}
	after, err := b.usage(us.cmd.Process.Pid)
	if err != nil {
		return err
	}
	own := after.own
	memory, err := peakMemory(us.cmd.Process.Pid)
	if err != nil {
		return err
	}
	stopped = true
	genErr := gen.wait()
	if err := errors.Join(us.stop(), genErr); err != nil {
		return err
	}
	sentAt, sent, err := gen.counts("SENT")
	if err != nil {
		return err
	}
	doneAt, done, err := us.counts("AT")
	if err != nil {
		return err
	}
	took := float64(sentAt[len(sentAt)-1]-gen.began.UnixMilli()) / 1000
	behind := lags(sentAt, sent, doneAt, done)
	// The first tenth is where everything warms up.
	warm := behind[len(behind)/10:]
	half := len(warm) / 2
	early, late := median(warm[:max(half, 1)]), median(warm[half:])
	sendRate := float64(sent[len(sent)-1]) / took
	state := gen.cmd.ProcessState
	after.own += state.UserTime() + state.SystemTime()
	disturbed := others(before, after) > quietShare
	b.figure("live", "sent", sendRate, "records/s")
	b.figure("live", "median backlog, first half", float64(early), "records")
	b.figure("live", "median backlog, second half", float64(late), "records")
	b.figure("live", "largest backlog", float64(slices.Max(warm)), "records")
	b.figure("live", "CPU of ours", own.Seconds()/took*100, "% of a core")
	b.figure("live", "CPU of Kafka", (after.servers-before.servers).Seconds()/took*100, "% of a core")
	b.figure("live", "peak memory", float64(memory>>20), "MB")
	b.atLeast("live: sent, of the rate asked for", sendRate/float64(b.rate), 0.99, "", disturbed)
	b.atMost("live: backlog in the second half, in seconds of the rate", float64(late)/float64(b.rate), 0.5, "s", disturbed)
	return nil
}

// lags are, for each time at which something was sent, how many records that had been sent by then hadn't been
// committed.
func lags(sentAt, sent, doneAt, done []int64) []int64 {
	out := make([]int64, len(sentAt))
	for i, at := range sentAt {
		j, _ := slices.BinarySearch(doneAt, at+1)
		var have int64
		if j > 0 {
			have = done[j-1]
		}
		out[i] = max(sent[i]-have, 0)
	}
	return out
}
