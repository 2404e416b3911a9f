package verify

import (
	"fmt"
	"slices"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// request is an acquire as it came from the client.
type request struct {
	client  string
	session int
	key     string
	owner   uint64 // 0 in a dialect without
}

// requestOf finds the last acquire for the key of a call on the wire.
func (r *caseRun) requestOf(c *call) (q request, ok bool) {
	shape := r.grammar.MustShape(frames.ClientToServer, "A")
	events, _ := r.rec.Events(0)
	client, begun := map[int]string{}, map[int][]byte{}
	for _, e := range events {
		switch {
		case e.Kind == history.SessionOpened:
			client[e.Session] = e.Client
		case e.Kind != history.Received || e.Dir != frames.ClientToServer || e.Frame.Op != "A":
			continue
		default:
			begun[e.Session] = append(begun[e.Session], e.Data...)
			if !e.Last {
				continue
			}
			b := begun[e.Session]
			delete(begun, e.Session)
			if client[e.Session] == c.client && shape.Check(b) == nil && string(shape.TailOf(b)) == c.key {
				q, ok = request{client: c.client, session: e.Session, key: c.key}, true
				q.owner, _ = shape.Uint(b, "owner")
			}
		}
	}
	return q, ok
}

// leaveLimit is how long a client may take to leave a session on which it got what
// it has to leave it for. It is over the lateness that a living client is allowed.
const leaveLimit = 300 * time.Millisecond

// leaveLimitAway is leaveLimit in front of a server that is not ours: what is granted
// there to a session that is being left is seen by nobody, and locked until its lease
// ends.
const leaveLimitAway = time.Second

// interject has the server send a keep-alive on all sessions, with the payload of the
// workload's own fault in front of it on the sessions of the waiting calls, and waits
// until the clients have left these, or have had the time to.
func (r *caseRun) interject(calls ...*call) {
	t, ok := faults.ByID(r.id.Fault)
	if ok {
		r.interjectAs(t, r.of.Workload.Own.Payload, calls...)
		return
	}
	r.keepAlive()
}

// interjectAs is interject with a fault that is not the case's own.
func (r *caseRun) interjectAs(t *faults.Type, payload func(*frames.Grammar, request) []byte, calls ...*call) {
	staying := map[int]bool{}
	for _, c := range calls {
		if q, ok := r.requestOf(c); ok && r.arm(t, q, payload(r.grammar, q)) {
			staying[q.session] = true
		}
	}
	r.keepAlive()
	limit := leaveLimit
	if r.own != nil {
		limit = leaveLimitAway
	}
	r.until(limit, func(e history.Event) bool {
		if e.Kind == history.EndSeen && e.Side == history.ClientSide {
			delete(staying, e.Session)
		}
		return len(staying) == 0
	})
}

// arm arms a fault that injects for the session of a request. It is false if the case
// has failed.
func (r *caseRun) arm(t *faults.Type, q request, payload []byte) bool {
	err := r.px.Arm(faults.Rule{
		ID: r.id.plain() + "/" + q.client, Fault: t, Inject: payload, Times: 1,
		Trigger: faults.Trigger{Dir: frames.ServerToClient, Op: frames.OpKeepAlive, Session: q.session},
	})
	if err != nil {
		r.fail(fmt.Errorf("the fault cannot be armed: %w", err))
	}
	return err == nil
}

// leaves matches the client's end of a session.
func leaves(session int) func(history.Event) bool {
	return func(e history.Event) bool {
		return e.Kind == history.EndSeen && e.Side == history.ClientSide && e.Session == session
	}
}

// orphanLimit is how long the release of a grant that nobody waited for is awaited:
// as long as the checker gives it, and a little more.
const orphanLimit = 5500 * time.Millisecond

// orphanReleased waits until a client has sent a release of a token, whose grant
// nobody granted. Without tokens in a release there is nothing to wait for.
func (r *caseRun) orphanReleased(client string, token uint64) {
	shape := r.grammar.MustShape(frames.ClientToServer, "R")
	if _, ok := shape.Field("token"); ok && r.id.Fault != NoFault {
		r.orphanSought(client, token)
	}
}

// orphanSought waits until a client has sent a release of a token, or has had the time to.
func (r *caseRun) orphanSought(client string, token uint64) {
	shape := r.grammar.MustShape(frames.ClientToServer, "R")
	mine, begun := map[int]bool{}, map[int][]byte{}
	r.until(orphanLimit, once(func(e history.Event) bool {
		switch {
		case e.Kind == history.SessionOpened && e.Client == client:
			mine[e.Session] = true
		case e.Kind == history.Received && mine[e.Session] && e.Dir == frames.ClientToServer && e.Frame.Op == "R":
			if e.Off == 0 {
				begun[e.Session] = nil
			}
			begun[e.Session] = slices.Concat(begun[e.Session], e.Data)
			t, ok := shape.Uint(begun[e.Session], "token")
			return ok && t == token
		}
		return false
	}))
}
