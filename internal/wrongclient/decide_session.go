package wrongclient

import (
	"context"
	"time"
)

// lingerTime is how long a cancelled call is still waited for by those that do.
const lingerTime = 300 * time.Millisecond

// lingers is how long the answer to x is awaited when nobody wants it any more, for
// the reason e.
func (d defect) lingers(x *exchange, e end) time.Duration {
	if (d == oddCancelLingers || d == releaseDiesWithCall) && x.ops == acquireAnswers && e.how == endCancel {
		return lingerTime
	}
	return 0
}

// forgets tells whether x, unanswered when e came, is forgotten, and its session left
// as it is.
func (d defect) forgets(x *exchange, e end) bool {
	return x.ops == acquireAnswers && (d == deadlineKeepsSession && e.how == endDeadline || d == cancelKeepsSession && e.how == endCancel)
}

// closesAll tells whether what ends one session ends them all.
func (d defect) closesAll(e end) bool { return d == closeAll && e.how == endDeadline }

// exclusive tells whether a session that is in use takes no other call.
func (d defect) exclusive() bool { return d == closeAll || d == oddExclusive }

// closesUnused tells whether a session that nothing uses is closed.
func (d defect) closesUnused() bool { return d == oddClosesUnused }

// releasedBy tells whether a release that was sent counts as done because its session
// ended so.
func (d defect) releasedBy(e end) bool {
	return d == closeIsRelease && (e.how == endEOF || e.how == endReset)
}

// releasesUntold tells whether a grant that is not told is released; cancelled says
// that nobody waits for it.
func (d defect) releasesUntold(cancelled bool) bool {
	if cancelled {
		return d != releaseDiesWithCall
	}
	return d.releasesLate()
}

// asksAgain is after which part of the wait an acquire that is not answered is sent
// once more; it is false if it never is.
func (d defect) asksAgain(k *call) (time.Duration, bool) { return k.budget / 2, d == statusQuery }

// renews is after which part of the lease the acquire is sent once more.
func (d defect) renews(k *call) (time.Duration, bool) { return k.lease / 2, d == renewByResend }

// linger waits a while longer for the answer to x. It is false if there is none.
func (s *session) linger(x *exchange, e end) (answer, bool) {
	d := s.c.defect.lingers(x, e)
	if d == 0 {
		return answer{}, false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case a := <-x.answer:
		return a, true
	case <-timer.C:
		return answer{}, false
	}
}

// forget drops x. An answer that came first is given all the same.
func (s *session) forget(x *exchange, e end) answer {
	s.unregister(x)
	select {
	case a := <-x.answer:
		return a
	default:
		return answer{end: e}
	}
}

// closeOthers ends all sessions of the client.
func (c *client) closeOthers(e end) {
	c.mu.Lock()
	open := append([]*session(nil), c.open...)
	c.mu.Unlock()
	for _, s := range open {
		s.close(e)
	}
}

// repeat sends the acquire of k on s once more after a time, unless the session ends or
// stop is called before. What the copy is granted is given back.
func (c *client) repeat(s *session, k call, after time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(c.root)
	run := func() {
		defer cancel()
		if !sleep(ctx, time.Now().Add(after)) {
			return
		}
		x := newExchange(acquireAnswers, k.owner, k.key)
		b, err := c.acquireFrame(&k, 1)
		if err != nil || !s.takeTurn(ctx) {
			return
		}
		if s.register(x) {
			s.write(c.root, b)
		}
		s.endTurn()
		select {
		case a := <-x.answer:
			if a.op == 'A' {
				c.releaseLater(c.grant(s, &k, a.token))
			}
		case <-c.root.Done():
		}
	}
	if !c.start(run) {
		cancel()
	}
	return cancel
}
