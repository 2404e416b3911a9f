package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

const registeredRule = "register-first"

// TestRegisterFirst plays one call that is answered at once.
func TestRegisterFirst(t *testing.T) {
	found := []string{registeredRule + " contract"}
	for _, d := range []string{v1, v0} {
		for _, c := range []struct {
			name    string
			play    func(s *script)
			want    []string
			checked bool
		}{
			{"taken", func(s *script) { s.early(50, 2*sec).acquired(1, "k1", 9) }, nil, true},
			{"closed", func(s *script) { s.early(50, 2*sec).seen(1, history.FIN).told(1, indet) }, found, true},
			{"closed, an error told", func(s *script) { s.early(50, 2*sec).seen(1, history.FIN).told(1, history.OutcomeError) }, found, true},
			{"closed with RST, unread for all we know", func(s *script) { s.early(50, 2*sec).seen(1, history.RST).told(1, indet) }, nil, false},
			{"closed before the answer was there", func(s *script) {
				s.ask(1, "c1", "k1", 2*sec, 30*sec).pass(s.req(1, "k1", 2, 30, 7)).seen(1, history.FIN).pass(s.got(1, "k1", 7, 9)).told(1, indet)
			}, nil, false},
			{"told, then closed", func(s *script) { s.early(50, 2*sec).told(1, indet).seen(1, history.FIN) }, found, true},
			{"hangs", func(s *script) { s.early(50, 5*sec).wait(4*sec).told(1, indet) }, found, true},
			{"never ends", func(s *script) {
				s.early(50, 5*sec).wait(9 * sec).add(history.Event{Kind: history.CallOverdue, Call: 1})
			}, found, true},
			{"hangs, unread for all we know", func(s *script) { s.early(0, 5*sec).wait(4*sec).told(1, indet) }, nil, false},
			{"the deadline was near", func(s *script) { s.early(50, sec).seen(1, history.FIN).told(1, indet) }, nil, false},
			{"the tool was late", func(s *script) {
				s.early(50, 2*sec).seen(1, history.FIN).told(1, indet).add(history.Event{Kind: history.RanLate, N: 700})
			}, nil, false},
			{"stopped meanwhile", func(s *script) {
				s.add(history.Event{Kind: history.Frozen}).early(50, 5*sec).wait(4*sec).told(1, indet)
			}, nil, false},
			{"cancelled", func(s *script) {
				s.early(50, 2*sec).add(history.Event{Kind: history.CancelAsked, Call: 1}).seen(1, history.FIN).told(1, indet)
			}, nil, false},
			{"asked to close", func(s *script) {
				s.early(50, 2*sec).add(history.Event{Kind: history.CloseAsked, Client: "c1"}).seen(1, history.FIN).told(1, indet)
			}, nil, false},
			{"we closed first", func(s *script) { s.early(50, 2*sec).sent(1, history.FIN).seen(1, history.FIN).told(1, indet) }, nil, false},
			{"another call was running", func(s *script) {
				s.ask(2, "c1", "k2", sec, 30*sec).early(50, 2*sec).seen(1, history.FIN).told(1, indet).told(2, indet)
			}, nil, false},
			{"a fault acted", func(s *script) {
				s.add(history.Event{Kind: history.Fired, Session: 1, Fault: "delay"}).early(50, 2*sec).seen(1, history.FIN).told(1, indet)
			}, nil, false},
			{"after a notice", func(s *script) {
				s.pass(s.line(1, s2c, "M", "a:1")).early(50, 2*sec).seen(1, history.FIN).told(1, indet)
			}, nil, false},
			{"after a stray", func(s *script) { s.pass(s.got(1, "k9", 5, 3)).early(50, 2*sec).seen(1, history.FIN).told(1, indet) }, nil, false},
			{"a release was unanswered", func(s *script) { s.pass(s.rel(1, "k0", 3)).early(50, 2*sec).seen(1, history.FIN).told(1, indet) }, nil, false},
			{"closed long after", func(s *script) { s.early(0, 9*sec).wait(3*sec).seen(1, history.FIN).told(1, indet) }, nil, false},
			{"a definite word", func(s *script) { s.early(50, 2*sec).told(1, history.OutcomeTimeout) }, nil, false},
			{"answered late", func(s *script) {
				s.ask(1, "c1", "k1", 2*sec, 30*sec).pass(s.req(1, "k1", 2, 30, 7)).wait(promptly)
				s.pass(s.got(1, "k1", 7, 9)).seen(1, history.FIN).told(1, indet)
			}, nil, false},
			{"another's answer", func(s *script) {
				s.ask(1, "c1", "k1", 2*sec, 30*sec).pass(s.req(1, "k1", 2, 30, 7)).pass(s.got(1, "k2", 8, 9)).seen(1, history.FIN).told(1, indet)
			}, nil, false},
		} {
			t.Run(d+"/"+c.name, func(t *testing.T) {
				s := newScript(t, d)
				c.play(s.open(1, "c1"))
				wantChecked(t, s.want(judged(s, registeredRule, true), c.want...), registeredRule, c.checked)
			})
		}
	}
}

// TestRegisterFirstNamesTheToken: who releases a token has read it.
func TestRegisterFirstNamesTheToken(t *testing.T) {
	s := newScript(t, v1).open(1, "c1").open(2, "c1").early(50, 2*sec).seen(1, history.RST)
	s.pass(s.rel(2, "k1", 9)).told(1, indet)
	s.want(judged(s, registeredRule, true), registeredRule+" contract")
}

// early plays a call that is answered a millisecond after its request; acked bytes of
// all that was written are then acknowledged, if the answer is to be.
func (s *script) early(acked int, wait time.Duration) *script {
	s.ask(1, "c1", "k1", wait, 30*sec).pass(s.req(1, "k1", uint64(wait/sec), 30, 7)).pass(s.got(1, "k1", 7, 9))
	return s.add(history.Event{Kind: history.Acked, Session: 1, Dir: s2c, N: acked, Total: acked})
}
