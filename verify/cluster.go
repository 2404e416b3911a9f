package verify

import (
	"fmt"
	"net"
	"time"

	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/server"
)

// startServer makes the lock server of the case, or its cluster, and listens for
// each node.
func (r *caseRun) startServer(cfg server.Config, nodes int, inside *memnet.Network) ([]net.Listener, error) {
	var err error
	if nodes == 0 {
		r.srv, err = server.New(cfg)
	} else if r.cluster, err = server.NewCluster(cfg, nodes); err == nil {
		r.srv = r.cluster.Node(0)
	}
	if err != nil {
		return nil, err
	}
	var out []net.Listener
	for i := range max(nodes, 1) {
		l, err := inside.Listen("tcp", nodeName(i))
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// nodeName is the address of a node as the proxy knows it.
func nodeName(i int) string { return fmt.Sprintf("%s:%d", serverID, i+1) }

func (r *caseRun) node(i int) *server.Server {
	if r.cluster == nil {
		return r.srv
	}
	return r.cluster.Node(i)
}

// door opens an address for a client, which leads to a node of the case's cluster, or
// to its server.
func (r *caseRun) door(client string, node int) (addr string, ok bool) {
	return r.doorAt(client, node, "")
}

// doorAt is door at an address that is asked for, "" for any.
func (r *caseRun) doorAt(client string, node int, listen string) (addr string, ok bool) {
	l, err := r.listen(listen)
	if err != nil {
		r.fail(fmt.Errorf("cannot listen for client %s: %w", client, err))
		return "", false
	}
	if node > 0 {
		l = &nextDoor{Listener: l, before: func() { r.await(doorOrder, r.entered(client, node-1)) }}
	}
	r.wg.Go(func() {
		var err error
		if r.cluster == nil {
			err = r.px.Serve(r.netCtx, l, client)
		} else {
			err = r.px.ServeTo(r.netCtx, l, client, nodeName(node))
		}
		if err != nil {
			r.fail(fmt.Errorf("the proxy stopped: %w", err))
		}
	})
	return l.Addr().String(), true
}

// doorOrder is how long a client's first connection at one of its addresses waits for
// that at the address before.
const doorOrder = 20 * time.Millisecond

// nextDoor has its first connection taken after another door's: a client that dials all
// its addresses at once means them in their order, and sessions are numbered so.
type nextDoor struct {
	net.Listener
	before func() // nil once it was waited for
}

// Accept is called by one goroutine.
func (d *nextDoor) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil && d.before != nil {
		d.before()
		d.before = nil
	}
	return c, err
}

// entered returns a condition for until: a client has connected at one of its addresses.
func (r *caseRun) entered(client string, node int) func(history.Event) bool {
	addr := r.addrOf(client, node)
	return once(func(e history.Event) bool {
		return e.Kind == history.SessionOpened && e.Client == client && e.Addr == addr
	})
}

// canary opens an address that no client is given. What connects there is recorded
// as a session of the client, and reaches the first node.
func (r *caseRun) canary(client string) (addr string, ok bool) {
	addr, ok = r.door(client, 0)
	if ok {
		r.rec.Add(history.Event{Kind: history.CanarySet, Client: client, Addr: addr})
	}
	return addr, ok
}

// lead has a node lead, which the others name by the address that a client knows.
func (r *caseRun) lead(client string, node int) {
	r.turn(client)
	if err := r.cluster.Lead(node, r.addrOf(client, node)); err != nil {
		r.fail(err)
	}
}

func (r *caseRun) addrOf(client string, node int) string {
	c := r.clientOf(client)
	if c == nil || node >= len(c.addrs) {
		return ""
	}
	return c.addrs[node]
}

// home is the session on which a client was granted a lock last, and its node.
func (r *caseRun) home(client string) (session, node int) {
	addrs := map[int]string{}
	ev, _ := r.rec.Events(0)
	for _, e := range ev {
		switch {
		case e.Kind == history.SessionOpened && e.Client == client:
			addrs[e.Session] = e.Addr
		case isWritten(e, "A") && addrs[e.Session] != "":
			session = e.Session
		}
	}
	for i, a := range r.clientOf(client).addrs {
		if a == addrs[session] {
			node = i
		}
	}
	return session, node
}

// isWritten matches the end of a frame that has been written to a client.
func isWritten(e history.Event, op string) bool {
	return e.Kind == history.WriteAccepted && e.Dir == frames.ServerToClient && e.Frame != nil && e.Frame.Op == op
}

// written counts the frames of an op that were written to a client so far.
func (r *caseRun) written(client, op string) int {
	n := 0
	counting := toldBy(client, op, &n, nil)
	ev, _ := r.rec.Events(0)
	for _, e := range ev {
		counting(e)
	}
	return n
}

// toldBy counts the frames of an op that were written to a client, and notes the
// session of the last.
func toldBy(client, op string, n, session *int) func(history.Event) {
	mine := map[int]bool{}
	return func(e history.Event) {
		switch {
		case e.Kind == history.SessionOpened:
			mine[e.Session] = e.Client == client
		case isWritten(e, op) && mine[e.Session]:
			*n++
			if session != nil {
				*session = e.Session
			}
		}
	}
}

// turned waits until a client has been written one more frame of an op than before,
// and tells on which session.
func (r *caseRun) turned(client, op string, before int) (session int, ok bool) {
	n := 0
	counting := toldBy(client, op, &n, &session)
	ok = r.until(seenLimit, func(e history.Event) bool {
		counting(e)
		return n > before
	})
	return session, ok
}

// hasLeft returns a condition for until: the client has ended a session.
func hasLeft(session int) func(history.Event) bool {
	return once(func(e history.Event) bool {
		return e.Kind == history.EndSeen && e.Side == history.ClientSide && e.Session == session
	})
}

// warm asks for a key until the client is granted it, three times at most: a client
// may have to be told first who leads.
func (r *caseRun) warm(client, key string, lease time.Duration) (c *call, ok bool) {
	for range 3 {
		if c = r.acquire(client, key, 2*second, lease); c.settle() {
			return c, true
		}
	}
	return c, false
}
