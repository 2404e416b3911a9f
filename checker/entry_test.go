package checker

import (
	"strings"
	"testing"

	"tornwire/history"
)

func both(t *testing.T, f func(t *testing.T, dialect string)) {
	for _, d := range []string{v1, v0} {
		t.Run(d, func(t *testing.T) { f(t, d) })
	}
}

// finish plays the rest of a right exchange after the A came.
func finish(s *script, token uint64) *script {
	s.acquired(1, "k1", token).leave(1, "k1", token).ask2release(1)
	s.pass(s.rel(1, "k1", token)).ended(1, "k1", token)
	return s.pass(s.answer(1, "R", "k1", token)).released(1, "released")
}

func TestRightExchangeIsSafe(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, 7)
		finish(s.pass(a), 7)
		r := s.want(s.policy())
		if r.Verdict() != Safe {
			t.Errorf("verdict %s", r.Verdict())
		}
		wantChecked(t, r, "no-entry-unconfirmed", true)
		wantChecked(t, r, "exact-token", true)
		wantChecked(t, r, "one-attempt", true)
		wantChecked(t, r, "settles", true)
		wantChecked(t, r, "no-resend", d == v1)
		wantChecked(t, r, "echo-matches", d == v1)
		for _, id := range []string{"no-partial-frame", "header-by-count", "release-own", "indeterminate-stays", "entry-after-lease", "mutual-exclusion"} {
			wantChecked(t, r, id, false)
		}
	})
}

// Every offset of the A: told acquired on k bytes of it is unsafe for k < n, and
// never for k = n. This is the mutation that matters most.
func TestEntryAtEveryOffset(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		_, probe := single(t, d, 7)
		for k := range len(probe.b) + 1 {
			s, a := single(t, d, 7)
			s.cut(a, k).acquired(1, "k1", 7)
			switch k {
			case len(a.b):
				s.want(s.policy())
			case 0:
				s.want(s.policy(), "no-entry-unconfirmed safety", "indeterminate-stays safety")
			default:
				r := s.want(s.policy(), "no-entry-unconfirmed safety", "indeterminate-stays safety", "no-partial-frame safety")
				f := r.Findings[1]
				if f.Rule != "no-partial-frame" || f.Evidence.Offset != k || f.Evidence.Delivered != [2]int{0, k} || f.Evidence.Frame != "s2c.A.1" {
					t.Errorf("evidence %+v", f.Evidence)
				}
			}
		}
	})
}

func TestPartialFrameMessage(t *testing.T) {
	s := newScript(t, v1)
	s.open(1, "c1").ask(2, "c1", "k2", 5*sec, 30*sec)
	s.pass(s.req(1, "k2", 5, 30, 77)).granted(1, "k2", 7, 30*sec)
	a := s.got(1, "k2", 77, 7)
	s.cut(a, len(a.b)-1).acquired(2, "k2", 7)
	s.add(history.Event{Kind: history.Acked, Session: 1, Dir: s2c, N: 13 + 5, Total: 13 + len(a.b) - 1})
	r := s.want(Policy{Dialect: v1, SawTable: true, Only: map[string]bool{"no-partial-frame": true}}, "no-partial-frame safety")
	const message = `call 2 on key "k2" was told acquired (token 7) although only 19 of 20 bytes of s2c.A.1 had been delivered`
	f := r.Findings[0]
	if f.Message != message {
		t.Errorf("message %q", f.Message)
	}
	if f.Evidence.Delivered != [2]int{5, 19} || f.Evidence.ServerState != "held by call 2 of client c1, token 7, since 14.000 ms" {
		t.Errorf("evidence %+v", f.Evidence)
	}
	if len(r.Checked) != 1 {
		t.Errorf("checked %v", r.Checked)
	}
}

// P9: what counts is that the write of the last byte had begun, not that our
// kernel had taken it.
func TestEntryBetweenBegunAndAccepted(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, 7)
		n := len(a.b)
		s.recv(a, 0, n).bytes(history.WriteBegun, a, 0, n)
		s.acquired(1, "k1", 7)
		s.bytes(history.WriteAccepted, a, 0, n)
		s.want(s.policy())

		s, a = single(t, d, 7)
		s.recv(a, 0, n).acquired(1, "k1", 7).write(a, 0, n)
		s.want(s.policy(), "no-entry-unconfirmed safety")
	})
}

// A short write begins the same bytes again: the first time stands.
func TestBegunAgainAfterShortWrite(t *testing.T) {
	s, a := single(t, v1, 7)
	n := len(a.b)
	s.recv(a, 0, n).bytes(history.WriteBegun, a, 0, n).bytes(history.WriteAccepted, a, 0, 4)
	s.acquired(1, "k1", 7)
	s.bytes(history.WriteBegun, a, 4, n).bytes(history.WriteAccepted, a, 4, n)
	s.want(s.policy())
}

