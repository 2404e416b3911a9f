package toxics

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// each takes chunks until pass is false, which is so once it was interrupted, or
// until there are no more.
func each(stub *toxics.ToxicStub, pass func(*stream.StreamChunk) bool) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			if !pass(c) {
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
