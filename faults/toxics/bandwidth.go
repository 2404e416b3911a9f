package toxics

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// bandwidth lets bytes go at a rate, in portions of a tenth of a second at most.
type bandwidth struct {
	rate int64     // bytes in a millisecond
	free time.Time // when what came before is through
}

// Pipe implements toxics.Toxic.
func (t *bandwidth) Pipe(stub *toxics.ToxicStub) {
	each(stub, func(c *stream.StreamChunk) bool { return t.pass(c, stub) })
}

// pass lets a chunk go in portions. It is false when it was interrupted, as in
// slicer.slice.
func (t *bandwidth) pass(c *stream.StreamChunk, stub *toxics.ToxicStub) bool {
	if t.free.Before(c.Timestamp) {
		t.free = c.Timestamp
	}
	interrupted := false
	for data := c.Data; len(data) > 0; {
		n := len(data)
		if !interrupted {
			portion := min(n, int(t.rate*100))
			t.free = t.free.Add(time.Duration(portion) * time.Millisecond / time.Duration(t.rate))
			var early bool
			if interrupted, early = wait(t.free, stub); !early {
				n = portion
			}
		}
		stub.Output <- &stream.StreamChunk{Data: data[:n:n]}
		data = data[n:]
	}
	return !interrupted
}
