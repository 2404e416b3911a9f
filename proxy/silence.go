package proxy

import (
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// beginWrite tells whether a link may write, and notes that it does. Whoever
// silences the link waits for endWrite, so that no byte is delivered, nor a
// delivery recorded, once a link is silent.
func (s *session) beginWrite(l *link) bool {
	if l.writes.CompareAndSwap(0, writing) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.awaitWrite(l)
		if l.writes.Load()&noWrites != 0 {
			return false
		}
		if l.writes.CompareAndSwap(0, writing) {
			return true
		}
	}
}

func (s *session) endWrite(l *link, gone bool) {
	if !gone && l.writes.CompareAndSwap(writing, 0) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone {
		l.writes.Or(noWrites)
	}
	l.writes.And(^(writing | awaited))
	s.written.Broadcast()
}

// awaitWrite returns when no write is under way. The mutex is held, which a writer
// that is awaited needs.
func (s *session) awaitWrite(l *link) {
	for {
		w := l.writes.Load()
		if w&writing == 0 {
			return
		}
		if l.writes.CompareAndSwap(w, w|awaited) {
			s.written.Wait()
		}
	}
}

// hush makes a link silent; the mutex is held. A write that is under way is
// broken off, and has ended when it returns. Writes are forbidden before anybody who
// waits for the silence is woken, because he may have one at hand.
func (s *session) hush(l *link) {
	if !l.silent {
		l.silent = true
		under := l.writes.Or(noWrites)&writing != 0
		close(l.quiet)
		if f := l.flow.Load(); f != nil {
			f.pipe.Abandon()
		}
		if under {
			_ = l.dst.SetWriteDeadline(time.Unix(1, 0)) // it fails only on a closed connection
		}
	}
	s.awaitWrite(l)
}

// silence makes both links silent.
func (s *session) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		s.hush(l)
	}
}

func (l *link) isSilent() bool {
	select {
	case <-l.quiet:
		return true
	default:
		return false
	}
}

// fire records that a fault acts. It is false if the link is silent: nothing is
// left to act on.
func (l *link) fire(f firing) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.silent {
		return false
	}
	l.recordFired(f)
	return true
}

// cut ends the flow of bytes. The other direction is silenced before the last
// bytes in this one are written, so that no reply to them slips through.
func (l *link) cut(it item) {
	st, s := it.step, l.s
	if !l.cutting(func() {
		if st.Other {
			s.hush(l.other())
		}
	}) {
		return
	}
	l.writeCut(it)
	if f := l.flow.Load(); f != nil {
		l.drained(f)
	}
	if !l.cutting(func() {
		if st.This {
			s.hush(l)
		}
		l.recordFired(it.fire)
	}) {
		return
	}
	if st.Client == faults.NoEnd || st.Server == faults.NoEnd {
		s.mute(it.fire.rule)
	}
	end := func(dir frames.Direction, how faults.End) {
		if how != faults.RST { // before a reset it is recorded anyway
			s.links[dir].recordAcked()
		}
		if how != faults.NoEnd {
			s.end(dir, string(how), history.CauseFault)
		}
	}
	ends := func() {
		end(frames.ServerToClient, st.Client)
		end(frames.ClientToServer, st.Server)
	}
	if st.For == 0 {
		ends()
		return
	}
	s.wg.Go(func() {
		if s.outlasts(st.For) {
			ends()
		}
	})
}

// mute has the session last no longer than a rule: a peer was left without an end,
// and bytes are lost that no disarming brings back, so then it is reset.
func (s *session) mute(r *armed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muter != nil {
		return
	}
	s.muter, s.over = r, make(chan struct{})
	s.muted.Go(func() {
		select {
		case <-r.gone:
			s.unmute()
		case <-s.over:
		}
	})
}

// unmute resets both connections of a session whose rule has gone.
func (s *session) unmute() {
	s.silence()
	for _, l := range s.links {
		s.end(l.dir, history.RST, history.CauseTeardown)
	}
}

// unmuted is closed when the rule has gone that muted the session.
func (s *session) unmuted() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muter == nil {
		return nil
	}
	return s.muter.gone
}

// outlasts waits; it is false if the proxy ends the session before.
func (s *session) outlasts(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.torn:
		return false
	}
}

// cutting does a part of a cut under the mutex, unless the link was silenced by
// another: of two cuts that meet, one acts.
func (l *link) cutting(do func()) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.silent {
		return false
	}
	do()
	return true
}

func (l *link) recordFired(f firing) {
	if !f.first {
		return
	}
	l.p.acted(f.rule, history.Event{Session: l.s.id, Dir: l.dir, Frame: &f.frame, Off: f.off, Draw: f.draw})
}

// acted tells that a rule's fault acts.
func (p *Proxy) acted(r *armed, e history.Event) {
	e.Kind, e.Rule, e.Fault = history.Fired, r.ID, r.Fault.ID
	r.fired.Add(1)
	p.observe(e)
	if r.Signal != "" {
		p.signal(r.Signal)
	}
}
