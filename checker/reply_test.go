package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// judged is a policy under which one rule alone is judged, with the table or
// without.
func judged(s *script, rule string, table bool) Policy {
	return Policy{Dialect: s.g.Name, SawTable: table, Only: map[string]bool{rule: true}}
}

// play is a history that a test tells, what it must give, and whether the rule was
// judged in it.
type play struct {
	name    string
	dialect string
	tell    func(s *script)
	want    []string
	checked bool
}

func runPlays(t *testing.T, rule string, table bool, plays []play) {
	for _, c := range plays {
		t.Run(strings.ReplaceAll(c.name, " ", "_")+"/"+c.dialect, func(t *testing.T) {
			s := newScript(t, c.dialect)
			c.tell(s.open(1, "c1").open(2, "c2"))
			wantChecked(t, s.want(judged(s, rule, table), c.want...), rule, c.checked)
		})
	}
}

func (s *script) sided(k history.Kind, session int, side history.Side, how string) *script {
	return s.add(history.Event{Kind: k, Session: session, Side: side, How: how})
}

// unread forwards n bytes that the record does not say.
func (s *script) unread(session int, op string, n int) *script {
	m := s.line(session, c2s, "A", "k", make([]uint64, len(s.g.MustShape(c2s, "A").Fields))...)
	m.ref.Op = op
	return s.add(history.Event{Kind: history.WriteBegun, Session: session, Dir: c2s, Frame: &m.ref, N: n})
}

func TestOneReplyPerAttempt(t *testing.T) {
	found := []string{"one-reply-per-attempt contract"}
	ask := func(s *script, owner uint64) *script { return s.pass(s.req(1, "k1", 5, 30, owner)) }
	runPlays(t, "one-reply-per-attempt", false, []play{
		{"a second T", v1, func(s *script) {
			ask(s, 7).pass(s.answer(1, "T", "k1", 7)).pass(s.answer(1, "T", "k1", 7))
		}, found, true},
		{"a grant after a T", v0, func(s *script) {
			ask(s, 0).pass(s.answer(1, "T", "k1", 0)).pass(s.got(1, "k1", 0, 3))
		}, found, true},
		{"a B after a grant, cut on its way", v1, func(s *script) {
			ask(s, 7).cut(s.got(1, "k1", 7, 3), 4).cut(s.answer(1, "B", "k1", 7), 0)
		}, found, true},
		{"a third in order", v1, func(s *script) {
			ask(ask(s, 7), 7).pass(s.got(1, "k1", 7, 3)).pass(s.answer(1, "T", "k1", 7)).pass(s.answer(1, "T", "k1", 7))
		}, found, true},
		{"the next attempt comes too late", v0, func(s *script) {
			ask(s, 0).pass(s.got(1, "k1", 0, 3)).pass(s.got(1, "k1", 0, 3))
			ask(s, 0).pass(s.answer(1, "T", "k1", 0))
		}, found, true},
		{"one was cut by us", v1, func(s *script) {
			s.cut(s.req(1, "k1", 5, 30, 7), 13).pass(s.answer(1, "T", "k1", 7)).pass(s.answer(1, "T", "k1", 7))
		}, found, true},

		{"one each", v1, func(s *script) {
			ask(ask(s, 7), 8).pass(s.answer(1, "B", "k1", 8)).pass(s.got(1, "k1", 7, 3))
		}, nil, true},
		{"two attempts with one owner", v1, func(s *script) {
			ask(ask(s, 7), 7).pass(s.got(1, "k1", 7, 3)).pass(s.answer(1, "T", "k1", 7))
		}, nil, true},
		{"two keys with one owner", v1, func(s *script) {
			ask(s, 7).pass(s.req(1, "k2", 5, 30, 7)).pass(s.got(1, "k1", 7, 3)).pass(s.got(1, "k2", 7, 4))
		}, nil, true},
		{"doubled by us on the way there", v0, func(s *script) {
			r := s.req(1, "k1", 5, 30, 0)
			s.pass(r).write(r, 0, len(r.b)).pass(s.got(1, "k1", 0, 3)).pass(s.answer(1, "T", "k1", 0))
		}, nil, true},
		{"doubled by us on the way back", v1, func(s *script) {
			a := s.got(1, "k1", 7, 3)
			ask(s, 7).pass(a).write(a, 0, len(a.b))
		}, nil, true},
		{"made up by us", v1, func(s *script) {
			ask(s, 7).pass(s.got(1, "k1", 7, 3)).write(s.withData(s.answer(1, "T", "k1", 7)))
		}, nil, true},
		{"a second only begun", v1, func(s *script) {
			b := s.answer(1, "B", "k1", 7)
			ask(s, 7).pass(s.got(1, "k1", 7, 3)).recv(b, 0, len(b.b)-1)
		}, nil, true},
		{"released too", v1, func(s *script) {
			ask(s, 7).pass(s.got(1, "k1", 7, 3)).pass(s.rel(1, "k1", 3)).pass(s.answer(1, "R", "k1", 3)).pass(s.answer(1, "N", "k1", 3))
		}, nil, true},
		{"on another session", v1, func(s *script) {
			ask(s, 7).pass(s.got(1, "k1", 7, 3)).pass(s.answer(2, "T", "k1", 7))
		}, nil, true},
		{"asked only later", v1, func(s *script) { ask(s.pass(s.answer(1, "T", "k1", 7)), 7).pass(s.got(1, "k1", 7, 3)) }, nil, true},
		{"never asked", v1, func(s *script) { s.pass(s.answer(1, "T", "k1", 7)) }, nil, false},
		{"something unread was forwarded", v1, func(s *script) {
			ask(s, 7).pass(s.got(1, "k1", 7, 3)).unread(1, "A", 14).pass(s.answer(1, "T", "k1", 7))
		}, nil, true},
		{"what was forwarded makes no frame", v1, func(s *script) {
			ask(s, 7).pass(s.got(1, "k1", 7, 3)).unread(1, "", 14).pass(s.answer(1, "T", "k1", 7))
		}, nil, true},
		{"something unread that is no request", v1, func(s *script) {
			ask(s, 7).unread(1, frames.OpKeepAlive, 1).pass(s.got(1, "k1", 7, 3)).pass(s.answer(1, "T", "k1", 7))
		}, found, true},
	})
}

