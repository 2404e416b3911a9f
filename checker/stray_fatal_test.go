package checker

import (
	"math"
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

// raw writes bytes of our own making to a client, in two parts.
func (s *script) raw(session int, b string) *script {
	s.made++
	ref := history.FrameRef{Dir: s2c, Op: b[:1], Seq: math.MaxUint64 - s.made}
	for _, part := range [][2]int{{0, len(b) / 2}, {len(b) / 2, len(b)}} {
		e := history.Event{
			Kind: history.WriteBegun, Session: session, Dir: s2c, Frame: &ref,
			Off: part[0], N: part[1] - part[0], Data: []byte(b[part[0]:part[1]]),
		}
		s.add(e)
		e.Kind = history.WriteAccepted
		s.add(e)
	}
	return s
}

const eight = "\x00\x00\x00\x00\x00\x00\x00\x63"

// breaches are frames that a client cannot read, or must not survive.
var breaches = map[string]string{
	"an unknown op":       "Zunknown\n",
	"an unknown byte":     "\x00\n",
	"a key with a space":  "A" + eight + eight + "k1 x\n",
	"no UTF-8":            "A" + eight + eight + "k1\xff\n",
	"an empty key":        "T" + eight + "\n",
	"a long key":          "T" + eight + strings.Repeat("k", 129) + "\n",
	"an error":            "Ebad_frame\n",
	"an error of no word": "E\n",
}

var overlongFrame = "A" + eight + eight + strings.Repeat("x", 600) + "\n"

func TestUnknownFatal(t *testing.T) {
	for name, b := range breaches {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			s.raw(1, b).granted1()
			s.want(s.straying(), "unknown-fatal safety")

			s = waiting(t, v1, 9*sec)
			s.raw(1, b).stray(s.answer(1, "T", "k1", 77)).told(1, "timeout").later(2 * sec)
			s.want(s.straying(), "unknown-fatal contract")

			s = waiting(t, v1, 9*sec)
			s.raw(1, b).seen(1, "rst").told(1, indet)
			wantChecked(t, s.want(s.straying()), "unknown-fatal", true)
		})
	}
	s := waiting(t, v1, 9*sec)
	r := s.raw(1, "Zunknown\n").granted1().want(s.straying(), "unknown-fatal safety")
	const message = `call 1 on key "k1" was told acquired (token 7) by s2c.A.1 on session 1, behind a frame there that is of the unknown op 'Z'`
	if f := r.Findings[0]; f.Message != message || f.Evidence.Frame != "s2c.Z.0" || f.Evidence.Call != 1 {
		t.Errorf("%+v", f)
	}
	for b, what := range map[string]string{"Ebad_frame\n": `the error "bad_frame"`, "T" + eight + "\n": "malformed"} {
		s := waiting(t, v1, 9*sec)
		if r := s.raw(1, b).granted1().want(s.straying(), "unknown-fatal safety"); !strings.HasSuffix(r.Findings[0].Message, "a frame there that is "+what) {
			t.Error(r.Findings[0].Message)
		}
	}
	t.Run("the answer to a release", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7)).raw(1, "Zunknown\n")
		s.pass(s.answer(1, "R", "k1", 7)).released(1, "released").later(2 * sec)
		r := s.want(s.straying(), "unknown-fatal contract")
		if m := r.Findings[0].Message; !strings.HasPrefix(m, `the release of call 1 on key "k1" was told released by s2c.R.1 on session 1, behind `) {
			t.Error(m)
		}
	})
	t.Run("a grant weighs more than a timeout", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		s.raw(1, "Zunknown\n").stray(s.answer(1, "T", "k1", 77)).told(1, "timeout")
		s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).pass(s.got(1, "k2", 78, 9)).acquired(2, "k2", 9)
		s.want(s.straying(), "unknown-fatal safety")
	})
	t.Run("v0", func(t *testing.T) {
		s := waiting(t, v0, 9*sec)
		s.raw(1, "Zunknown\n").granted1()
		s.want(s.straying(), "unknown-fatal safety")
		s = waiting(t, v0, 9*sec)
		s.raw(1, "Zunknown\n").stray(s.answer(1, "T", "k1", 0)).told(1, "timeout").later(2 * sec)
		s.want(s.straying(), "unknown-fatal hygiene")
	})
}

