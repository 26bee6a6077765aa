package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// judge decides whether a record that somebody has written may be written over by the store s of the given pipeline: nil if
// it is an earlier one of this store's history. held are the positions beside the record.
//
// What counts is the history, told by the chain of digests, not the store: a store that was computed again, or restored,
// has another identity or none, and goes on from the same batches. Only where the ledger doesn't reach back to the
// record's txid does the identity decide.
func judge(ctx context.Context, path, pipeline string, s *txstate.Standing, found *recordNode, held []txstate.Carried) error {
	at := found.Committed.Txid
	switch {
	case found.Pipeline != pipeline:
		return foreign(path, pipeline, fmt.Sprintf("it is the record of pipeline %s, at txid %d of epoch %d, written %s", found.Pipeline, at, found.Epoch, stamp(found.Written)),
			"give each pipeline a node of its own (zookeeper.id, zookeeper.path); if the other is gone, remove the node")
	case at == 0:
		return nil // nothing of it can be lost
	case at > s.Txid && found.Store != s.Store && found.Store != "":
		return foreign(path, pipeline, fmt.Sprintf("another store of this pipeline has written it: store %s stands at txid %d%s, written %s; this store, %s, stands at txid %d%s",
			found.Store, at, listCarried(held), stamp(found.Written), s.Store, s.Txid, listSaved(s.Positions)), remedyAhead)
	case at > s.Txid:
		e := batch.NewError(batch.Permanent, batch.CodeRecordAhead, "record",
			fmt.Errorf("ZooKeeper's node %s is ahead of the store: it says txid %d%s, written %s; the store stands at txid %d%s",
				path, at, listCarried(held), stamp(found.Written), s.Txid, listSaved(s.Positions)), remedyAhead)
		e.Pipeline = pipeline
		return e
	}
	if found.Store == "" {
		return nil // written on purpose, by somebody who knew no more than positions
	}
	chain, ok := s.Chain, true
	if at != s.Txid {
		var err error
		if chain, ok, err = s.ChainAt(ctx, at); err != nil {
			return fmt.Errorf("comparing the record in ZooKeeper with the ledger: %w", err)
		}
	}
	switch {
	case ok && chainText(chain) == found.Committed.Chain:
		return nil
	case !ok && found.Store == s.Store:
		return nil
	case !ok:
		return foreign(path, pipeline, fmt.Sprintf("another store of this pipeline, %s, has written it at txid %d, and the ledger of this store, %s, doesn't reach back there",
			found.Store, at, s.Store), remedyAhead)
	}
	return foreign(path, pipeline, fmt.Sprintf("it tells another history: at txid %d its chain is %s, that of this store is %s; store %s has written it at %s",
		at, found.Committed.Chain, chainText(chain), found.Store, stamp(found.Written)), remedyAhead)
}

// remedyAhead names the export before anything else is restored: the store is most often behind because a savepoint was.
const remedyAhead = "if this store was put back on purpose, as by a restored savepoint, write its positions there first: tridentd offsets export FILE --to zookeeper; " +
	"if it wasn't, choose the directory that holds the data (--data), or restore a savepoint that isn't older"

func foreign(path, pipeline, text, remedy string) *batch.Error {
	e := batch.NewError(batch.Permanent, batch.CodeRecordForeign, "record", fmt.Errorf("ZooKeeper's node %s is somebody else's: %s", path, text), remedy)
	e.Pipeline = pipeline
	return e
}

func garbled(path, pipeline string, cause error) *batch.Error {
	e := batch.NewError(batch.Permanent, batch.CodeRecordGarbled, "record",
		fmt.Errorf("ZooKeeper's node %s can't be read, and the data directory is empty, so that nobody knows how far the pipeline has come: %w", path, cause),
		"choose the directory that holds the data (--data), or restore it from a savepoint or a copy; to start over on purpose, add --fresh")
	e.Pipeline = pipeline
	return e
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "at an unknown time"
	}
	return t.UTC().Format(time.RFC3339)
}

