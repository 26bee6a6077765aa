package spec

import (
	"path/filepath"

	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/savepoint"
)

func savepointsField() *field {
	return &field{name: "savepoints", kind: kindObject, doc: "Savepoints that a running pipeline makes by itself.", fields: []*field{
		{name: "to", kind: kindString, required: true, doc: "Where they go: a folder, or a bucket by its URL (`s3://name/prefix?region=…`, `gs://…`, `azblob://…`). It is where `savepoint` looks, too. What lies on the store's own disk dies with it.", example: "to: /mnt/backup"},
		{name: "every", kind: kindDuration, min: 1, def: "1h", doc: "How long after one the next is made, if something has committed since."},
		{name: "keep", kind: kindInt, min: 1, def: "24", doc: "How many of those made by schedule are kept; others are never removed."},
	}}
}

func savepointsOf(n *node) plan.Savepoints {
	s := plan.Savepoints{To: n.get("to").str()}
	if v := n.get("every"); v != nil {
		s.Every = v.dur
	}
	if v := n.get("keep"); v != nil {
		s.Keep = int(v.num)
	}
	return s
}

// planSavepoints names the place from wherever the process runs.
func (p *Pipeline) planSavepoints() (plan.Savepoints, error) {
	s := p.m.savepoints
	if s.To == "" {
		return s, nil
	}
	if err := savepoint.CheckPlace(s.To); err != nil {
		return s, err
	}
	if _, bucket := savepoint.Scheme(s.To); bucket {
		return s, nil
	}
	if !filepath.IsAbs(s.To) {
		s.To = filepath.Join(p.dir, s.To)
	}
	to, err := filepath.Abs(s.To)
	s.To = to
	return s, err
}
