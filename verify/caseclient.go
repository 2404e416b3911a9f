package verify

import (
	"context"
	"fmt"
	"time"

	"tornwire/adapter"
	"tornwire/faults"
	"tornwire/history"
)

// caseClient is a client of the library under test.
type caseClient struct {
	name    string   // unique in the run
	addrs   []string // in a cluster one for each node
	opened  bool
	noClose bool
}

func (r *caseRun) clientOf(name string) *caseClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients[name]
}

// open gives a client of the library a listener of its own and opens it. It is
// false if the case cannot go on with that client.
func (r *caseRun) open(name string) bool { return r.openAt(name, 1) }

// openAt is open with a number of addresses: in a cluster one for each node, else
// all for the one server.
func (r *caseRun) openAt(name string, addresses int) bool {
	return r.openAs(name, addresses, r.secret())
}

// openAs is openAt with a secret. With a wrong one the client may refuse to open.
func (r *caseRun) openAs(name string, addresses int, secret string) bool {
	r.turn(name)
	if r.over() {
		return false
	}
	var list []string
	for i := range addresses {
		addr, ok := r.door(name, i)
		if !ok {
			return false
		}
		list = append(list, addr)
		if len(list) == 1 && r.refuses(name) {
			r.until(fireLimit, once(isFiring))
		}
	}
	return r.openList(name, list, secret)
}

// secret is that of the server's preface.
func (r *caseRun) secret() string {
	if p := r.of.Workload.play; p != nil {
		return p.Secret
	}
	if r.own == nil {
		return ""
	}
	return r.own.s.secret
}

// refuses tells whether the case refuses the first connection of a client.
func (r *caseRun) refuses(client string) bool {
	return r.id.Fault == "refuse" && r.of.Frame.Client == client && r.of.Frame.ClientNth == 1
}

// refusesLater tells for how long the case refuses a connection that its client
// makes in the course of the workload; zero if it does not.
func refusesLater(c Case) time.Duration {
	if c.ID.Fault != "refuse" || c.Frame.ClientNth < 2 {
		return 0
	}
	t, _ := faults.ByID(c.ID.Fault)
	return t.Args[0].Default
}

// refuseFor ends a refusal. The port closes as soon as the connection before has
// been accepted, which says nothing of when the next is made: the time counts
// from the start of the first call that is asked for when a connection of the client
// has ended.
func (r *caseRun) refuseFor(lasts time.Duration) {
	client := r.of.Frame.Client
	mine, late, fired, ended := map[int]bool{}, map[int]bool{}, false, false
	due := r.await(refuseLimit, once(func(e history.Event) bool {
		switch e.Kind {
		case history.SessionOpened:
			mine[e.Session] = e.Client == client
		case history.Fired:
			fired = true
		case history.EndSeen, history.EndSent:
			ended = ended || fired && mine[e.Session]
		case history.CallAsked:
			late[e.Call] = ended && e.Client == client
		case history.CallStarted: // it may be heard of late: the call can be older than the end
			return late[e.Call]
		case history.ReleaseAsked:
			return ended && e.Client == client
		}
		return false
	}))
	if due {
		r.met.Store(true)
		r.sleep(lasts)
		r.px.OpenGate(faults.GateOpen)
	}
}

// calm waits, if a client has connected by itself, until its connections are
// quiet: a library with several goes on connecting after open, and where a call
// then goes would else be left to chance.
func (r *caseRun) calm(name string) {
	limit := time.NewTimer(calmLimit)
	defer limit.Stop()
	connected, from := false, 0
	for {
		ev, more := r.rec.Events(from)
		from += len(ev)
		for _, e := range ev {
			connected = connected || e.Kind == history.SessionOpened && e.Client == name
		}
		if !connected {
			return
		}
		quiet := time.NewTimer(quietFor)
		select {
		case <-more:
			quiet.Stop()
		case <-quiet.C:
			return
		case <-limit.C:
			return
		case <-r.ctx.Done():
			return
		}
	}
}

// close closes a client, and waits until its connections have ended, so that
// nothing it sent lies unread.
func (r *caseRun) close(name string) {
	r.mu.Lock()
	c, watch := r.clients[name], r.watch
	r.mu.Unlock()
	if c == nil || !c.opened || r.over() {
		return
	}
	r.turn(name)
	if watch {
		r.pause(watchAfter)
	}
	r.rec.Add(history.Event{Kind: history.CloseAsked, Client: name})
	ctx, cancel := context.WithTimeout(r.ctx, requestLimit)
	defer cancel()
	err := r.conn.ask(ctx, adapter.Request{Type: adapter.TypeClose, Client: c.name},
		[]string{adapter.TypeCloseOK, adapter.TypeUnsupported, adapter.TypeError}, func(a adapter.Response) {
			if a.Type == adapter.TypeCloseOK {
				r.rec.Add(history.Event{Kind: history.ClientClosed, Client: name})
			} else {
				c.noClose = true
			}
		})
	switch {
	case err != nil && r.ctx.Err() == nil && !c.noClose && ctx.Err() != nil:
		err = &failure{reason: fmt.Sprintf("the adapter did not answer close within %s", requestLimit)}
		r.conn.fail(err)
		r.fail(err)
	case err != nil:
		r.fail(err)
	case c.noClose && !watch:
		r.pause(watchAfter)
	case !c.noClose:
		r.until(closeLimit, allEnded(name))
	}
}

// allEnded returns a condition for until: every session of a client has ended
// on the client's side.
func allEnded(client string) func(history.Event) bool {
	open := map[int]bool{}
	return func(e history.Event) bool {
		switch {
		case e.Kind == history.SessionOpened && e.Client == client:
			open[e.Session] = true
		case e.Kind == history.EndSeen && e.Side == history.ClientSide:
			delete(open, e.Session)
		case e.Kind == history.EndSent && e.Side == history.ClientSide && e.How == history.RST:
			delete(open, e.Session)
		}
		return len(open) == 0
	}
}
