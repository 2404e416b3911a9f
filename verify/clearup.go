package verify

import (
	"context"
	"maps"
	"slices"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// noticeEnd is how long a server that is not ours may take to notice that a
// connection is gone: no longer is waited for attempts that it may still have queued. The
// longest wait of a workload that holds keys is 8 s.
const noticeEnd = 9 * time.Second

// clearUp releases what the case left behind at a server that is not ours: the
// tool's own tickets, and every grant that was seen and not released. In ticketing a
// grant that was made unseen, to a connection that was reset, ends with its lease; in
// ticketing-v0, whose release names no token, it is released too.
func (r *caseRun) clearUp(events []history.Event) {
	if r.own == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), noticeEnd+wireLimit)
	defer cancel()
	left, open := leftBehind(events, r.grammar)
	if !current(r.grammar) {
		if len(left) > 0 || len(open) > 0 || len(r.own.tickets) > 0 {
			r.freeAll(ctx)
		}
		r.closeOwn()
		return
	}
	r.outlast(open, left)
	for _, t := range r.own.tickets {
		_ = t.Release(ctx)
	}
	r.closeOwn()
	if len(left) > 0 {
		r.releaseLeft(ctx, left)
	}
}

func (r *caseRun) closeOwn() {
	if r.own.client != nil {
		_ = r.own.client.Close()
	}
}

// outlast waits until no attempt can be queued any more for a key that is about to be
// freed. Such a key goes to the next attempt in its queue, even if its connection is
// gone and the server has not noticed; nobody would see that grant.
func (r *caseRun) outlast(open []attempted, left []said) {
	var until time.Duration
	for _, a := range open {
		if r.own.tickets[a.key] != nil || slices.ContainsFunc(left, func(g said) bool { return g.key() == a.key }) {
			until = max(until, a.due+seenAfter)
		}
	}
	if wait := min(until-r.rec.Since(), noticeEnd); wait > 0 {
		<-time.After(wait)
	}
}

// deserted tells whether all attempts that may be queued for a key are of sessions that
// their clients have ended.
func (r *caseRun) deserted(key string) bool {
	events, _ := r.rec.Events(0)
	ended := map[int]bool{}
	for _, e := range events {
		if e.Kind == history.EndSeen && e.Side == history.ClientSide {
			ended[e.Session] = true
		}
	}
	waiting, gone := 0, 0
	_, open := leftBehind(events, r.grammar)
	for _, a := range open {
		if a.key == key {
			waiting++
			if ended[a.session] {
				gone++
			}
		}
	}
	return waiting > 0 && waiting == gone
}

// releaseLeft releases grants by their tokens.
func (r *caseRun) releaseLeft(ctx context.Context, left []said) {
	w, err := dialWire(ctx, bySocket, r.grammar, r.own.s.addr, r.own.s.secret)
	if err != nil {
		return
	}
	defer w.close()
	for _, g := range left {
		if w.send("R", g.key(), map[string]uint64{"token": g.field("token")}) != nil {
			return
		}
	}
	for range left {
		if _, err := w.read(ctx, wireLimit); err != nil {
			return
		}
	}
}

// freeAll releases every key of the case until it is told that nobody holds it, in a
// dialect whose releases name no token: behind a grant that ends there may be attempts
// whose connections are gone.
func (r *caseRun) freeAll(ctx context.Context) {
	w, err := dialWire(ctx, bySocket, r.grammar, r.own.s.addr, r.own.s.secret)
	if err != nil {
		return
	}
	defer w.close()
	for _, key := range slices.Compact(slices.Sorted(maps.Values(r.own.keys))) {
		for held := true; held; {
			if w.send("R", key, nil) != nil {
				return
			}
			f, err := w.read(ctx, wireLimit)
			if err != nil {
				return
			}
			held = f.is("R")
		}
	}
}

// attempted is a request that may be queued at the server.
type attempted struct {
	session int
	key     string
	owner   uint64
	due     time.Duration // when its wait is over, in the time of the record
}

// leftBehind lists the grants received from the server whose release was not, and the
// attempts written to it that were not answered.
func leftBehind(events []history.Event, g *frames.Grammar) (left []said, open []attempted) {
	type place struct {
		session int
		dir     frames.Direction
		seq     uint64
	}
	begun := map[place]time.Duration{}
	for _, e := range events {
		if e.Kind == history.WriteBegun && e.Frame != nil {
			begun[place{e.Session, e.Dir, e.Frame.Seq}] = e.At
		}
	}
	bytes := map[place][]byte{}
	for _, e := range events {
		if e.Kind != history.Received || e.Frame == nil {
			continue
		}
		at := place{e.Session, e.Dir, e.Frame.Seq}
		bytes[at] = append(bytes[at], e.Data...)
		shape, ok := g.Shape(e.Dir, e.Frame.Op)
		if !e.Last || !ok {
			continue
		}
		f := said{shape, bytes[at]}
		sent, written := begun[at]
		switch {
		case e.Dir == frames.ClientToServer && f.is("A") && written && (f.field("wait") > 0 || !current(g)):
			due := sent + time.Duration(f.field("wait"))*time.Second
			open = append(open, attempted{e.Session, f.key(), f.field("owner"), due})
		case e.Dir == frames.ClientToServer:
		case f.is("A"):
			left = append(left, f)
			open = answered(open, e.Session, f)
		case f.is("T"), f.is("B"):
			open = answered(open, e.Session, f)
		case f.is("R"), f.is("N"):
			left = slices.DeleteFunc(left, func(o said) bool {
				return o.key() == f.key() && (o.field("token") == f.field("token") || !current(g))
			})
		}
	}
	return left, open
}

// answered takes the attempt away that a reply answers.
func answered(open []attempted, session int, f said) []attempted {
	i := slices.IndexFunc(open, func(a attempted) bool {
		return a.session == session && a.key == f.key() && a.owner == f.field("owner")
	})
	if i < 0 {
		return open
	}
	return slices.Delete(open, i, i+1)
}
