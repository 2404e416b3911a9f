package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

// later lets the history go on for a while.
func (s *script) later(d time.Duration) *script {
	return s.wait(d).event(history.CallStarted, 1, "")
}

// ackedAll says that the client's kernel acknowledged all that was written on a session.
func (s *script) ackedAll(session int) *script {
	return s.add(history.Event{Kind: history.Acked, Session: session, Dir: s2c, N: 1 << 20, Total: 1 << 20})
}

func TestUnmatchedReleased(t *testing.T) {
	s := foreignGrant(t).granted1().later(6 * sec)
	r := s.want(s.straying(), "unmatched-released contract")
	const message = `client c1 never sent an R with token 99, which it had read in s2c.A.1 on session 1, a grant that answers nothing it had sent (call 1 was told acquired by s2c.A.2 behind it); ` +
		`it had a working session until 5022.000 ms, 5000.000 ms later`
	if f := r.Findings[0]; f.Message != message || f.Evidence.Frame != "s2c.A.1" || f.Evidence.Session != 1 {
		t.Errorf("%+v", f)
	}
	s.pass(s.rel(1, "k1", 99)) // late, and yet it was sent
	wantChecked(t, s.want(s.straying()), "unmatched-released", true)

	t.Run("of another key", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		s.stray(s.got(1, "k9", 77, 99)).granted1().later(6 * sec)
		s.want(s.straying(), "unmatched-released contract")
	})
	t.Run("the table knows its lease", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		s.granted(0, "k9", 99, 8*sec).stray(s.got(1, "k9", 77, 99)).granted1().wait(8*sec).ended(0, "k9", 99).later(sec)
		s.want(s.straying(), "unmatched-released contract")
	})
	t.Run("a new session works later", func(t *testing.T) {
		s := foreignGrant(t)
		s.seen(1, "fin").ackedAll(1).told(1, indet).wait(3*sec).open(2, "c1").later(6 * sec)
		r := s.want(s.straying(), "unmatched-released contract")
		if f := r.Findings[0]; !strings.Contains(f.Message, "(the client closed session 1 on it)") {
			t.Error(f.Message)
		}
	})
	t.Run("v0", func(t *testing.T) {
		s := waiting(t, v0, 9*sec)
		s.stray(s.got(1, "k9", 0, 99)).granted1().later(6 * sec)
		wantChecked(t, s.want(s.straying()), "unmatched-released", false)
	})
}

func TestUnmatchedReleasedAcquittals(t *testing.T) {
	play := func(name string, checked bool, f func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := foreignGrant(t)
			f(s)
			wantChecked(t, s.want(s.straying()), "unmatched-released", checked)
		})
	}
	play("released on another session", true, func(s *script) { s.seen(1, "fin").open(2, "c1").pass(s.rel(2, "k1", 99)).later(6 * sec) })
	play("released on the same session", true, func(s *script) { s.pass(s.rel(1, "k1", 99)).seen(1, "fin").later(6 * sec) })
	play("released before the proof", true, func(s *script) { s.pass(s.rel(1, "k1", 99)).granted1().later(6 * sec) })
	play("released in part", false, func(s *script) { s.granted1().later(6*sec).recv(s.rel(1, "k1", 99), 0, 6) })
	play("no proof that it was read", false, func(s *script) { s.told(1, indet).later(6 * sec) })
	play("under 5 s", false, func(s *script) { s.granted1().later(4 * sec) })
	play("the session ends", false, func(s *script) { s.granted1().wait(4*sec).seen(1, "fin").later(6 * sec) })
	play("the session is cut", false, func(s *script) { s.granted1().sent(1, "rst").later(6 * sec) })
	play("no session for long enough", false, func(s *script) {
		s.granted1().wait(3*sec).seen(1, "fin").open(2, "c1").wait(4*sec).seen(2, "fin").later(sec)
	})
	play("asked to close", false, func(s *script) { s.granted1().wait(sec).event(history.CloseAsked, 0, "c1").later(6 * sec) })
	play("the case is over", false, func(s *script) { s.granted1().wait(4*sec).event(history.CaseEnding, 0, "").later(2 * sec) })
	play("ran late", false, func(s *script) { s.granted1().event(history.RanLate, 0, "").later(6 * sec) })
	play("not alive", false, func(s *script) { s.granted1().event(history.CallOverdue, 1, "").later(6 * sec) })
	play("unread bytes", false, func(s *script) { s.granted1().write(s.got(1, "k1", 77, 7), 0, 20).later(6 * sec) })
	for _, fault := range []string{"refuse", "truncate-silence", "hold", "drop", "accept-rst"} {
		play("fault "+fault, false, func(s *script) {
			s.granted1().add(history.Event{Kind: history.Fired, Session: 3, Dir: s2c, Fault: fault}).later(6 * sec)
		})
	}
	play("told to a call", false, func(s *script) { s.acquired(1, "k1", 99).later(6 * sec) }) // for match-triple
	for name, lease := range map[string]func(s *script) *script{
		"its lease goes on":    func(s *script) *script { return s.granted1().later(20 * sec) },
		"its lease was ended":  func(s *script) *script { return s.granted1().ended(3, "k9", 99).later(20 * sec) },
		"its lease just ended": func(s *script) *script { return s.granted1().wait(8*sec).ended(0, "k9", 99) },
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			s.granted(0, "k9", 99, 8*sec).stray(s.got(1, "k9", 77, 99))
			r := Check(lease(s).ev, s.straying())
			if name != "its lease just ended" && len(r.Findings) > 0 {
				t.Error(r.Findings[0].Message)
			}
		})
	}
	t.Run("nobody pings", func(t *testing.T) {
		s := foreignGrant(t).granted1().later(6 * sec)
		p := s.straying()
		p.NoPong = true
		s.want(p)
	})
}

