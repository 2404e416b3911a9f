package wrongclient

import (
	"strings"
	"time"

	"tornwire/frames"
)

// read is the session's goroutine: it takes frames until the session is over.
func (s *session) read() {
	r := reader{s: s, split: s.c.defect.splitter(s.c.grammar)}
	buf := make([]byte, 4096)
	for {
		n, err := s.conn.Read(buf)
		if pause := s.c.defect.readsAfter(); n > 0 && pause > 0 {
			sleep(s.c.root, time.Now().Add(pause))
		}
		if n > 0 {
			if e, fatal := r.feed(buf[:n]); fatal {
				s.close(e)
				return
			}
		}
		if err != nil {
			r.torn()
			s.close(endOfError(err))
			return
		}
	}
}

// reader takes the frames of one session.
type reader struct {
	s     *session
	split splitter
	acted bool // on the frame under way, before its end
}

// feed takes all frames in p. It tells whether the session has to end, and why.
func (r *reader) feed(p []byte) (end, bool) {
	for len(p) > 0 {
		f, rest, ok, err := r.split.next(p)
		if err != nil {
			return end{endFrame, err.Error()}, true
		}
		if !ok {
			break
		}
		p = rest
		if r.acted {
			r.acted = false
			continue
		}
		if e, fatal := r.take(f); fatal {
			return e, true
		}
	}
	if f := r.split.begun(); f.shape != nil && r.s.c.defect.early(f.shape, f.got) {
		r.acted = r.acted || r.deliver(f)
	}
	return end{}, false
}

func (r *reader) take(f frame) (end, bool) {
	switch f.shape.Op {
	case frames.OpKeepAlive:
		return end{}, false
	case "greeting":
		id, nonce, ok := strings.Cut(f.tail(), " ")
		if !ok || id == "" || nonce == "" || strings.Contains(nonce, " ") {
			return end{endFrame, "malformed greeting"}, true
		}
		r.s.greeting <- nonce // has room for the one greeting of a session
		return end{}, false
	case "L", "M", "E":
		return r.word(f)
	}
	return r.reply(f)
}

// word takes what the server tells of the cluster. It answers no exchange.
func (r *reader) word(f frame) (end, bool) {
	c, op, text := r.s.c, f.shape.Op, f.tail()
	c.defect.delaysWords()
	if op == "E" && c.defect.passesOver(text) {
		return end{}, false
	}
	if op == "E" {
		c.refused(r.s.node, text)
	} else {
		c.setHint(op, text)
	}
	if as := c.defect.answersWith(op); as != 0 {
		r.s.answerAll(acquireAnswers, as)
	}
	if c.defect.staysAfter(op, text) {
		return end{}, false
	}
	return end{endFrame, "server said " + op + " " + text}, true
}

// reply gives an answer to the exchange that waits for it. If there is none the
// session has to end.
func (r *reader) reply(f frame) (end, bool) {
	if r.deliver(f) || r.s.c.defect.dropsStrays() {
		return end{}, false
	}
	if f.shape.Op == "A" && !f.cut {
		r.s.c.orphan(r.s, f)
	}
	return end{endFrame, "answer " + f.shape.Op + " that nobody waits for"}, true
}

func (r *reader) deliver(f frame) bool {
	c := r.s.c
	grants := f.shape.Op == "A"
	if grants && !c.hasOwner && c.matched.has(f.token()) {
		return false // without an owner, only the token tells a duplicate from a grant
	}
	x := r.s.take(f)
	if x == nil {
		return false
	}
	if grants {
		c.matched.add(f.token())
	}
	c.answered(r.s.node)
	x.answer <- answer{op: c.defect.opFor(x, f.shape.Op[0]), token: c.defect.tokenRead(f.token())}
	return true
}