// shownPositions bounds a list in an error.
const shownPositions = 4

func listCarried(all []txstate.Carried) string {
	return list(len(all), func(i int) (batch.Partition, int64) { return all[i].Partition, all[i].Next })
}

func listSaved(all []txstate.SavedPosition) string {
	all = slices.DeleteFunc(slices.Clone(all), func(p txstate.SavedPosition) bool { return p.Topic == "" })
	return list(len(all), func(i int) (batch.Partition, int64) { return all[i].Partition, all[i].Next })
}

func list(n int, at func(i int) (batch.Partition, int64)) string {
	var parts []string
	for i := range min(n, shownPositions) {
		p, next := at(i)
		parts = append(parts, fmt.Sprintf("%s-%d at %d", p.Topic, p.Number, next))
	}
	if n > shownPositions {
		parts = append(parts, fmt.Sprintf("%d more partitions", n-shownPositions))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// findings are what a look at all nodes tells besides that they may be written over.
type findings struct {
	garbled map[string]held // nodes whose content can't be read, by path below the base
	lost    []string        // nodes that this run had written and that are gone
	changed []string        // nodes that somebody else has written since, and that are taken for ours
}

// judgeAll looks at everything that is there. mine is what this run has written or tried to write.
func (r *Record) judgeAll(ctx context.Context, s *txstate.Standing, there map[string]held, mine map[string]mark, rewind bool) (f findings, err error) {
	f.garbled = map[string]held{}
	// Where the record can be read it says how far the pipeline has come, whatever a page holds.
	_, unread := parseRecord(there[recordName].data)
	unknown := s.Empty && !rewind && len(mine) == 0 && unread != nil
	for _, name := range names(mine) {
		if _, ok := there[name]; !ok && mine[name].last != nil {
			f.lost = append(f.lost, name)
		}
	}
	carried := r.carried(there)
	for _, name := range names(there) {
		node := there[name]
		was, ours := mine[name]
		if isDir(name) || was.is(node.data) {
			continue
		}
		pipeline, err := "", error(nil)
		if name == recordName {
			var rec *recordNode
			if rec, err = parseRecord(node.data); err == nil {
				pipeline = rec.Pipeline
				if rewind && pipeline == r.cfg.Pipeline {
					continue
				}
				if ours && rec.Pipeline == r.cfg.Pipeline && rec.Epoch > s.Epoch {
					return f, foreign(r.full(name), r.cfg.Pipeline, fmt.Sprintf("a later run of this pipeline, of epoch %d, has written it, at txid %d; this run has epoch %d",
						rec.Epoch, rec.Committed.Txid, s.Epoch), "make sure that one process runs the pipeline, from one data directory")
				}
				if err := judge(ctx, r.full(name), r.cfg.Pipeline, s, rec, carried); err != nil {
					return f, err
				}
			}
		} else {
			var page *pageNode
			if page, err = parsePage(node.data); err == nil {
				pipeline = page.Pipeline
			}
		}
		switch {
		case err != nil && unknown:
			return f, garbled(r.full(name), r.cfg.Pipeline, readable(node.data, err))
		case err != nil:
			f.garbled[name] = node
		case pipeline != r.cfg.Pipeline:
			return f, foreign(r.full(name), r.cfg.Pipeline, "it holds positions of pipeline "+pipeline,
				"give each pipeline a node of its own (zookeeper.id, zookeeper.path); if the other is gone, remove the node")
		case ours:
			f.changed = append(f.changed, name)
		}
	}
	return f, nil
}

// readable says what is wrong with content that can't be read, and how it begins.
func readable(data []byte, err error) error {
	if len(data) == 0 {
		return errors.New("it is empty")
	}
	const shown = 60
	text := string(data[:min(len(data), shown)])
	if len(data) > shown {
		text += "…"
	}
	return fmt.Errorf("%w; it holds %d bytes: %q", err, len(data), text)
}
