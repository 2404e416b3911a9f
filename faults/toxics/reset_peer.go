package toxics

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"

	"tornwire/faults"
)

// resetPeer swallows what comes, and ends the connection with an RST a time after
// the first byte, or the sender's end.
type resetPeer struct{ timeout time.Duration }

func (t *resetPeer) ended() faults.End { return faults.RST }

// Pipe implements toxics.Toxic.
func (t *resetPeer) Pipe(stub *toxics.ToxicStub) {
	select {
	case <-stub.Interrupt:
		return
	case <-stub.Input:
	}
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	if swallow(stub, timer.C) {
		stub.Close()
	}
}
