package toxics

import (
	"math/rand/v2"
	"time"

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
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			interrupted := pause(t.delay()-time.Since(c.Timestamp), stub)
			stub.Output <- c
			if interrupted {
				return
			}
		}
	}
}

// pause waits, and tells whether it was interrupted.
func pause(d time.Duration, stub *toxics.ToxicStub) bool {
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-stub.Interrupt:
		return true
	}
}
