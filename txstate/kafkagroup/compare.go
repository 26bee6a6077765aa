package kafkagroup

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// part is a partition as Kafka names it.
type part struct {
	topic  string
	number int32
}

func (p part) compare(q part) int {
	return cmp.Or(cmp.Compare(p.topic, q.topic), cmp.Compare(p.number, q.number))
}

func (p part) String() string { return fmt.Sprintf("%s-%d", p.topic, p.number) }

// held is what the group holds for a partition.
type held struct {
	next     int64
	stamp    *stamp // nil: of no tridentd
	metadata string
}

// mark is what this mirror last wrote for a partition.
type mark struct {
	next int64
	txid batch.Txid
	at   time.Time
}

// finding is something that the group's offsets tell.
type finding struct {
	part   part
	code   batch.Code
	stays  bool // it isn't mended by a write: the offset is left alone
	text   string
	remedy string // an imperative sentence
}

// view is what a comparison is made of, all of it as of one moment.
type view struct {
	pipeline, source string
	epoch            batch.Epoch
	txid             batch.Txid // that the store has come to
	rewind           bool
	refresh          time.Duration
	now              time.Time
	written          map[part]mark
	aside            map[part]refusal
}

// compare says which positions are to be written over what the group holds, and what is strange about that. The order
// is that of positions.
func (v *view) compare(positions []txstate.SavedPosition, has map[part]held) (write []txstate.SavedPosition, findings []finding) {
	for _, p := range positions {
		at := part{p.Topic, p.Number}
		h, there := has[at]
		f, due := v.one(p, at, h, there)
		if f != nil {
			f.part = at
			findings = append(findings, *f)
		}
		if r, ok := v.aside[at]; due && (!ok || !v.now.Before(r.until)) {
			write = append(write, p)
		}
	}
	return write, findings
}

func (v *view) one(p txstate.SavedPosition, at part, h held, there bool) (*finding, bool) {
	last, known := v.written[at]
	switch {
	case !there && known:
		return &finding{
			code: batch.CodeGroupLost, text: fmt.Sprintf("the offset of %s is gone from the group, which has expired or was deleted; %d is written again", at, p.Next),
			remedy: "keep offsets.retention.minutes above an hour, and leave the group to the pipeline",
		}, true
	case !there:
		return nil, true
	case h.stamp == nil:
		if h.next == p.Next || known && h.next == last.next {
			return nil, true
		}
		return v.replaced(at, h, p, "somebody else"), true
	case h.stamp.Pipeline != v.pipeline:
		return v.occupied(at, h, "pipeline "+h.stamp.Pipeline), false
	case v.rewind:
		return nil, true
	case h.stamp.Source != v.source:
		// Of an epoch that is past: the source had another name then.
		if h.stamp.Epoch < v.epoch {
			return nil, true
		}
		return v.occupied(at, h, "source "+h.stamp.Source), false
	// It is the store's txid that counts, not the partition's: a store that was restored has passed the batch in which its
	// predecessor moved the partition, even if the partition gets no more records.
	case h.stamp.Txid > v.txid:
		return &finding{
			code: batch.CodeGroupAhead, stays: true,
			text: fmt.Sprintf("the group holds %d for %s, written at txid %d; the store stands at %d, and has come to txid %d", h.next, at, h.stamp.Txid, p.Next, v.txid),
			remedy: "make sure that the pipeline doesn't run from another data directory too; the group is followed again once the store has passed it, " +
				"or when its offsets are deleted (kafka-consumer-groups --delete)",
		}, false
	case known && (h.next != last.next || h.stamp.Txid < last.txid):
		return v.replaced(at, h, p, "another process of this pipeline"), true
	case h.stamp.Txid == p.Txid && h.next == p.Next:
		return nil, v.now.Sub(last.at) >= v.refresh
	default:
		return nil, true
	}
}

func (v *view) replaced(at part, h held, p txstate.SavedPosition, who string) *finding {
	return &finding{
		code: batch.CodeGroupForeign, text: fmt.Sprintf("%s has committed %d for %s to the group; %d is written in its place", who, h.next, at, p.Next),
		remedy: "leave the group to the pipeline: give other consumers a group of their own",
	}
}

func (v *view) occupied(at part, h held, who string) *finding {
	return &finding{
		code: batch.CodeGroupForeign, stays: true, text: fmt.Sprintf("the group's offset of %s, %d, belongs to %s", at, h.next, who),
		remedy: "give each pipeline, and each source of one topic, a group of its own; if the other is gone, delete its offsets (kafka-consumer-groups --delete)",
	}
}

// sum makes one failure of all findings with a code.
func sum(findings []finding, code batch.Code, source, group string) *batch.Error {
	i := slices.IndexFunc(findings, func(f finding) bool { return f.code == code })
	f := findings[i]
	more := 0
	for _, g := range findings[i+1:] {
		if g.code == code {
			more++
		}
	}
	text := f.text
	if more > 0 {
		text += fmt.Sprintf(" (and %d more partitions)", more)
	}
	return batch.NewError(batch.Transient, code, "mirror", fmt.Errorf("consumer group %s: %s", group, text), f.remedy).
		At(batch.Partition{Source: source, Topic: f.part.topic, Number: f.part.number}, batch.NoOffset)
}
