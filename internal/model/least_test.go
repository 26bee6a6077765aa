package model_test

import (
	"maps"
	"slices"

	"github.com/tridentd/tridentd/internal/model"
)

// least makes a sample on which the engine and the model differ as small as it can be made by leaving things out.
func least(s *sample, c circumstances, mutation model.Mutation) (*sample, circumstances) {
	differs := func(s *sample, c circumstances) bool { return compare(s, c, mutation) != "" }
	for _, simpler := range []circumstances{{procs: 1, pending: 1}, {procs: c.procs, pending: c.pending}, {procs: 1, pending: 1, failures: c.failures}} {
		if differs(s, simpler) {
			c = simpler
			break
		}
	}
	for smaller := true; smaller; {
		smaller = false
		for _, without := range withouts(s) {
			if differs(without, c) {
				s, smaller = without, true
				break
			}
		}
	}
	return s, c
}

// withouts lists samples that lack a node, a batch or a record of s.
func withouts(s *sample) []*sample {
	var all []*sample
	for i, n := range slices.Backward(s.p.Nodes) {
		if p := withoutNode(s.p, i); p != nil {
			all = append(all, &sample{p, moved(s.batches, i, n.Op == model.Source), s.args})
		}
	}
	for i := range s.p.Queries {
		p := *s.p
		p.Queries = slices.Delete(slices.Clone(p.Queries), i, i+1)
		all = append(all, &sample{&p, s.batches, s.args})
	}
	if len(s.args) > 1 {
		for i := range s.args {
			all = append(all, &sample{s.p, s.batches, slices.Delete(slices.Clone(s.args), i, i+1)})
		}
	}
	for i := range s.batches {
		if len(s.batches) > 1 && (i > 0 || !s.batches[1].Advance) { // time can't be brought on before the first batch
			all = append(all, &sample{s.p, slices.Delete(slices.Clone(s.batches), i, i+1), s.args})
		}
	}
	for i, b := range s.batches {
		if b.Advance && i > 0 {
			other := slices.Clone(s.batches)
			other[i].Advance = false
			all = append(all, &sample{s.p, other, s.args})
		}
		for node, parts := range b.Records { // order: any will do
			for part, records := range parts {
				for k := range records {
					other := slices.Clone(s.batches)
					other[i].Records = maps.Clone(b.Records)
					other[i].Records[node] = slices.Clone(parts)
					other[i].Records[node][part] = slices.Delete(slices.Clone(records), k, k+1)
					all = append(all, &sample{s.p, other, s.args})
				}
			}
		}
	}
	return all
}

// withoutNode leaves a node out: those behind it take what it took. It returns nil where that can't be.
func withoutNode(p *model.Pipeline, i int) *model.Pipeline {
	gone := p.Nodes[i]
	through := -1
	if len(gone.In) > 0 && !gone.Exchanges() && !gone.Keeps() {
		through = gone.In[0]
	}
	other := &model.Pipeline{Skip: p.Skip}
	for _, q := range p.Queries {
		q.Nodes = slices.Clone(q.Nodes)
		for k := range q.Nodes {
			if !q.Nodes[k].Op.Refers() {
				continue
			}
			if q.Nodes[k].Of == i {
				return nil
			}
			q.Nodes[k].Of = below(q.Nodes[k].Of, i)
		}
		other.Queries = append(other.Queries, q)
	}
	for k, n := range p.Nodes {
		if k == i {
			continue
		}
		n.In = slices.Clone(n.In)
		for j, in := range n.In {
			if in == i {
				if in = through; in < 0 {
					return nil
				}
			}
			n.In[j] = below(in, i)
		}
		if n.Op.Refers() {
			if n.Of == i {
				return nil
			}
			n.Of = below(n.Of, i)
		}
		other.Nodes = append(other.Nodes, n)
	}
	if !slices.ContainsFunc(other.Nodes, func(n model.Node) bool { return n.Keeps() }) {
		return nil
	}
	return other
}

// below is the number of node k once node gone isn't there.
func below(k, gone int) int {
	if k > gone {
		return k - 1
	}
	return k
}

// moved gives the records to the sources' new numbers.
func moved(batches []model.Batch, gone int, source bool) []model.Batch {
	all := slices.Clone(batches)
	for i := range all {
		records := map[int][][]model.Record{}
		for node, parts := range all[i].Records { // order: a map is made
			if node != gone || !source {
				records[below(node, gone)] = parts
			}
		}
		all[i].Records = records
	}
	return all
}
