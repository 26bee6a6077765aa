package exec

// arena hands out byte slices that stay where they are. It grows by pages.
type arena struct {
	pages [][]byte
	page  int
	off   int
}

const pageSize = 64 << 10

// copy returns a copy of b in the arena.
func (a *arena) copy(b []byte) []byte {
	for {
		if a.page < len(a.pages) {
			p := a.pages[a.page]
			if a.off+len(b) <= len(p) {
				s := p[a.off : a.off+len(b) : a.off+len(b)]
				a.off += len(b)
				copy(s, b)
				return s
			}
			a.page++
			a.off = 0
			continue
		}
		a.pages = append(a.pages, make([]byte, max(pageSize, len(b))))
	}
}