func TestSplitFrameIsJudged(t *testing.T) {
	s, a := single(t, v1, 7)
	n := len(a.b)
	s.recv(a, 0, n).write(a, 0, n-1).write(a, n-1, n).acquired(1, "k1", 7)
	wantChecked(t, s.want(s.policy()), "no-partial-frame", true)
}

// The A must be on the session that carried the request, with the request's owner
// and key, after the request.
func TestEntryOnAnothersReply(t *testing.T) {
	for name, reply := range map[string]func(s *script) msg{
		"owner":   func(s *script) msg { return s.got(1, "k1", 78, 7) },
		"key":     func(s *script) msg { return s.got(1, "k2", 77, 7) },
		"session": func(s *script) msg { return s.got(2, "k1", 77, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1)
			s.open(1, "c1").open(2, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
			s.pass(s.req(1, "k1", 5, 30, 77))
			s.write(s.withData(reply(s))).acquired(1, "k1", 7)
			findings := []string{"no-entry-unconfirmed safety", "indeterminate-stays safety"}
			if name != "session" {
				findings = append(findings, "match-triple safety")
			}
			s.want(s.policy(), findings...)
		})
	}
	t.Run("before the request", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.got(1, "k1", 0, 7))
		s.pass(s.req(1, "k1", 5, 30, 0)).acquired(1, "k1", 7)
		s.want(s.policy(), "no-entry-unconfirmed safety", "indeterminate-stays safety")
	})
}

// withData records a frame of our own making: it was never received, so the write
// says what it was.
func (s *script) withData(m msg) (msg, int, int) {
	m.ref.Seq += 1000
	s.add(history.Event{Kind: history.WriteBegun, Session: m.session, Dir: m.ref.Dir, Frame: &m.ref, N: len(m.b), Data: m.b})
	return m, 0, len(m.b)
}

func TestInjectedReplyConfirms(t *testing.T) {
	s := newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 77))
	s.write(s.withData(s.got(1, "k1", 77, 7))).acquired(1, "k1", 7)
	s.want(s.policy())
}

// Bytes that could not be read may have been anything: not judged.
func TestUnreadBytesAccuseNobody(t *testing.T) {
	t.Run("unknown reply", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 77))
		s.write(s.got(1, "k1", 77, 7), 0, 20).acquired(1, "k1", 7)
		r := s.want(s.policy())
		wantChecked(t, r, "no-entry-unconfirmed", false)
		wantChecked(t, r, "indeterminate-stays", false)
	})
	t.Run("opaque", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 77))
		s.add(history.Event{Kind: history.WriteBegun, Session: 1, Dir: s2c, Frame: &history.FrameRef{Dir: s2c}, N: 40})
		s.acquired(1, "k1", 7)
		s.want(s.policy())
	})
	t.Run("corrupted", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.add(history.Event{Kind: history.Fired, Session: 1, Dir: s2c, Frame: &a.ref, Fault: "corrupt"})
		s.pass(a).acquired(1, "k1", 6)
		s.want(s.policy())
	})
	t.Run("nobody's session", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7)
		s.ev[0].Client = ""
		s.want(s.policy())
	})
}

func TestOneReplyConfirmsOneCall(t *testing.T) {
	s := newScript(t, v0)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 0)).pass(s.req(1, "k1", 5, 30, 0)).granted(1, "k1", 7, 30*sec)
	s.pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7).acquired(2, "k1", 7)
	r := s.want(s.policy(), "no-entry-unconfirmed safety")
	if f := r.Findings[0]; f.Evidence.Call != 2 || !strings.Contains(f.Message, "another call's") {
		t.Errorf("%+v", f)
	}
}

// In v0 an A on the session of a resent request belongs to the resent attempt: the
// entry is confirmed, the resend is what was wrong.
func TestV0ReplyToTheResentAttempt(t *testing.T) {
	s := newScript(t, v0)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 0)).sent(1, "rst").open(2, "c1")
	s.pass(s.req(2, "k1", 5, 30, 0)).granted(2, "k1", 7, 30*sec)
	s.pass(s.got(2, "k1", 0, 7)).acquired(1, "k1", 7)
	s.want(s.policy(), "one-attempt contract")
}

func TestIndeterminateStays(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		for outcome, findings := range map[string][]string{
			indet: nil, "error": nil,
			"timeout":  {"indeterminate-stays contract"},
			"busy":     {"indeterminate-stays contract"},
			"unsent":   {"indeterminate-stays contract"},
			"not_held": {"indeterminate-stays contract"},
			acq:        {"indeterminate-stays safety", "no-entry-unconfirmed safety"},
		} {
			for _, received := range []int{1, 12} {
				s := newScript(t, d)
				s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
				s.recv(s.req(1, "k1", 5, 30, 77), 0, min(received, 8)).sent(1, "fin").told(1, outcome)
				wantChecked(t, s.want(s.policy(), findings...), "indeterminate-stays", true)
			}
			// P1, and "Never a finding" 2 and 10: nothing came.
			s := newScript(t, d)
			s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).sent(1, "fin").wait(9*sec).told(1, outcome)
			if outcome == acq {
				s.want(s.policy(), "no-entry-unconfirmed safety")
			} else {
				wantChecked(t, s.want(s.policy()), "indeterminate-stays", false)
			}
		}
	})
}

