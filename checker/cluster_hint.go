package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/history"
)

const (
	// hintTimes is how often the hinted node has to be dialled first.
	hintTimes = 20
	// hintShare is how many of these may name the same one of the client's addresses,
	// so that an order in which it tries them cannot look like a hint.
	hintShare = hintTimes * 3 / 4
	// hintQuiet is how long before the error the notice has to lie, with no connection
	// of the client in between: one that it makes because of the notice is made then.
	hintQuiet = 100 * time.Millisecond
)

// hinting is one time at which a hint had to be dropped.
type hinting struct {
	word          // the E no_leader
	hint   string // the address named before it
	place  int    // of the hint among the client's addresses
	first  *session
	dialed string // to which address
}

// noLeaderDropsHint stands on V and X. Each time, an L on the session named another of
// the client's nodes than the one the session is to, then E no_leader came there, and
// the client ended the session; what it dialled next shows whether it still had the
// hint. A client without one may dial any node, the last one again or the next in an
// order, so a single time proves nothing: it takes twenty of twenty, over all clients
// of the case, with hints that are now one address of the client's list and now
// another. All nodes accepted connections.
func noLeaderDropsHint(j *judge) {
	if j.shortened || j.late.happened() {
		return
	}
	all := j.hintings()
	if len(all) < hintTimes {
		return
	}
	places := map[int]int{}
	for _, h := range all {
		places[h.place]++
	}
	for _, n := range places {
		if n > len(all)*hintShare/hintTimes {
			return
		}
	}
	j.checked()
	if slices.ContainsFunc(all, func(h hinting) bool { return h.dialed != h.hint }) {
		return
	}
	h := all[len(all)-1]
	e := j.evidence(scene{frame: h.wireFrame, offset: len(h.data), at: h.first.opened.ord})
	j.find(Hygiene, Certain, fmt.Sprintf("%d of %d times the node that an L had named was dialled first after E no_leader, which drops the hint; the last time client %s dialled %s as session %d, %s after %s on session %d",
		len(all), len(all), h.s.client, h.hint, h.first.id, ms(since(h.end(), h.first.opened)), spelt(h.word), h.s.id), e)
}

// hintings lists the times that can be judged.
func (v *view) hintings() []hinting {
	notices := v.words(opNotice)
	if len(notices) == 0 {
		return nil
	}
	addr := v.addresses()
	var out []hinting
	for _, w := range v.words(opError) {
		client := w.s.client
		if w.text != reasonNoLeader || !v.leftAfter(w.s, w.end()) || w.s.cutFirst(w.s.closed.moment) {
			continue
		}
		l, ok := v.latestNotice(notices, w)
		place := slices.Index(addr.given[client], l.text)
		own := addr.dialed[w.s.id]
		if !ok || place < 0 || own == "" || own == l.text || since(l.accepted, w.first()) < hintQuiet {
			continue
		}
		first := v.nextOpened(client, l.first())
		if first == nil || !w.end().before(first.opened) || v.turnedOff(client) {
			continue
		}
		out = append(out, hinting{w, l.text, place, first, addr.dialed[first.id]})
	}
	return out
}

// latestNotice is the last L that was written to the client before w, if it was on the
// same session and no M came after it.
func (v *view) latestNotice(notices []word, w word) (word, bool) {
	var last word
	for _, n := range append(notices[:len(notices):len(notices)], v.words(opMoved)...) {
		if n.s.client == w.s.client && n.first().before(w.first()) && (last.wireFrame == nil || last.first().before(n.first())) {
			last = n
		}
	}
	return last, last.wireFrame != nil && last.isOp(opNotice) && last.s == w.s
}

// nextOpened is the first session of a client that was opened after a moment.
func (v *view) nextOpened(client string, m moment) *session {
	var first *session
	for _, s := range v.sessionsOf(client) {
		if m.before(s.opened) && (first == nil || s.opened.before(first.opened)) {
			first = s
		}
	}
	return first
}

// turnedOff tells whether connections of a client were refused or turned away.
func (v *view) turnedOff(client string) bool {
	return slices.ContainsFunc(v.fired, func(e *history.Event) bool {
		return e.Frame != nil && e.Frame.Op == "open" && (e.Client == client || v.byID[e.Session] != nil && v.byID[e.Session].client == client)
	})
}
