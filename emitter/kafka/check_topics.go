package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
	"github.com/tridentd/tridentd/emitter"
)

const (
	// rateWindow is the time over which the records that arrive are counted.
	rateWindow = 10 * time.Minute
	// maxOldest is the number of partitions above which the age of the lag isn't looked up: it takes a read for each.
	maxOldest = 500
	// maxRows is how many topics of a pattern are named with what is wrong with them.
	maxRows = 20
	// clockSlack is by how much clocks may differ without a word.
	clockSlack = 30 * time.Second
)

// topicState is what is known of one topic under check.
type topicState struct {
	name    string
	meta    *kmsg.MetadataResponseTopic
	configs map[string]string // nil: they can't be seen
	surveys []emitter.Survey  // by partition
	askErr  error             // why there are none
	sizes   map[int32]int64   // bytes, by partition; nil: not known
	readErr error             // why a record can't be read
	newest  time.Time         // the latest timestamp of any record; zero if there is none or it isn't known
}

// topics checks the topics. It also tells how many of their partitions each broker leads.
func (c *checker) topics(ctx context.Context) ([]doctor.Finding, map[int32]int) {
	m, err := c.e.wanted(ctx)
	// A broker may lag behind: what is missing is asked for once more.
	if err == nil && slices.ContainsFunc(c.cfg.Topics, func(name string) bool { return m[name] == nil }) && sleep(ctx, 2*settleTime) == nil {
		m, err = c.e.wanted(ctx)
	}
	if err != nil {
		f := doctor.Of("kafka topics", c.e.unreachable(err))
		f.Text = "the cluster doesn't tell its topics: " + f.Text
		return []doctor.Finding{f}, nil
	}
	var findings []doctor.Finding
	for _, name := range c.cfg.Topics {
		if m[name] == nil {
			findings = append(findings, doctor.Of("kafka topic "+name, c.e.topicMissing(name, c.e.nearest(ctx, name))))
		}
	}
	var there []*topicState
	lead := map[int32]int{}
	for _, name := range sortedKeys(m) {
		if err := kerr.ErrorForCode(m[name].ErrorCode); err != nil {
			findings = append(findings, c.topicFault(name, err))
			continue
		}
		for _, p := range m[name].Partitions {
			if p.Leader >= 0 {
				lead[p.Leader]++
			}
		}
		there = append(there, &topicState{name: name, meta: m[name]})
	}
	c.look(ctx, there)
	if c.e.pattern != nil {
		findings = append(findings, c.patternRows(there)...)
	} else {
		for _, t := range there {
			findings = append(findings, c.topicRows(t)...)
		}
	}
	if f, ok := c.clock(there); ok {
		findings = append(findings, f)
	}
	return findings, lead
}

func (c *checker) topicFault(name string, err error) doctor.Finding {
	f := doctor.Finding{Level: doctor.Error, Subject: "kafka topic " + name, Code: batch.CodeUnavailable, Text: plainText(err), Remedy: "see the brokers' logs"}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		f.Code, f.Text, f.Remedy = batch.CodeUnauthorized, "this user may not see the topic", "grant the user Read and Describe on topic "+name
	}
	return f
}

// look asks all questions about the topics at once.
func (c *checker) look(ctx context.Context, topics []*topicState) {
	if len(topics) == 0 {
		return
	}
	var names []string
	byName := map[string]*topicState{}
	for _, t := range topics {
		names = append(names, t.name)
		byName[t.name] = t
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout+checkTimeout/2)
	defer cancel()
	admin := kadm.NewClient(c.e.client)
	var wg sync.WaitGroup
	wg.Go(func() { c.survey(ctx, names, byName) })
	for _, t := range topics[:min(len(topics), maxRows)] {
		wg.Go(func() { t.readErr = c.read(ctx, t) })
	}
	wg.Go(func() {
		all, err := admin.DescribeTopicConfigs(ctx, names...)
		if err != nil {
			return
		}
		for _, r := range all {
			if t := byName[r.Name]; t != nil && r.Err == nil {
				configs := make(map[string]string, len(r.Configs))
				for _, v := range r.Configs {
					configs[v.Key] = v.MaybeValue()
				}
				t.configs = configs
			}
		}
	})
	newest := map[string]time.Time{}
	wg.Go(func() {
		all, err := admin.ListMaxTimestampOffsets(ctx, names...)
		if err != nil {
			return
		}
		all.Each(func(o kadm.ListedOffset) {
			if at := time.UnixMilli(o.Timestamp); o.Err == nil && o.Offset >= 0 && at.After(newest[o.Topic]) {
				newest[o.Topic] = at
			}
		})
	})
	wg.Wait()
	for _, t := range topics {
		t.newest = newest[t.name]
	}
	c.measure(ctx, admin, topics)
}