// The T is for the second attempt: nobody knows what became of the first, to which the
// server had granted the key.
func TestIndeterminateStaysTwoAttempts(t *testing.T) {
	play := func(outcome string, answered, twice bool) *script {
		s := newScript(t, v0)
		s.open(1, "c1").open(2, "c1").ask(1, "c1", "k1", sec, 30*sec)
		if twice {
			s.ask(2, "c1", "k1", sec, 30*sec)
		}
		s.pass(s.req(1, "k1", 1, 30, 0)).granted(1, "k1", 7, 30*sec)
		a := s.got(1, "k1", 0, 7)
		n := len(a.b) - 1
		if answered {
			n++
		}
		s.cut(a, n).sent(1, "fin")
		return s.pass(s.req(2, "k1", 1, 30, 0)).wait(sec).pass(s.answer(2, "T", "k1", 0)).told(1, outcome)
	}
	r := play("timeout", false, false).want(Policy{Dialect: v0, SawTable: true}, "indeterminate-stays contract", "one-attempt contract")
	for _, f := range r.Findings {
		if want := "of c2s.A.1 had been received from the client and no complete A, T or B for it was ever delivered " +
			"(s2c.T.1 on session 2 answers another attempt); the server had granted it token 7"; f.Rule == "indeterminate-stays" && !strings.Contains(f.Message, want) {
			t.Error(f.Message)
		}
	}
	p := Policy{Dialect: v0, SawTable: true, Only: map[string]bool{"indeterminate-stays": true}}
	play("error", false, false).want(p)
	play("timeout", true, false).want(p)
	play("timeout", false, true).want(p) // the second may be another call's
}

func TestIndeterminateStaysAcquittals(t *testing.T) {
	t.Run("final response", func(t *testing.T) {
		for _, op := range []string{"T", "B"} {
			s := newScript(t, v1)
			s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
			s.pass(s.req(1, "k1", 5, 30, 77)).pass(s.answer(1, op, "k1", 77)).wait(5*sec).told(1, "timeout")
			s.want(s.policy())
		}
	})
	t.Run("minus its newline", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 77))
		m := s.answer(1, "T", "k1", 77)
		s.cut(m, len(m.b)-1).told(1, "timeout")
		s.want(s.policy(), "indeterminate-stays contract")
	})
	t.Run("moved", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 77)).pass(s.line(1, s2c, "M", "127.0.0.1:1")).told(1, "busy")
		s.want(s.policy(), "indeterminate-stays contract", "moved-uncorrelated safety")
	})
	t.Run("whose request", func(t *testing.T) {
		// Two calls on one key run: the byte may be the other's.
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k1", 5*sec, 30*sec)
		s.recv(s.req(1, "k1", 5, 30, 77), 0, 9).sent(1, "fin").told(1, indet).told(2, "unsent")
		r := s.want(s.policy())
		wantChecked(t, r, "indeterminate-stays", false)
	})
	t.Run("by lease", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k1", 5*sec, 20*sec)
		s.recv(s.req(1, "k1", 5, 20, 77), 0, 9).sent(1, "fin").told(1, "unsent").told(2, "unsent")
		s.want(s.policy(), "indeterminate-stays contract")
	})
	t.Run("undeclared word", func(t *testing.T) {
		// P15: error where indeterminate cannot be said is not judged; another
		// definite word is a finding, declared or not.
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 77)).sent(1, "fin").told(1, "error")
		p := s.policy()
		wantChecked(t, s.want(p), "indeterminate-stays", true)
		p.Outcomes = []string{acq, "timeout", "error"}
		wantChecked(t, s.want(p), "indeterminate-stays", false)
		s.ev[len(s.ev)-1].Outcome = "busy"
		s.want(p, "indeterminate-stays contract")
	})
}

func TestSettles(t *testing.T) {
	s := newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 77)).wait(10 * sec)
	wantChecked(t, s.want(s.policy()), "settles", false)
	s.add(history.Event{Kind: history.CallOverdue, Call: 1})
	if r := s.want(s.policy(), "settles hygiene"); r.Verdict() != NonStrict {
		t.Errorf("verdict %s", r.Verdict())
	}
	s.told(1, "error")
	s.want(s.policy(), "settles hygiene")

	s = newScript(t, v1)
	s.ask(1, "c1", "k1", 5*sec, 30*sec).add(history.Event{Kind: history.RanLate}).add(history.Event{Kind: history.CallOverdue, Call: 1})
	s.want(s.policy(), "settles hygiene suspect")

	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).ask2release(1) // a release without a result
	s.want(s.policy())
}
