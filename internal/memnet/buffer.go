package memnet

// buffer is a ring of bytes that grows on demand up to its limit.
type buffer struct {
	limit int
	ring  []byte
	start int
	used  int
}

// firstRing is what a buffer grows to with its first byte; most carry a few small frames only.
const firstRing = 512

func (b *buffer) room() int { return b.limit - b.used }

// write appends p, which must not be longer than room.
func (b *buffer) write(p []byte) {
	b.grow(b.used + len(p))
	for len(p) > 0 {
		at := (b.start + b.used) % len(b.ring)
		n := copy(b.ring[at:], p)
		b.used += n
		p = p[n:]
	}
}

// read moves bytes into p until one of the two is at its end.
func (b *buffer) read(p []byte) int {
	p = p[:min(len(p), b.used)]
	for rest := p; len(rest) > 0; {
		n := copy(rest, b.ring[b.start:])
		b.start = (b.start + n) % len(b.ring)
		b.used -= n
		rest = rest[n:]
	}
	return len(p)
}

// grow makes the ring hold size bytes; size is at most limit.
func (b *buffer) grow(size int) {
	if size <= len(b.ring) {
		return
	}
	ring := make([]byte, min(max(size, 2*len(b.ring), firstRing), b.limit))
	b.used = b.read(ring)
	b.ring, b.start = ring, 0
}

// drop frees the memory of bytes that nobody will read.
func (b *buffer) drop() { b.ring, b.start, b.used = nil, 0, 0 }
