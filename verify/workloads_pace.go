package verify

import (
	"time"

	"tornwire/faults"
	"tornwire/frames"
)

// paceWorkloads are those about pauses: of the client, and between its connections.
var paceWorkloads = []*Workload{hotReconnect}

const (
	hotKey  = "hot-1"
	hotTime = 3200 * time.Millisecond
	// hotPause bounds what a client without pauses can do to this machine: it is the
	// time that each connection lasts.
	hotPause = 5 * time.Millisecond
)

// hotReconnect is a server that takes connections and drops them.
var hotReconnect = &Workload{
	ID: "hot-reconnect",
	Sentence: "every connection is accepted and closed with a FIN 5 ms later for 3.2 s, while one call (wait 4 s, lease 5 s) waits; " +
		"after that connections are served",
	Own: &OwnFault{
		Fault: "accept-fin", Frame: FrameID{Dir: frames.ClientToServer, Op: opOpen, Nth: 1},
		Args: faults.Args{"after": hotPause},
	},
	EachSession: true,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", hotKey).s2c("A", hotKey).c2s("R", hotKey).s2c("R", hotKey).list
	},
	Run: func(r *caseRun) {
		if !r.open("c1") {
			return
		}
		c := r.acquire("c1", hotKey, 4*second, 5*second)
		r.until(4*second, once(isFiring))
		r.pause(hotTime)
		r.px.Disarm(r.id.String())
		r.use(c)
		r.close("c1")
	},
	Control: func(r *caseRun) {
		r.use(r.openAcquire("c1", hotKey, second, 5*second))
		r.close("c1")
	},
}
