package checker

import (
	"fmt"
	"slices"

	"tornwire/frames"
	"tornwire/history"
)

// breach is the first frame on a session that a client cannot read, or that is fatal
// for its connection by itself.
type breach struct {
	session *session
	frame   *wireFrame // as far as it can be read
	what    string
	framing bool         // its end cannot be known
	behind  []*wireFrame // what follows it, read as one reads who skips it
}

// listed are the errors after which a client backs off (spec/ticketing.md §3.12).
var listed = []string{"no_leader", "not_active", "auth_failed"}

// breachOf finds the first breach in what was written to the client of a session, nil
// if there is none or it is not certain which bytes were written.
func (v *view) breachOf(s *session) *breach {
	out := &s.link(frames.ServerToClient).out
	if s.client == "" || slices.ContainsFunc(out.cells, func(c cell) bool { return !c.known }) {
		return nil
	}
	end := 0 // place behind the frame at hand
	for _, f := range out.frames {
		end += len(f.cells)
		what := ""
		switch {
		case f.shape.Kind != frames.Message && f.whole:
			continue
		case f.shape.Kind != frames.Message:
			return nil
		case !f.whole:
			// It is the last one that the decoder took: over its limit, or still under way.
			if end == len(out.cells) {
				return nil
			}
			long := *f
			return v.skip(&breach{session: s, frame: &long, what: "over the limit of its text", framing: true}, end)
		case f.shape.Check(f.data) != nil:
			what = "malformed"
		case f.isOp("E"):
			if t, _ := f.tail(); !slices.Contains(listed, t) {
				what = fmt.Sprintf("the error %q", t)
			}
		}
		if what != "" {
			b := &breach{session: s, frame: f, what: what}
			b.behind = v.read(s, out.cells[end:])
			return b
		}
	}
	if end == len(out.cells) {
		return nil
	}
	f := &wireFrame{session: s.id, ref: out.cells[end].ref}
	return v.skip(&breach{session: s, frame: f, what: fmt.Sprintf("of the unknown op %q", out.cells[end].b)}, end)
}

// skip takes the rest of a frame without a readable end, up to and with its newline,
// and reads on behind it.
func (v *view) skip(b *breach, from int) *breach {
	cells := b.session.link(frames.ServerToClient).out.cells
	start := from - len(b.frame.cells)
	n := newlineAfter(cells, from)
	b.frame.cells = cells[start:n:n]
	b.frame.data = nil
	for _, c := range b.frame.cells {
		b.frame.data = append(b.frame.data, c.b)
	}
	b.behind = v.read(b.session, cells[n:])
	return b
}

// newlineAfter is the place behind the first newline from a place on.
func newlineAfter(cells []cell, from int) int {
	for i := from; i < len(cells); i++ {
		if cells[i].b == '\n' {
			return i + 1
		}
	}
	return len(cells)
}

// read makes frames of cells that begin at a frame boundary, and skips what it cannot
// read up to the next newline.
func (v *view) read(s *session, cells []cell) []*wireFrame {
	var out []*wireFrame
	for len(cells) > 0 {
		rest := stream{cells: cells}
		sp := splitter{g: v.g, session: s.id, dir: frames.ServerToClient, dec: v.g.Decoder(frames.ServerToClient), out: &rest}
		sp.dec.Next([]byte("-\n")) // the preface is behind us
		taken := len(cells)
		for i := range cells {
			if sp.at = i; !sp.add(&cells[i]) {
				taken = newlineAfter(cells, i)
				break
			}
		}
		out = append(out, slices.DeleteFunc(rest.frames, func(f *wireFrame) bool { return !f.whole })...)
		cells = cells[taken:]
	}
	return out
}

// unknownFatal stands on TCP order and P3: a result that only a frame behind the
// breach can have told proves that the client read on past the breach, whatever it had
// in flight (P6). A token that one A behind it carries, and no other frame, is proof by
// itself; another definite word is one only if the client cannot have come to it in
// another way (see saidBehind). Frames whose end cannot be known are for framingCloses.
func unknownFatal(j *judge) { j.fatal(false) }

// framingCloses stands on the same proof, for a frame over the limit of its text: what
// follows cannot be told from its inside, so reading on is guessing.
func framingCloses(j *judge) { j.fatal(true) }