// survey asks for the offsets of every partition.
func (c *checker) survey(ctx context.Context, names []string, byName map[string]*topicState) {
	cfg := c.e.cfg // the brokers that answer
	if cfg.Pattern == "" {
		cfg.Topics = names
	}
	parts := 0
	for _, t := range byName {
		parts += len(t.meta.Partitions)
	}
	all, err := Survey(ctx, cfg, c.env.Source, emitter.Env{}, emitter.SurveyQuery{
		Saved: c.env.Positions, Time: c.now.Add(-rateWindow), Oldest: parts <= maxOldest,
	})
	if err != nil {
		for _, t := range byName {
			t.askErr = err
		}
		return
	}
	for _, s := range all {
		if t := byName[s.Topic]; t != nil {
			t.surveys = append(t.surveys, s)
		}
	}
}

// read asks for the right to read by a fetch at the end of one partition.
func (c *checker) read(ctx context.Context, t *topicState) error {
	kt := &topic{name: t.name}
	kt.learn(t.meta.TopicID)
	for _, p := range t.meta.Partitions {
		if p.Leader < 0 {
			continue
		}
		req := fetchRequest(c.e.cfg.Isolation, 0, 1)
		rt := fetchTopic(kt)
		rt.Partitions = []kmsg.FetchRequestTopicPartition{fetchPartition(p.Partition, 0, p.LeaderEpoch, 1)}
		req.Topics = append(req.Topics, rt)
		resp, err := c.e.exchange(ctx, c.e.client, p.Leader, req, 0)
		if err != nil {
			continue // another partition may have a leader that answers
		}
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); isRefused(err) {
					return err
				}
			}
		}
		return nil
	}
	return nil
}

// measure asks for the sizes of partitions whose topic is bounded by them.
func (c *checker) measure(ctx context.Context, admin *kadm.Client, topics []*topicState) {
	set := kadm.TopicsSet{}
	for _, t := range topics {
		if n, ok := t.number("retention.bytes"); ok && n > 0 && t.deletes() {
			for _, p := range t.meta.Partitions {
				set.Add(t.name, p.Partition)
			}
		}
	}
	if len(set) == 0 {
		return
	}
	all, err := admin.DescribeAllLogDirs(ctx, set)
	if err != nil {
		return
	}
	for _, t := range topics {
		for _, p := range t.meta.Partitions {
			all[p.Leader].Each(func(d kadm.DescribedLogDir) {
				d.Topics.Each(func(dp kadm.DescribedLogDirPartition) {
					if dp.Topic == t.name && dp.Partition == p.Partition && !dp.IsFuture {
						if t.sizes == nil {
							t.sizes = map[int32]int64{}
						}
						t.sizes[p.Partition] = dp.Size
					}
				})
			})
		}
	}
}

func (t *topicState) number(key string) (int64, bool) {
	n, err := strconv.ParseInt(t.configs[key], 10, 64)
	return n, err == nil
}

// deletes tells whether old records are deleted.
func (t *topicState) deletes() bool { return strings.Contains(t.configs["cleanup.policy"], "delete") }

// topicRows says how a topic fares: what is wrong with it, or that nothing is.
func (c *checker) topicRows(t *topicState) []doctor.Finding {
	rows := slices.Concat(c.access(t), c.leaders(t), c.replicas(t), c.positions(t), c.cleanup(t), c.retention(t))
	for i := range rows {
		rows[i].Subject = "kafka topic " + t.name
	}
	if slices.ContainsFunc(rows, func(f doctor.Finding) bool { return f.Level == doctor.Error }) {
		return rows
	}
	ok := doctor.Finding{Subject: "kafka topic " + t.name, Text: count(len(t.meta.Partitions), "partition") + ", all led"}
	if lag, known := c.lag(t); known && len(c.env.Positions) > 0 {
		ok.Text += ", " + count(int(lag), "record") + " not processed yet"
	}
	return append([]doctor.Finding{ok}, rows...)
}