func TestUnknownFatalAcquittals(t *testing.T) {
	play := func(name string, checked bool, f func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			f(s)
			wantChecked(t, s.want(s.straying()), "unknown-fatal", checked)
		})
	}
	const z = "Zunknown\n"
	play("sent on in ignorance", true, func(s *script) { // P6
		s.raw(1, z).ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).wait(sec/4).seen(1, "fin").told(1, indet)
	})
	play("granted before it", false, func(s *script) { s.granted1().raw(1, z) })
	play("told before the grant", false, func(s *script) { // for no-entry-unconfirmed
		s.raw(1, z)
		m := s.got(1, "k1", 77, 7)
		s.acquired(1, "k1", 7).pass(m)
	})
	play("the token came on another session too", false, func(s *script) {
		s.raw(1, z).open(2, "c1").stray(s.got(2, "k1", 77, 7)).granted1()
	})
	play("and behind garbage there", false, func(s *script) {
		s.raw(1, z).open(2, "c1").raw(2, z).stray(s.got(2, "k1", 77, 7)).granted1()
	})
	play("not whole", false, func(s *script) { s.raw(1, z[:8]).acquired(1, "k1", 7) })
	play("a listed error", false, func(s *script) { s.raw(1, "Enot_active\n").granted1() })
	play("a notice", false, func(s *script) { s.raw(1, "L\n").granted1() })
	play("unrecorded bytes", false, func(s *script) {
		s.raw(1, z)
		m := s.got(1, "k1", 77, 7)
		m.ref.Seq += 1000
		s.write(m, 0, len(m.b)).acquired(1, "k1", 7)
	})
	timedOut := func(s *script) *script { return s.raw(1, z).stray(s.answer(1, "T", "k1", 77)) }
	play("a T at the deadline", false, func(s *script) { timedOut(s.wait(9*sec)).told(1, "timeout").later(2 * sec) })
	play("a T long after", false, func(s *script) { timedOut(s).wait(2*sec).told(1, "timeout").later(2 * sec) })
	play("cancelled", false, func(s *script) { timedOut(s).event(history.CancelAsked, 1, "").told(1, "timeout").later(2 * sec) })
	play("closed behind it", true, func(s *script) { timedOut(s).told(1, "timeout").seen(1, "fin") })
	play("closed before it", true, func(s *script) { timedOut(s).seen(1, "fin").told(1, "timeout") })
	play("cut", false, func(s *script) { timedOut(s).sent(1, "rst").told(1, "timeout").later(2 * sec) })
	play("closing", false, func(s *script) { timedOut(s).event(history.CloseAsked, 0, "c1").told(1, "timeout").seen(1, "fin") })
	play("ran late", false, func(s *script) { timedOut(s).event(history.RanLate, 0, "").told(1, "timeout").later(2 * sec) })
	play("another word", false, func(s *script) { timedOut(s).told(1, "busy").later(2 * sec) })
	play("another owner", false, func(s *script) { // for match-triple, if the frame before it had not come
		s.raw(1, z).stray(s.answer(1, "T", "k1", 78)).told(1, "timeout").later(2 * sec)
	})
	play("a T before it", false, func(s *script) {
		s.stray(s.answer(1, "T", "k1", 77))
		timedOut(s).told(1, "timeout").later(2 * sec)
	})
	t.Run("a T, then closed at the end", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		timedOut(s).told(1, "timeout").event(history.CloseAsked, 0, "c1").seen(1, "fin")
		s.want(s.straying(), "unknown-fatal contract")
	})
	t.Run("released elsewhere", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7)).raw(1, z).pass(s.answer(1, "R", "k1", 7))
		s.open(2, "c1").pass(s.rel(2, "k1", 7)).pass(s.answer(2, "R", "k1", 7)).released(1, "released").later(2 * sec)
		s.want(s.straying())
	})
	t.Run("a greeting that cannot be read", func(t *testing.T) {
		s := newScript(t, v1)
		s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"}).raw(1, strings.Repeat("g", 300)+"\n")
		wantChecked(t, s.want(s.straying()), "unknown-fatal", false)
	})
}

func TestFramingCloses(t *testing.T) {
	s := waiting(t, v1, 9*sec)
	s.raw(1, overlongFrame).stray(s.answer(1, "T", "k1", 77)).told(1, "timeout").later(2 * sec)
	r := s.want(s.straying(), "framing-closes contract")
	const message = `call 1 on key "k1" was told timeout by s2c.T.1 on session 1, behind a frame there that is over the limit of its text`
	if f := r.Findings[0]; f.Message != message || f.Evidence.Offset != len(overlongFrame) {
		t.Errorf("%+v", f)
	}
	s = waiting(t, v1, 9*sec)
	s.raw(1, overlongFrame).granted1()
	s.want(s.straying(), "framing-closes contract")
	s = waiting(t, v1, 9*sec) // in one write with the answer
	s.raw(1, overlongFrame+string(s.answer(1, "T", "k1", 77).b)).told(1, "timeout").later(2 * sec)
	s.want(s.straying(), "framing-closes contract")
	s = waiting(t, v0, 9*sec)
	s.raw(1, overlongFrame).granted1()
	s.want(s.straying(), "framing-closes hygiene")

	for name, c := range map[string]struct {
		play    func(s *script)
		checked bool
	}{
		"closed with a FIN":  {func(s *script) { s.raw(1, overlongFrame).seen(1, "fin").told(1, indet) }, true},
		"closed with an RST": {func(s *script) { s.raw(1, overlongFrame[:400]).seen(1, "rst").told(1, indet) }, true},
		"at the limit":       {func(s *script) { s.raw(1, overlongFrame[:17+192]).seen(1, "rst").told(1, indet) }, false},
		"under way":          {func(s *script) { s.raw(1, overlongFrame[:100]).wait(time.Second).told(1, indet) }, false},
		"in ignorance": {func(s *script) { // P6
			s.raw(1, overlongFrame).ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).seen(1, "fin")
		}, true},
		"nobody read on": {func(s *script) { s.raw(1, overlongFrame).pass(s.got(1, "k1", 77, 7)).told(1, indet) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			c.play(s)
			wantChecked(t, s.want(s.straying()), "framing-closes", c.checked)
		})
	}
}
