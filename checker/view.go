package checker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// inFlight is how long a byte may have been under way when it is received, and
// how late an event may be stamped. A case in which the tool was later than
// that is discarded (P11: 200 ms), so this is ample.
const inFlight = time.Second

// end is one side of a session coming to an end.
type end struct {
	moment
	how, cause string
}

// span is a time in which the clients stood still; without an end it goes on.
type span struct{ from, to moment }

// session is one TCP connection through the proxy.
type session struct {
	id     int
	client string // whose listener it came in on; "" if the history does not say
	to     string // the address that the client connected to; "" likewise
	links  [2]*link
	opened moment
	closed end  // the first end that the client gave to it
	cut    end  // the first end that we gave to the client
	reset  bool // the client gave an RST to it, which it does by itself where input lies unread (P4)
}

func (s *session) link(d frames.Direction) *link { return s.links[d] }

// requests are the frames received from the client (W).
func (s *session) requests() []*wireFrame { return s.link(frames.ClientToServer).in.frames }

// forwarded are the frames written to the server (F).
func (s *session) forwarded() []*wireFrame { return s.link(frames.ClientToServer).out.frames }

// replies are the frames received from the server (U).
func (s *session) replies() []*wireFrame { return s.link(frames.ServerToClient).in.frames }

// delivered are the frames written to the client (V).
func (s *session) delivered() []*wireFrame { return s.link(frames.ServerToClient).out.frames }

// view is the indexed history.
type view struct {
	policy   Policy
	g        *frames.Grammar
	owners   bool // requests and replies carry an owner
	tokens   bool // releases carry a token
	events   []history.Event
	sessions []*session
	byID     map[int]*session
	peers    map[string]*session // nil where two sessions shared the address
	calls    []*call
	byCall   map[int]*call
	attempts []*attempt
	grants   []*grant
	queued   []*history.Event // attempts that the table did not grant at once
	fired    []*history.Event
	stays    []*stay
	closing  map[string]moment // CloseAsked, by client
	// shortened: more happened than is judged, so what did not happen by the end
	// proves nothing.
	shortened bool
	late      moment // the first RanLate
	pauses    []span // in which the clients stood still
}