func (j *judge) fatal(framing bool) {
	for _, s := range j.sessions {
		b := j.breachOf(s)
		if b == nil || b.framing != framing || j.shortened {
			continue
		}
		if j.leftAfter(s, b.frame.first()) {
			j.checked()
		}
		h, c, at := j.readOn(b)
		if h == nil {
			continue
		}
		severity := j.promised()
		if !framing && h.isOp(opAcquired) {
			severity = Safety
		}
		subject := told(c)
		if !h.isOp(opAcquired) && at.ord != c.result.ord {
			subject = fmt.Sprintf("the release of call %d on key %q was told %s", c.id, c.key, plainWord(meant(h)))
		}
		j.find(severity, Certain, fmt.Sprintf("%s by %s on session %d, behind a frame there that is %s",
			subject, shown(h), s.id, b.what),
			j.evidence(scene{call: c, frame: b.frame, offset: len(b.frame.data), at: at.ord}))
	}
}

// shown names a frame; one that we made has no number.
func shown(f *wireFrame) string {
	if f.ref.Nth == 0 && f.shape != nil {
		return "an injected " + f.shape.Op
	}
	return f.ref.String()
}

// readOn finds the gravest effect of what follows a breach: a grant before all others.
func (v *view) readOn(b *breach) (h *wireFrame, c *call, at moment) {
	for _, f := range b.behind {
		for _, d := range v.calls {
			if d.client != b.session.client {
				continue
			}
			if m := v.saidBehind(b, f, d); m.happened() && (h == nil || f.isOp(opAcquired) && !h.isOp(opAcquired)) {
				h, c, at = f, d, m
			}
		}
	}
	return h, c, at
}

// saidBehind is when the client said what only f, behind a breach, can have told it
// about d. A grant is known by its token, which no other A carried. Another answer
// counts if the session stayed open, nobody had asked for an end, and it was well
// before the deadline, with no other answer delivered.
func (v *view) saidBehind(b *breach, f *wireFrame, d *call) moment {
	s := b.session
	t, _, hasToken := f.field(fieldToken)
	switch {
	case f.isOp(opAcquired):
		if d.outcome == history.OutcomeAcquired && d.hasToken && hasToken && d.token == t && f.end().before(d.result) && v.carry(s.client, t) == 1 {
			return d.result
		}
	case f.isOp(opTimeout) || f.isOp(opBusy):
		if d.outcome == meant(f) && just(f, d.result) && v.answersOn(f, d, s) && v.early(d, d.result) && !d.cancel.before(d.result) &&
			!v.answeredBefore(b, d) && v.stayed(s, d.result) {
			return d.result
		}
	case f.isOp(opReleased) || f.isOp(opNotHeld):
		if !hasToken || !d.hasToken || d.token != t || len(d.released) == 0 {
			return moment{}
		}
		if got := d.released[0]; got.outcome == meant(f) && just(f, got.moment) && v.stayed(s, got.moment) && !v.answeredElsewhere(d, f) {
			return got.moment
		}
	}
	return moment{}
}

// carry counts the A frames with a token that were written to a client, those behind a
// breach too.
func (v *view) carry(client string, token uint64) int {
	n := v.carriers(client, token)
	for _, s := range v.sessionsOf(client) {
		b := v.breachOf(s)
		if b == nil || !s.link(frames.ServerToClient).out.dark.happened() {
			continue // what is behind it is among the delivered
		}
		for _, f := range b.behind {
			if t, _, ok := f.field(fieldToken); ok && t == token && f.isOp(opAcquired) {
				n++
			}
		}
	}
	return n
}

// answersOn tells whether f answers the attempts of d, which are all on one session.
func (v *view) answersOn(f *wireFrame, d *call, s *session) bool {
	return len(d.attempts) > 0 && !slices.ContainsFunc(d.attempts, func(a *attempt) bool {
		return a.session != s.id || a.only() != d || !v.answers(f, a, d)
	})
}

// answeredBefore tells whether an answer to d was begun before a breach, or came on
// another session.
func (v *view) answeredBefore(b *breach, d *call) bool {
	return slices.ContainsFunc(v.finals(d, opAcquired, opTimeout, opBusy), func(f *wireFrame) bool {
		return f.session != b.session.id || f.first().before(b.frame.first())
	})
}

// stayed tells whether a session was open at a moment and for a while after it, but for
// what was asked of its client.
func (v *view) stayed(s *session, m moment) bool {
	closed := s.closed.moment
	if s.cut.before(m) || closed.before(m) || v.closing[s.client].before(m) || v.late.before(m) {
		return false
	}
	return !closed.happened() || closed.at > m.at+inFlight || v.closing[s.client].before(closed)
}

// answeredElsewhere tells whether the answer to the release of d was delivered on
// another session too.
func (v *view) answeredElsewhere(d *call, f *wireFrame) bool {
	for _, s := range v.sessionsOf(d.client) {
		if slices.ContainsFunc(s.delivered(), func(h *wireFrame) bool { return h.ref != f.ref && answersRelease(h, d) }) {
			return true
		}
	}
	return false
}
