package pebblestate

import (
	"sync"
	"sync/atomic"
)

// cache keeps committed values of one state, by shard. It never holds what hasn't been committed: it is filled by
// commits, after their sync has returned, and by reads of committed versions. A nil value says that the key is
// absent.
//
// A read that began before a commit must not put back what the commit replaced. Each shard counts the commits that
// touched it, and a fill that began at another count is dropped. For this to hold a commit publishes its version
// before it touches the cache. Between the two a read of the version before must not put its value over one that a
// read of the new version has put and returned: a fill from a version that is no longer current is dropped, too.
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
	values  map[string]*cached
	order   cached // head of the ring: next is the most recently used, prev the least
}

// cached is a value and its place in the ring of its shard.
type cached struct {
	key        string
	value      []byte
	prev, next *cached
}

// cachedOverhead is about what a value costs beyond its own bytes: map cell, ring, headers.
const cachedOverhead = 128

func (c *cached) size() int64 { return int64(len(c.key)+len(c.value)) + cachedOverhead }

func newCache(b *budget, shards int) *cache {
	c := &cache{budget: b, shards: make([]cacheShard, shards)}
	for i := range c.shards {
		s := &c.shards[i]
		s.order.prev, s.order.next = &s.order, &s.order
	}
	return c
}

func (s *cacheShard) unlink(e *cached) { e.prev.next, e.next.prev = e.next, e.prev }

func (s *cacheShard) pushFront(e *cached) {
	e.prev, e.next = &s.order, s.order.next
	e.prev.next, e.next.prev = e, e
}

func (s *cacheShard) touch(e *cached) {
	if s.order.next != e {
		s.unlink(e)
		s.pushFront(e)
	}
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
	s.touch(e)
	return e.value, true, s.commits
}

// fill takes the value that a read found, unless a commit has touched the shard since get, or current tells that the
// version that was read has been followed by another.
func (c *cache) fill(shard int, key, value []byte, at uint64, current func() bool) {
	s := &c.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commits == at && current() {
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
		c.budget.used.Add(int64(len(value) - len(e.value)))
		e.value = value
		s.touch(e)
	} else {
		if s.values == nil {
			s.values = map[string]*cached{}
		}
		e := &cached{key: string(key), value: value}
		s.values[e.key] = e
		s.pushFront(e)
		c.budget.used.Add(e.size())
	}
	for c.budget.used.Load() > c.budget.limit && s.order.prev != &s.order {
		c.remove(s, s.order.prev)
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
	for e := s.order.next; e != &s.order; e = e.next {
		for _, p := range prefixes {
			if len(e.key) >= len(p) && e.key[:len(p)] == string(p) {
				c.remove(s, e)
				break
			}
		}
	}
}

func (c *cache) remove(s *cacheShard, e *cached) {
	s.unlink(e)
	delete(s.values, e.key)
	c.budget.used.Add(-e.size())
}
