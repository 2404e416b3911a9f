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
			interrupted, _ := wait(c.Timestamp.Add(t.delay()), stub)
			stub.Output <- c
			if interrupted {
				return
			}
		}
	}
}

// wait waits until due, and tells whether it was interrupted, and whether that
// was early. In the moment that is due it is not, so that it does not matter
// which of the two is seen first.
func wait(due time.Time, stub *toxics.ToxicStub) (interrupted, early bool) {
	d := time.Until(due)
	if d <= 0 {
		return false, false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, false
	case <-stub.Interrupt:
		return true, time.Now().Before(due)
	}
}
