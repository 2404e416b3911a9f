package toxics

import (
	"math/rand/v2"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// slicer cuts each chunk in about two, and the parts again, until they are small
// enough.
type slicer struct {
	average, variation int
	delay              time.Duration
	draws              *rand.Rand
}

// Pipe implements toxics.Toxic.
func (t *slicer) Pipe(stub *toxics.ToxicStub) {
	each(stub, func(c *stream.StreamChunk) bool { return t.slice(c.Data, stub) })
}

// slice lets a chunk go in slices. It is false when it was interrupted; the rest
// has then gone in one, but for a slice that was due.
func (t *slicer) slice(data []byte, stub *toxics.ToxicStub) bool {
	interrupted := false
	t.cut(len(data), func(n int) bool {
		stub.Output <- &stream.StreamChunk{Data: data[:n:n]}
		data = data[n:]
		if interrupted {
			return false
		}
		var early bool
		interrupted, early = wait(time.Now().Add(t.delay), stub)
		return !early
	})
	if len(data) > 0 {
		stub.Output <- &stream.StreamChunk{Data: data}
	}
	return !interrupted
}

// cut tells the sizes of the slices of n bytes, in order, until emit is false.
func (t *slicer) cut(n int, emit func(int) bool) bool {
	if n <= t.average+t.variation {
		return emit(n)
	}
	half := n / 2
	if t.variation > 0 {
		half += t.draws.IntN(2*t.variation) - t.variation
	}
	return t.cut(half, emit) && t.cut(n-half, emit)
}
