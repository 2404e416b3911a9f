package toxics

import (
	"math/rand/v2"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// latency lets each chunk go a time after it came, or behind the one before it.
type latency struct {
	latency, jitter int64 // ms
	draws           *rand.Rand
}

func (t *latency) delay() time.Duration {
	delay := t.latency
	if t.jitter > 0 {
		delay += t.draws.Int64N(2*t.jitter) - t.jitter
	}
	return ms(delay)
}

// Pipe implements toxics.Toxic.
func (t *latency) Pipe(stub *toxics.ToxicStub) {
	each(stub, func(c *stream.StreamChunk) bool {
		interrupted, _ := wait(c.Timestamp.Add(t.delay()), stub)
		stub.Output <- c
		return !interrupted
	})
}
