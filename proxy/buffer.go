package proxy

import "sync"

const (
	// smallRead is what a link has for reading until a read fills it. An idle session
	// keeps two of them.
	smallRead = 2 << 10
	// calmReads is after how many reads that would have fitted into it a link goes
	// back to its small buffer.
	calmReads = 1024
)

var large = sync.Pool{New: func() any { return new([ReadSize]byte) }}

// readBuffer is what a link reads into, small or large as the traffic is.
type readBuffer struct {
	b     []byte
	small []byte
	large *[ReadSize]byte // nil while b is small
	calm  int
	fixed bool
}

// newReadBuffer returns a buffer of a fixed size, or, if that is 0, one that
// adapts.
func newReadBuffer(size int) readBuffer {
	if size > 0 && size < ReadSize {
		return readBuffer{b: make([]byte, size), fixed: true}
	}
	b := make([]byte, smallRead)
	return readBuffer{b: b, small: b}
}

// adapt chooses the buffer for the next read after one of n bytes.
func (r *readBuffer) adapt(n int) {
	switch {
	case r.fixed:
	case r.large == nil:
		if n == len(r.b) {
			r.large = large.Get().(*[ReadSize]byte)
			r.b, r.calm = r.large[:], 0
		}
	case n >= smallRead:
		r.calm = 0
	default:
		if r.calm++; r.calm >= calmReads {
			r.free()
		}
	}
}

// free gives a large buffer back.
func (r *readBuffer) free() {
	if r.large != nil {
		large.Put(r.large)
		r.large, r.b = nil, r.small
	}
}