// patternRows sums the topics of a pattern up, and names those with something wrong.
func (c *checker) patternRows(topics []*topicState) []doctor.Finding {
	subject := "kafka topics like " + c.cfg.Pattern
	if len(topics) == 0 {
		return []doctor.Finding{{
			Level: doctor.Warn, Subject: subject, Code: doctor.CodeNoMatch, Text: "no topic that this user may see matches",
			Remedy: "correct the pattern, or grant the user Describe on the topics; topics that come later are read",
		}}
	}
	parts, named := 0, 0
	var rows []doctor.Finding
	for _, t := range topics {
		parts += len(t.meta.Partitions)
		bad := slices.DeleteFunc(c.topicRows(t), func(f doctor.Finding) bool { return f.Level == doctor.OK })
		if len(bad) > 0 {
			named++
		}
		if named <= maxRows {
			rows = append(rows, bad...)
		}
	}
	sum := doctor.Finding{Subject: subject, Text: fmt.Sprintf("%s, %s", count(len(topics), "topic"), count(parts, "partition"))}
	if named == 0 {
		sum.Text += ", all led"
	} else {
		sum.Text += fmt.Sprintf("; something is to be said of %s", count(named, "topic"))
		if named > maxRows {
			sum.Text += fmt.Sprintf(", of which %d are named", maxRows)
		}
	}
	return append([]doctor.Finding{sum}, rows...)
}

func (c *checker) access(t *topicState) []doctor.Finding {
	var rows []doctor.Finding
	if t.readErr != nil {
		rows = append(rows, doctor.Finding{
			Level: doctor.Error, Code: batch.CodeUnauthorized, Text: "this user may see the topic, and not read it", Remedy: "grant the user Read on topic " + t.name,
		})
	}
	if t.askErr != nil {
		f := doctor.Of("", t.askErr)
		f.Level, f.Code, f.Text = doctor.Warn, doctor.CodeNotChecked, "its offsets can't be asked for: "+f.Text
		if f.Remedy == "" {
			f.Remedy = "see what is said of the brokers"
		}
		rows = append(rows, f)
	}
	if t.configs == nil {
		rows = append(rows, doctor.Finding{
			Level: doctor.Warn, Code: doctor.CodeNotSeen, Text: "its settings can't be seen: retention, compaction and min.insync.replicas aren't checked",
			Remedy: "grant the user DescribeConfigs on topic " + t.name,
		})
	}
	return rows
}

// leaders names the partitions that can't be read.
func (c *checker) leaders(t *topicState) []doctor.Finding {
	var none []string
	failed := map[string][]string{} // partitions by cause
	for _, p := range t.meta.Partitions {
		if p.Leader < 0 {
			none = append(none, strconv.Itoa(int(p.Partition)))
		}
	}
	for _, s := range t.surveys {
		number := strconv.Itoa(int(s.Number))
		if e, ok := errors.AsType[*batch.Error](s.Err); ok && !slices.Contains(none, number) {
			cause := plainText(e)
			if e.Err != nil {
				cause = strings.Join(strings.Fields(e.Err.Error()), " ")
			}
			failed[cause] = append(failed[cause], number)
		}
	}
	var rows []doctor.Finding
	if len(none) > 0 {
		rows = append(rows, doctor.Finding{
			Level: doctor.Error, Code: doctor.CodeNoLeader, Text: fmt.Sprintf("%s of %d %s no leader", partitionsText(none), len(t.meta.Partitions), has(none)),
			Remedy: "start the brokers that hold their replicas",
		})
	}
	for _, cause := range sortedKeys(failed) {
		rows = append(rows, doctor.Finding{
			Level: doctor.Error, Code: batch.CodeUnavailable, Text: fmt.Sprintf("%s can't be asked: %s", partitionsText(failed[cause]), cause),
			Remedy: "see to the broker, and what is said of it above",
		})
	}
	return rows
}

