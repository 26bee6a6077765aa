package pebblestate

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// cache keeps committed values of one state, by shard. It never holds what hasn't been committed: it is filled by
// commits, after their sync has returned, and by reads of committed versions. A nil value says that the key is
// absent.
//
// A read that began before a commit must not put back what the commit replaced. Each shard counts the commits that
// touched it, and a fill that began at another count is dropped. For this to hold a commit publishes its version
// before it touches the cache.
//
// All caches of a database share one budget. A shard that goes beyond it drops its own least recently used values.
type cache struct {
	budget *budget
	shards []cacheShard
}

// budget is in bytes.
type budget struct {
	limit int64
	used  atomic.Int64
}

type cacheShard struct {
	mu      sync.Mutex
	commits uint64
	values  map[string]*list.Element
	order   list.List // of *cached, the most recently used first
}

type cached struct {
	key   string
	value []byte
}

// cachedOverhead is about what a value costs beyond its own bytes: map cell, list element, headers.
const cachedOverhead = 160

func (c *cached) size() int64 { return int64(len(c.key)+len(c.value)) + cachedOverhead }

func newCache(b *budget, shards int) *cache {
	return &cache{budget: b, shards: make([]cacheShard, shards)}
}

// get returns the value of key if it is known, or else what fill must be given.
func (c *cache) get(shard int, key []byte) (value []byte, found bool, at uint64) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.values[string(key)]
	if e == nil {
		return nil, false, s.commits
	}
	s.order.MoveToFront(e)
	return e.Value.(*cached).value, true, s.commits
}

// fill takes the value that a read found, unless a commit has touched the shard since get.
func (c *cache) fill(shard int, key, value []byte, at uint64) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commits == at {
		c.put(s, key, value)
	}
}

// commit runs update on a shard that a commit has changed; update calls put and drop.
func (c *cache) commit(shard int, update func(s *cacheShard)) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	update(s)
}

// put sets a value, which isn't copied. REQUIRES: s.mu is held.
func (c *cache) put(s *cacheShard, key, value []byte) {
	if e := s.values[string(key)]; e != nil {
		v := e.Value.(*cached)
		c.budget.used.Add(int64(len(value) - len(v.value)))
		e.Value = &cached{key: v.key, value: value}
		s.order.MoveToFront(e)
	} else {
		if s.values == nil {
			s.values = map[string]*list.Element{}
		}
		v := &cached{key: string(key), value: value}
		s.values[v.key] = s.order.PushFront(v)
		c.budget.used.Add(v.size())
	}
	for c.budget.used.Load() > c.budget.limit && s.order.Len() > 0 {
		c.remove(s, s.order.Back())
	}
}

// drop forgets a key. REQUIRES: s.mu is held.
func (c *cache) drop(s *cacheShard, key []byte) {
	if e := s.values[string(key)]; e != nil {
		c.remove(s, e)
	}
}

// dropPrefixes forgets the keys that begin with any of the prefixes. REQUIRES: s.mu is held.
func (c *cache) dropPrefixes(s *cacheShard, prefixes [][]byte) {
	for e := s.order.Front(); e != nil; {
		next := e.Next()
		key := e.Value.(*cached).key
		for _, p := range prefixes {
			if len(key) >= len(p) && key[:len(p)] == string(p) {
				c.remove(s, e)
				break
			}
		}
		e = next
	}
}

func (c *cache) remove(s *cacheShard, e *list.Element) {
	v := s.order.Remove(e).(*cached)
	delete(s.values, v.key)
	c.budget.used.Add(-v.size())
}
