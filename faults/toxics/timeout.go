package toxics

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"

	"tornwire/faults"
)

// ender is a toxic that knows how it ended the connection, once it closed its
// stub. NoEnd is the sender's end, passed on.
type ender interface{ ended() faults.End }

// timeout swallows what comes, and ends the connection once nothing came for its
// time; never, if that is 0. The sender's end passes at once.
type timeout struct {
	timeout time.Duration
	end     faults.End
}

func (t *timeout) ended() faults.End { return t.end }

// Pipe implements toxics.Toxic.
func (t *timeout) Pipe(stub *toxics.ToxicStub) {
	if t.timeout == 0 {
		swallow(stub, nil)
		return
	}
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	due := time.Now().Add(t.timeout)
	over := func() bool { return !time.Now().Before(due) }
	for {
		select {
		case <-timer.C:
		case <-stub.Interrupt:
			if !over() {
				return
			}
		case c := <-stub.Input:
			if c == nil && !over() {
				stub.Close()
				return
			}
		}
		if over() {
			t.end = faults.FIN
			stub.Close()
			return
		}
		timer.Reset(t.timeout)
		due = time.Now().Add(t.timeout)
	}
}

// swallow loses what comes until it is interrupted, the sender ends or until
// fires. It tells whether that was it.
func swallow(stub *toxics.ToxicStub, until <-chan time.Time) bool {
	for {
		select {
		case <-until:
			return true
		case <-stub.Interrupt:
			return false
		case c := <-stub.Input:
			if c == nil && until == nil {
				stub.Close()
				return false
			}
		}
	}
}
