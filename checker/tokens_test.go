package checker

import "testing"

func TestExactTokenTold(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, 7)
		s.pass(a).acquired(1, "k1", 1<<63|7)
		r := s.want(s.policy(), "exact-token safety")
		if m := r.Findings[0].Message; m != `call 1 on key "k1" was told acquired (token 9223372036854775815) although s2c.A.1 carried token 7` {
			t.Error(m)
		}
	})
	s, a := single(t, v1, 7)
	s.pass(a).told(1, acq) // no token was told
	wantChecked(t, s.want(s.policy()), "exact-token", false)
}

// An R may carry a token as soon as its eight bytes had begun to be written.
func TestExactTokenReleased(t *testing.T) {
	for n := range 21 {
		s, a := single(t, v1, 7)
		s.cut(a, n).told(1, indet).open(2, "c1").pass(s.rel(2, "k1", 7))
		if n < 1+8+8 {
			s.want(s.policy(), "exact-token safety")
		} else { // "Never a finding" 5 and 6
			s.want(s.policy())
		}
	}
}

func TestExactTokenOfPartialRelease(t *testing.T) {
	for n := 1; n < 12; n++ {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1)
		s.recv(s.rel(1, "k1", 77), 0, n) // the owner instead of the token
		if n < 9 {
			s.want(s.policy())
		} else {
			r := s.want(s.policy(), "exact-token safety")
			if r.Findings[0].Evidence.Call != 1 {
				t.Errorf("%+v", r.Findings[0].Evidence)
			}
		}
	}
}

func TestExactTokenOfAnotherClient(t *testing.T) {
	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).open(2, "c2").pass(s.rel(2, "k1", 7))
	s.want(s.policy(), "exact-token safety")
}

func TestExactTokenRepeats(t *testing.T) { // "Never a finding" 4
	s, a := single(t, v1, 7)
	finish(s.pass(a), 7)
	s.pass(s.rel(1, "k1", 7)).pass(s.answer(1, "N", "k1", 7)).released(1, "not_held")
	s.want(s.policy())
}

// A client that releases with the last token it knew, and is told done.
func TestExactTokenOfTheLastCall(t *testing.T) {
	s, a := single(t, v1, 7)
	finish(s.pass(a), 7).ask(2, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 78)).granted(1, "k1", 9, 30*sec).pass(s.got(1, "k1", 78, 9))
	s.acquired(2, "k1", 9).leave(2, "k1", 9).ask2release(2)
	s.pass(s.rel(1, "k1", 7)).pass(s.answer(1, "N", "k1", 7)).released(2, "not_held")
	s.want(s.policy(), "exact-token safety")
}

// Of a request the evidence says how much of it was passed on.
func TestEvidenceOfARequest(t *testing.T) {
	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).ask2release(1)
	s.cut(s.rel(1, "k1", 77), 5)
	r := s.want(s.policy(), "exact-token safety")
	if e := r.Findings[0].Evidence; e.Delivered != [2]int{0, 5} || e.Offset != 12 || e.FrameHex != "52000000000000004d6b310a" {
		t.Errorf("%+v", e)
	}
}

// The token must have begun to be written before it came back.
func TestExactTokenBeforeItsGrant(t *testing.T) {
	s, a := single(t, v1, 7)
	s.pass(s.rel(1, "k1", 7)).pass(a).told(1, indet)
	s.want(s.policy(), "exact-token safety")
}

// Where the record has a hole, what follows is not read as if it had none.
func TestHoleInTheRecord(t *testing.T) {
	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1)
	s.recv(s.rel(1, "k1", 7), 0, 5).pass(s.req(1, "k2", 5, 30, 78))
	s.want(s.policy())
}