func partitionsText(parts []string) string {
	if len(parts) == 1 {
		return "partition " + parts[0]
	}
	return "partitions " + strings.Join(parts, ", ")
}

func has(parts []string) string {
	if len(parts) == 1 {
		return "has"
	}
	return "have"
}

// replicas names the partitions that have fewer replicas than they should. Reading works on; the next broker that fails may
// end that.
func (c *checker) replicas(t *topicState) []doctor.Finding {
	var few, below []string
	least, known := t.number("min.insync.replicas")
	for _, p := range t.meta.Partitions {
		switch {
		case p.Leader < 0:
		case known && int64(len(p.ISR)) < least && int64(len(p.Replicas)) >= least:
			below = append(below, strconv.Itoa(int(p.Partition)))
		case len(p.ISR) < len(p.Replicas):
			few = append(few, strconv.Itoa(int(p.Partition)))
		}
	}
	var rows []doctor.Finding
	if len(below) > 0 {
		rows = append(rows, doctor.Finding{
			Level: doctor.Warn, Code: doctor.CodeReplicas,
			Text:   fmt.Sprintf("%s: fewer replicas in sync than min.insync.replicas (%d): producers that ask for all acknowledgements are refused", partitionsText(below), least),
			Remedy: "start the brokers that hold the other replicas",
		})
	}
	if len(few) > 0 {
		rows = append(rows, doctor.Finding{
			Level: doctor.Warn, Code: doctor.CodeReplicas, Text: partitionsText(few) + ": not all replicas are in sync", Remedy: "start the brokers that hold the other replicas",
		})
	}
	return rows
}

// positions compares what the store holds with what the topic has.
func (c *checker) positions(t *topicState) []doctor.Finding {
	var rows []doctor.Finding
	id := formatID(t.meta.TopicID)
	for _, p := range c.env.Positions {
		if p.Topic != t.name {
			continue
		}
		if p.Identity != "" && id != "" && p.Identity != id {
			// Its other positions are of the old topic, too.
			return []doctor.Finding{doctor.Of("", topicChanged(p.Partition, p.Next, p.Identity, id))}
		}
		i := slices.IndexFunc(t.surveys, func(s emitter.Survey) bool { return s.Number == p.Number })
		if i < 0 || t.surveys[i].Err != nil {
			continue
		}
		switch s := &t.surveys[i]; {
		case p.Next < s.Start:
			rows = append(rows, doctor.Of("", outOfRange(p.Partition, p.Next, s.Start, s.LogEnd)))
		case p.Next > s.LogEnd:
			rows = append(rows, doctor.Of("", truncated(p.Partition, p.Next, s.LogEnd, p.LeaderEpoch, batch.NoEpoch)))
		}
	}
	return rows
}

func (c *checker) cleanup(t *topicState) []doctor.Finding {
	if !strings.Contains(t.configs["cleanup.policy"], "compact") {
		return nil
	}
	return []doctor.Finding{{
		Level: doctor.Warn, Code: doctor.CodeCompacted, Text: "is compacted: batches can't be replayed once compaction has taken some of their records",
		Remedy: "leave it so if replays aren't needed, or set cleanup.policy=delete",
	}}
}

// next is the saved position of a partition, -1 without one.
func (c *checker) next(s *emitter.Survey) int64 {
	for _, p := range c.env.Positions {
		if p.Topic == s.Topic && p.Number == s.Number {
			return p.Next
		}
	}
	return -1
}

// lag counts the records (rather: the offsets) that aren't processed yet.
func (c *checker) lag(t *topicState) (total int64, known bool) {
	for i := range t.surveys {
		s := &t.surveys[i]
		if s.Err != nil {
			return 0, false
		}
		total += max(0, s.End-s.From(c.next(s)))
	}
	return total, len(t.surveys) > 0
}