func TestOneReplyNamesItsCall(t *testing.T) {
	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).pass(s.answer(1, "T", "k1", 77))
	f := s.want(judged(s, "one-reply-per-attempt", true), "one-reply-per-attempt contract").Findings[0]
	want := `s2c.T.1 on session 1 answers c2s.A.1 a second time: for owner 77 and key "k1" there were only 1 attempt, all answered, the last by s2c.A.1`
	if f.Message != want || f.Evidence.Session != 1 || f.Evidence.Frame != "s2c.T.1" || f.Side != "server" {
		t.Errorf("%q %+v", f.Message, f.Evidence)
	}
	if !strings.Contains(strings.Join(f.Evidence.Timeline, "\n"), "call asked, call 1") {
		t.Error("the call is not told")
	}
}

// The T is received two milliseconds after the write of the request had begun,
// plus the pause.
func timedOut(dialect string, wait uint64, pause time.Duration) func(s *script) {
	return func(s *script) {
		s.pass(s.req(1, "k1", wait, 30, 7)).wait(pause - 2*time.Millisecond).pass(s.answer(1, "T", "k1", 7))
	}
}

func TestNoEarlyTimeout(t *testing.T) {
	found, suspect := []string{"no-early-timeout contract"}, []string{"no-early-timeout contract suspect"}
	type plays = []play
	for _, d := range []string{v1, v0} {
		runPlays(t, "no-early-timeout", false, plays{
			{"at once", d, timedOut(d, 5, 2*time.Millisecond), found, true},
			{"early", d, timedOut(d, 5, 4940*time.Millisecond), found, true},
			{"early by what clocks may differ", d, timedOut(d, 5, 4950*time.Millisecond), suspect, true},
			{"a hair early", d, timedOut(d, 5, 5*sec-1), suspect, true},
			{"on time", d, timedOut(d, 5, 5*sec), nil, true},
			{"late", d, timedOut(d, 5, time.Hour), nil, true},
			{"a long wait on a slower clock", d, timedOut(d, 250, 250*sec-290*time.Millisecond), suspect, true},
			{"a long wait", d, timedOut(d, 250, 249*sec), found, true},
			{"the last byte held back by us", d, func(s *script) {
				r := s.req(1, "k1", 5, 30, 7)
				s.cut(r, len(r.b)-1).wait(4*sec).write(r, len(r.b)-1, len(r.b)).wait(4 * sec).pass(s.answer(1, "T", "k1", 7))
			}, found, true},
			{"accepted late, begun in time", d, func(s *script) {
				r := s.req(1, "k1", 5, 30, 7)
				s.recv(r, 0, len(r.b)).bytes(history.WriteBegun, r, 0, len(r.b)).wait(5 * sec)
				s.bytes(history.WriteAccepted, r, 0, len(r.b)).pass(s.answer(1, "T", "k1", 7))
			}, nil, true},
			{"its end came later than its beginning", d, func(s *script) {
				a := s.answer(1, "T", "k1", 7)
				s.pass(s.req(1, "k1", 5, 30, 7)).wait(4*sec).recv(a, 0, 1).wait(2*sec).recv(a, 1, len(a.b))
			}, found, true},
			{"never whole", d, func(s *script) {
				r := s.req(1, "k1", 5, 30, 7)
				s.cut(r, len(r.b)-1).pass(s.answer(1, "T", "k1", 7))
			}, nil, true},
			{"another session's", d, func(s *script) {
				s.pass(s.req(1, "k1", 5, 30, 7)).wait(4 * sec).pass(s.answer(2, "T", "k1", 7))
			}, nil, false},
			{"made up by us", d, func(s *script) {
				s.pass(s.req(1, "k1", 5, 30, 7)).write(s.withData(s.answer(1, "T", "k1", 7)))
			}, nil, false},
			{"altered by us", d, func(s *script) {
				r := s.req(1, "k1", 5, 30, 7)
				s.recv(r, 0, len(r.b)).add(history.Event{Kind: history.Fired, Session: 1, Dir: c2s, Frame: &r.ref, Fault: "corrupt"})
				s.write(r, 0, len(r.b)).pass(s.answer(1, "T", "k1", 7))
			}, nil, false},
		})
	}
	runPlays(t, "no-early-timeout", false, plays{
		{"wait 0", v1, timedOut(v1, 0, 2*time.Millisecond), nil, true},
		{"wait 0 waits for ever", v0, timedOut(v0, 0, time.Hour), found, true},
		{"a repeated owner, the first one's", v1, func(s *script) {
			s.pass(s.req(1, "k1", 1, 30, 7)).pass(s.req(1, "k1", 9, 30, 7)).wait(sec).pass(s.answer(1, "T", "k1", 7))
		}, nil, true},
	})
}