func newView(events []history.Event, g *frames.Grammar, p Policy) *view {
	v := &view{
		policy: p, g: g, events: events,
		byID: map[int]*session{}, peers: map[string]*session{}, byCall: map[int]*call{}, closing: map[string]moment{},
	}
	if s, ok := g.Shape(frames.ClientToServer, opAcquire); ok {
		_, v.owners = s.Field(fieldOwner)
	}
	if s, ok := g.Shape(frames.ClientToServer, opRelease); ok {
		_, v.tokens = s.Field(fieldToken)
	}
	v.makeRoom()
	v.noteAltered()
	for i := range v.events {
		e, m := &v.events[i], moment{i + 1, v.events[i].At}
		v.wireEvent(e, m)
		v.callEvent(e, m)
		v.tableEvent(e, m)
		v.stayEvent(e, m)
	}
	slices.SortFunc(v.sessions, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	slices.SortFunc(v.calls, func(a, b *call) int { return cmp.Compare(a.id, b.id) })
	for _, s := range v.sessions {
		for d, l := range s.links {
			l.in.split(g, s.id, frames.Direction(d))
			l.out.split(g, s.id, frames.Direction(d))
		}
	}
	v.findAttempts()
	v.nameGrants()
	return v
}

// Names of ops and fields in the Ticketing grammars.
const (
	opAcquire, opRelease          = "A", "R" // client to server
	opAcquired, opTimeout, opBusy = "A", "T", "B"
	opReleased, opNotHeld         = "R", "N"
	fieldOwner, fieldToken        = "owner", "token"
	fieldLease, fieldWait         = "lease", "wait"
)

func (v *view) session(id int) *session {
	s, ok := v.byID[id]
	if !ok {
		s = &session{id: id, links: [2]*link{newLink(), newLink()}}
		v.byID[id] = s
		v.sessions = append(v.sessions, s)
	}
	return s
}

// inSequence returns the events in the order of their Seq; a recorder's are already.
func inSequence(events []history.Event) []history.Event {
	bySeq := func(a, b history.Event) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(events, bySeq) {
		events = slices.Clone(events)
		slices.SortStableFunc(events, bySeq)
	}
	return events
}

// makeRoom counts the bytes of each stream, because most of the time would else go
// into growing them.
func (v *view) makeRoom() {
	type place struct {
		session int
		dir     frames.Direction
		out     bool
	}
	n := map[place]int{}
	for i := range v.events {
		if e := &v.events[i]; e.Dir <= frames.ServerToClient && plausible(e) && (e.Kind == history.Received || e.Kind == history.WriteBegun) {
			n[place{e.Session, e.Dir, e.Kind == history.WriteBegun}] += e.N
		}
	}
	for p, room := range n {
		l := v.session(p.session).link(p.dir)
		if p.out {
			l.out.cells = make([]cell, 0, room)
		} else {
			l.in.cells = make([]cell, 0, room)
		}
	}
}

// noteAltered finds the frames that a fault changed on the way. Where the record
// of the write does not say what was written, their bytes are unknown.
func (v *view) noteAltered() {
	for i := range v.events {
		e := &v.events[i]
		if e.Kind == history.Fired && e.Frame != nil && strings.HasPrefix(e.Fault, "corrupt") && e.Dir <= frames.ServerToClient {
			v.session(e.Session).link(e.Dir).altered[e.Frame.Seq] = true
		}
	}
}

func (v *view) wireEvent(e *history.Event, m moment) {
	if e.Dir > frames.ServerToClient {
		return
	}
	switch e.Kind {
	case history.SessionOpened:
		v.session(e.Session).opened = m
		v.session(e.Session).client, v.session(e.Session).to = e.Client, e.Addr
	case history.ServerDialed:
		v.dialed(e)
	case history.Received:
		v.session(e.Session).link(e.Dir).received(e, m)
	case history.WriteBegun:
		v.session(e.Session).link(e.Dir).begun(e, m)
	case history.WriteAccepted:
		v.session(e.Session).link(e.Dir).accepted(e, m)
	case history.Acked:
		out := &v.session(e.Session).link(e.Dir).out
		out.acked, out.known = max(out.acked, e.N), true
	case history.WentOpaque:
		v.session(e.Session).link(e.Dir).in.darken(m)
	case history.EndSeen:
		s := v.session(e.Session)
		if e.Side == history.ClientSide && !s.closed.happened() {
			s.closed = end{m, e.How, e.Cause}
		}
		s.reset = s.reset || e.Side == history.ClientSide && e.How == history.RST
	case history.EndSent:
		if s := v.session(e.Session); e.Side == history.ClientSide && !s.cut.happened() {
			s.cut = end{m, e.How, e.Cause}
		}
	case history.Fired:
		v.fired = append(v.fired, e)
	case history.Frozen:
		v.pauses = append(v.pauses, span{from: m})
	case history.Thawed:
		if n := len(v.pauses); n > 0 && !v.pauses[n-1].to.happened() {
			v.pauses[n-1].to = m
		}
	case history.RanLate:
		if !v.late.happened() {
			v.late = m
		}
	}
}

func (v *view) dialed(e *history.Event) {
	if e.Peer == "" {
		return
	}
	s := v.session(e.Session)
	if old, ok := v.peers[e.Peer]; ok && old != s {
		v.peers[e.Peer] = nil
		return
	}
	v.peers[e.Peer] = s
}

// sessionsOf lists the sessions of a client.
func (v *view) sessionsOf(client string) []*session {
	var out []*session
	for _, s := range v.sessions {
		if s.client == client {
			out = append(out, s)
		}
	}
	return out
}

// blind tells whether bytes crossed, between this client and us and before an
// order number, that could not be read: a request or a reply may hide in them,
// so that the absence of either proves nothing.
func (v *view) blind(client string, before int) bool {
	if v.shortened && before == never {
		return true
	}
	for _, s := range v.sessions {
		if s.client != client && s.client != "" {
			continue
		}
		in, out := &s.link(frames.ClientToServer).in, &s.link(frames.ServerToClient).out
		if s.client == "" && (len(in.cells) > 0 || len(out.cells) > 0) {
			return true
		}
		if in.dark.happened() && in.dark.ord < before || out.dark.happened() && out.dark.ord < before {
			return true
		}
		for _, f := range slices.Concat(in.frames, out.frames) {
			if f.unknown && f.first().ord < before && hides(f) {
				return true
			}
		}
	}
	return false
}

// hides tells whether an unread frame may have been a request or a reply.
func hides(f *wireFrame) bool {
	return f.shape == nil || f.shape.Kind == frames.Message && strings.Contains("ATBRN", f.shape.Op)
}

// passedOn counts how much of a frame the receiver's kernel acknowledged at all,
// and how much ours had accepted before an order number. A request is counted to
// the end of the history, since it is its sender that is judged by it.
func (v *view) passedOn(f *wireFrame, before int) [2]int {
	var acked, accepted int
	s := v.byID[f.session]
	if s == nil || f.ref.Dir > frames.ServerToClient {
		return [2]int{}
	}
	if f.ref.Dir == frames.ClientToServer {
		before = never
	}
	out := &s.link(f.ref.Dir).out
	for i := range out.cells {
		c := &out.cells[i]
		if c.ref == f.ref && c.accepted.happened() && c.accepted.ord < before {
			accepted++
			if c.pos < out.acked {
				acked++
			}
		}
	}
	return [2]int{acked, accepted}
}

// source is the frame as its sender sent it, as far as it came in; for one that
// we made ourselves it is what was written.
func (v *view) source(f *wireFrame) []byte {
	if s := v.byID[f.session]; s != nil && f.ref.Dir <= frames.ServerToClient {
		if d := s.link(f.ref.Dir).data[f.ref.Seq]; len(d) >= len(f.data) {
			return d
		}
	}
	return f.data
}