// retention warns where what isn't processed yet has used up more than half of the time, or of the bytes, for which the
// topic keeps records. Before the first run nothing is said: it begins where it can.
func (c *checker) retention(t *topicState) []doctor.Finding {
	if !t.deletes() || len(c.env.Positions) == 0 {
		return nil
	}
	var rows []doctor.Finding
	if ms, ok := t.number("retention.ms"); ok && ms > 0 {
		var oldest time.Time
		for _, s := range t.surveys {
			if !s.Oldest.IsZero() && (oldest.IsZero() || s.Oldest.Before(oldest)) {
				oldest = s.Oldest
			}
		}
		keep := time.Duration(min(ms, int64(1<<62/time.Millisecond))) * time.Millisecond
		if age := c.now.Sub(oldest); !oldest.IsZero() && age > keep/2 {
			text := fmt.Sprintf("retention %s, lag %s: ", doctor.Duration(keep), doctor.Duration(age))
			if age >= keep {
				text += "records that aren't processed yet may be deleted at any moment"
			} else {
				text += fmt.Sprintf("records will be gone in %s unless they are processed by then", doctor.Duration(keep-age))
			}
			rows = append(rows, doctor.Finding{Level: doctor.Warn, Code: doctor.CodeRetention, Text: text, Remedy: "raise retention.ms, or make the pipeline faster"})
		}
	}
	if limit, ok := t.number("retention.bytes"); ok && limit > 0 {
		rows = append(rows, c.retentionBytes(t, limit)...)
	}
	return rows
}

// retentionBytes takes the records of a partition for equally large. It speaks of the partition that is worst.
func (c *checker) retentionBytes(t *topicState, limit int64) []doctor.Finding {
	if t.sizes == nil {
		return []doctor.Finding{{
			Level: doctor.Warn, Code: doctor.CodeNotSeen, Text: "the size of its log can't be seen: retention.bytes isn't checked", Remedy: "grant the user Describe on the cluster",
		}}
	}
	var worst, rate float64 // bytes that wait, and that arrive each second
	for i := range t.surveys {
		s := &t.surveys[i]
		size, ok := t.sizes[s.Number]
		if s.Err != nil || !ok || s.LogEnd <= s.Start {
			continue
		}
		each := float64(size) / float64(s.LogEnd-s.Start)
		if waits := each * float64(s.End-s.From(c.next(s))); waits > worst {
			worst, rate = waits, each*float64(s.End-s.At)/rateWindow.Seconds()
		}
	}
	if worst <= float64(limit)/2 {
		return nil
	}
	text := fmt.Sprintf("retention %s a partition, %s wait to be processed", doctor.Bytes(limit), doctor.Bytes(int64(worst)))
	switch left := float64(limit) - worst; {
	case left <= 0:
		text += ": records that aren't processed yet may be deleted at any moment"
	case rate > 0:
		text += fmt.Sprintf(": records will be gone in %s at the rate at which they arrive", doctor.Duration(time.Duration(min(left/rate, 1e9))*time.Second))
	}
	return []doctor.Finding{{Level: doctor.Warn, Code: doctor.CodeRetention, Text: text, Remedy: "raise retention.bytes, or make the pipeline faster"}}
}

// clock compares this machine's clock with the timestamps of the records. Kafka's protocol doesn't tell what time it is at a
// broker; a timestamp that lies ahead gives a clock away, though, and no clock that is behind.
func (c *checker) clock(topics []*topicState) (doctor.Finding, bool) {
	var worst *topicState
	for _, t := range topics {
		if !t.newest.IsZero() && (worst == nil || t.newest.After(worst.newest)) {
			worst = t
		}
	}
	if worst == nil {
		return doctor.Finding{}, false
	}
	f := doctor.Finding{Subject: "kafka clock", Text: "no record is stamped ahead of this machine's clock (brokers don't tell their own)"}
	ahead := worst.newest.Sub(c.now)
	if ahead <= clockSlack {
		return f, true
	}
	f.Level, f.Code = doctor.Warn, doctor.CodeClock
	f.Text = fmt.Sprintf("the newest record of topic %s is stamped %s ahead of this machine's clock: ", worst.name, doctor.Duration(ahead))
	if worst.configs["message.timestamp.type"] == "LogAppendTime" {
		f.Text += "the brokers' clock is ahead, or this one behind"
	} else {
		f.Text += "a producer's clock is ahead, or this one behind"
	}
	f.Remedy = "set the clocks by NTP"
	return f, true
}
