package spec

import (
	"strings"

	"github.com/tridentd/tridentd/emitter/gen"
)

func (c *checker) connectGenerator(d *sourceDecl) connector {
	n := d.settings
	kind := n.get("kind")
	if kind == nil {
		return connector{} // reported already
	}
	cfg, ok := gen.Named(kind.text)
	if !ok {
		c.add(kind.at, nearest(kind.text, gen.Kinds()), "there is no generator %s; there is %s", kind.text, strings.Join(gen.Kinds(), ", "))
		return connector{}
	}
	num := func(name string) int64 {
		if v := n.get(name); v != nil {
			return v.num
		}
		return 0
	}
	cfg.Seed, cfg.Partitions, cfg.Rate, cfg.Count = uint64(num("seed")), int(num("partitions")), float64(num("rate")), num("count")
	return plain(gen.New(cfg), d.decode.kind)
}
