package vec

import "slices"

// arenaChunk is the size of the blocks that an Arena takes its memory in.
const arenaChunk = 64 << 10

// Arena hands out bytes that live until its next Reset. The zero value is ready for use.
type Arena struct {
	chunks [][]byte // all of them; those before current are full
	cur    int
}

// Reset takes all memory back.
func (a *Arena) Reset() {
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	a.cur = 0
}

// Alloc returns n bytes whose content is undefined. Their capacity ends with them.
func (a *Arena) Alloc(n int) []byte {
	for ; a.cur < len(a.chunks); a.cur++ {
		if c := a.chunks[a.cur]; cap(c)-len(c) >= n {
			end := len(c) + n
			a.chunks[a.cur] = c[:end]
			return c[:end][len(c):end:end]
		}
	}
	a.chunks = append(a.chunks, make([]byte, n, max(n, arenaChunk)))
	return a.chunks[a.cur][:n:n]
}

// Tail returns the free rest of the current block, of length 0 and with room for at least n bytes, to append to.
// Take makes what was appended permanent.
func (a *Arena) Tail(n int) []byte {
	a.Alloc(n)
	c := a.chunks[a.cur]
	c = c[:len(c)-n]
	a.chunks[a.cur] = c
	return c[len(c):]
}

// Take returns b, which was appended to the last Tail, as bytes that live until Reset.
func (a *Arena) Take(b []byte) []byte {
	c := a.chunks[a.cur]
	if len(b) > cap(c)-len(c) { // it outgrew the block and lies in memory of its own
		return slices.Clip(b)
	}
	a.chunks[a.cur] = c[:len(c)+len(b)]
	return slices.Clip(b)
}

// Copy returns a copy of b.
func (a *Arena) Copy(b []byte) []byte {
	c := a.Alloc(len(b))
	copy(c, b)
	return c
}
