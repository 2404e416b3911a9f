package verify

import (
	"testing"

	"tornwire/frames"
	"tornwire/history"
)

// TestViews: what tells two cases apart to each side, and what does not.
func TestViews(t *testing.T) {
	ref := func(dir frames.Direction, op string, seq uint64) *history.FrameRef {
		return &history.FrameRef{Dir: dir, Op: op, Nth: 1, Seq: seq}
	}
	wrote := func(session int, dir frames.Direction, op string, off, n int) history.Event {
		return history.Event{Kind: history.WriteAccepted, Session: session, Dir: dir, Frame: ref(dir, op, 1), Off: off, N: n}
	}
	const c2s, s2c = frames.ClientToServer, frames.ServerToClient
	fired := func(dir frames.Direction) history.Event {
		return history.Event{Kind: history.Fired, Session: 1, Dir: dir, Frame: ref(dir, "A", 1)}
	}
	fin := func(dir frames.Direction) history.Event {
		return history.Event{Kind: history.EndSent, Session: 1, Dir: dir, Side: history.Receiver(dir), How: history.FIN}
	}
	left := history.Event{Kind: history.EndSeen, Session: 1, Dir: c2s, Side: history.ClientSide, How: history.FIN}
	request := func(n int) []history.Event {
		return []history.Event{wrote(1, c2s, "A", 0, n), fired(c2s), fin(c2s), fin(s2c)}
	}
	for _, c := range []struct {
		name           string
		a, b           []history.Event
		client, server bool // told apart by
	}{
		{"the same", request(5), request(5), false, false},
		{"a request cut elsewhere", request(5), request(6), false, true},
		{"reads of other sizes", []history.Event{wrote(1, s2c, "A", 0, 9)}, []history.Event{wrote(1, s2c, "A", 0, 4), wrote(1, s2c, "A", 4, 5)}, false, false},
		{"a pause inside", []history.Event{wrote(1, s2c, "A", 0, 9)}, []history.Event{wrote(1, s2c, "A", 0, 4), fired(s2c), wrote(1, s2c, "A", 4, 5)}, true, false},
		{"a reply cut elsewhere", []history.Event{wrote(1, s2c, "A", 0, 9)}, []history.Event{wrote(1, s2c, "A", 0, 8)}, true, false},
		{"FIN or nothing", []history.Event{fin(s2c)}, []history.Event{wrote(1, s2c, "A", 0, 0)}, true, false},
		{"after it has left", []history.Event{left}, []history.Event{left, wrote(1, s2c, "A", 0, 8), fin(s2c)}, false, false},
		{"on another session", []history.Event{wrote(1, s2c, "A", 0, 8)}, []history.Event{wrote(2, s2c, "A", 0, 8)}, true, true},
	} {
		a, b := viewsOf("w", c.a), viewsOf("w", c.b)
		if (a.client != b.client) != c.client || (a.server != b.server) != c.server {
			t.Errorf("%s: told apart by the client %v, by the server %v", c.name, a.client != b.client, a.server != b.server)
		}
	}
	if a, b := viewsOf("w", request(5)), viewsOf("x", request(5)); a.client == b.client {
		t.Error("two workloads are one exchange")
	}
}

// TestDistinctExchanges: cases that looked alike to the client count once.
func TestDistinctExchanges(t *testing.T) {
	p := plan(t, Options{Cases: cuts(dialectCurrent, "single", "c2s.A.1", []int{1, 2, 3}, "truncate-fin")})
	r := newReport(p)
	for i, c := range p.Cases {
		res := ended(c, "safe")
		res.views = views{client: 7, server: uint64(i + 1)}
		r.add(res)
	}
	r.finish(0, 0)
	if c := r.Coverage; c.Distinct != 1 || c.Servers != 3 || c.Cut != 3 {
		t.Errorf("%+v", c)
	}
}