// That a client left for the frame is proved by its FIN alone, and only where nothing
// else can have been the reason.
func TestLeftFor(t *testing.T) {
	over := func(s *script) *script { return s.told(1, indet).open(2, "c1").later(6 * sec) }
	play := func(name string, f func(s *script) *script) {
		t.Run(name, func(t *testing.T) {
			s := foreignGrant(t)
			over(f(s))
			s.want(s.straying())
		})
	}
	s := foreignGrant(t)
	over(s.seen(1, "fin").ackedAll(1))
	s.want(s.straying(), "unmatched-released contract")
	play("an RST", func(s *script) *script { return s.seen(1, "rst").ackedAll(1) }) // P4
	play("a FIN, and an RST behind it", func(s *script) *script { return s.seen(1, "fin").seen(1, "rst").ackedAll(1) })
	play("not acknowledged", func(s *script) *script { return s.seen(1, "fin") }) // P3
	play("much later", func(s *script) *script { return s.wait(2*sec).seen(1, "fin").ackedAll(1) })
	play("cut before", func(s *script) *script { return s.sent(1, "fin").seen(1, "fin").ackedAll(1) })
	play("cancelled", func(s *script) *script { return s.event(history.CancelAsked, 1, "").seen(1, "fin").ackedAll(1) })
	play("an error behind it", func(s *script) *script {
		return s.stray(s.line(1, s2c, "E", "not_active")).seen(1, "fin").ackedAll(1)
	})
	play("an answer behind it", func(s *script) *script {
		return s.stray(s.got(1, "k1", 77, 7)).seen(1, "fin").ackedAll(1)
	})
	play("another stray one", func(s *script) *script {
		return s.stray(s.answer(1, "T", "k1", 78)).seen(1, "fin").ackedAll(1)
	})
	t.Run("the call was over", func(t *testing.T) { // the session may have been closed for that
		s := waiting(t, v1, 9*sec)
		s.told(1, indet).stray(s.got(1, "k1", 78, 99)).seen(1, "fin").ackedAll(1)
		over(s)
		s.want(s.straying())
	})
	t.Run("at the deadline", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		s.wait(8900*time.Millisecond).stray(s.got(1, "k1", 78, 99)).wait(sec/8).seen(1, "fin").ackedAll(1)
		over(s)
		s.want(s.straying())
	})
}

// twice plays a grant that is delivered once more, while its call has the lock.
func twice(t *testing.T) *script {
	s, a := single(t, v1, 7)
	return s.pass(a).acquired(1, "k1", 7).stray(s.got(1, "k1", 77, 7))
}

func TestDuplicateReleased(t *testing.T) {
	s := twice(t)
	s.seen(1, "fin").open(2, "c1").pass(s.rel(2, "k1", 7))
	r := s.want(s.straying(), "unmatched-released contract")
	const message = `client c1 sent c2s.R.1 on session 2 with token 7, which call 1 on key "k1" had been told and was not asked to release, after s2c.A.2 had carried it once more`
	if f := r.Findings[0]; f.Message != message || f.Evidence.Call != 1 || f.Evidence.Frame != "c2s.R.1" {
		t.Errorf("%+v", f)
	}
	for name, play := range map[string]func(s *script){
		"no R for it": func(s *script) { s.seen(1, "fin").later(40 * sec) }, // "Never a finding" 4
		"the application released": func(s *script) {
			s.seen(1, "fin").open(2, "c1").leave(1, "k1", 7).ask2release(1).pass(s.rel(2, "k1", 7))
		},
		"after the lease": func(s *script) { s.seen(1, "fin").open(2, "c1").wait(30 * sec).pass(s.rel(2, "k1", 7)) },
		"cancelled": func(s *script) {
			s.seen(1, "fin").open(2, "c1").event(history.CancelAsked, 1, "").pass(s.rel(2, "k1", 7))
		},
		"closing": func(s *script) {
			s.seen(1, "fin").open(2, "c1").event(history.CloseAsked, 0, "c1").pass(s.rel(2, "k1", 7))
		},
		"without its token":  func(s *script) { s.seen(1, "fin").open(2, "c1").recv(s.rel(2, "k1", 7), 0, 8) },
		"with another token": func(s *script) { s.seen(1, "fin").open(2, "c1").pass(s.rel(2, "k1", 6)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := twice(t)
			play(s)
			wantChecked(t, s.want(s.straying()), "unmatched-released", true)
		})
	}
	t.Run("before it came twice", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).pass(s.rel(1, "k1", 7)).stray(s.got(1, "k1", 77, 7))
		s.want(s.straying())
	})
	t.Run("before it was told", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).stray(s.got(1, "k1", 77, 7)).pass(s.rel(1, "k1", 7)).acquired(1, "k1", 7)
		s.want(s.straying())
	})
}