// In v0 it is open which of several attempts a T answers, until none can be right.
func TestNoEarlyTimeoutAmongSeveral(t *testing.T) {
	found := []string{"no-early-timeout contract"}
	ask := func(s *script, wait uint64) *script { return s.pass(s.req(1, "k1", wait, 30, 0)) }
	timeout := func(s *script) *script { return s.pass(s.answer(1, "T", "k1", 0)) }
	grant := func(s *script) *script { return s.pass(s.got(1, "k1", 0, 3)) }
	runPlays(t, "no-early-timeout", false, []play{
		{"the shorter wait first", v0, func(s *script) { timeout(timeout(ask(ask(s, 9), 2).wait(2 * sec)).wait(7 * sec)) }, nil, true},
		{"both with the shorter", v0, func(s *script) { timeout(timeout(ask(ask(s, 9), 2).wait(2 * sec)).wait(sec)) }, found, true},
		{"the grant was the other's", v0, func(s *script) { grant(timeout(ask(ask(s, 2), 9).wait(3 * sec))) }, nil, true},
		{"the grant after both were over", v0, func(s *script) { timeout(grant(ask(ask(s, 1), 9).wait(3 * sec))) }, nil, true},
		{"the grant came first", v0, func(s *script) { timeout(grant(ask(ask(s, 2), 9)).wait(2 * sec)) }, nil, true},
		{"no wait is over", v0, func(s *script) { timeout(ask(ask(s, 5), 9).wait(3 * sec)) }, found, true},
		{"the first was answered before the second came", v0, func(s *script) {
			timeout(ask(grant(ask(s, 5)).wait(6*sec), 5).wait(sec))
		}, found, true},
		{"a second reply is none for this rule", v0, func(s *script) { timeout(timeout(ask(s, 2).wait(2 * sec))) }, nil, true},
		{"more than can be told apart", v0, func(s *script) {
			for range maxWindow + 1 {
				ask(s, 5)
			}
			timeout(s)
		}, nil, false},
		{"as many as can", v0, func(s *script) {
			for range maxWindow {
				ask(s, 5)
			}
			timeout(s)
		}, found, true},
	})
	s := newScript(t, v0)
	timeout(ask(ask(s.open(1, "c1"), 5), 9).wait(3 * sec))
	f := s.want(judged(s, "no-early-timeout", false), found...).Findings[0]
	if want := "s2c.T.1 on session 1 was received 3005.000 ms after the write of c2s.A.1 had begun, which asked for a wait of 5 s"; f.Message != want {
		t.Errorf("%q", f.Message)
	}
}
