package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

func onlyRule(d string, ids ...string) Policy {
	p := Policy{Dialect: d, SawTable: true, Only: map[string]bool{}}
	for _, id := range ids {
		p.Only[id] = true
	}
	return p
}

// flushed plays a call that ended at its deadline while the nonce was held, and a second
// one for the key; then the nonce comes, and the client sends the first call's A, for which
// expired-unsent is there.
func flushed(t *testing.T, d string) *script {
	s := newScript(t, d)
	s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
	s.ask(1, "c1", "k1", sec, 30*sec).wait(sec).told(1, "timeout")
	s.wait(1500*time.Millisecond).ask(2, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.line(1, s2c, "greeting", "node-1 nonce")).pass(s.line(1, c2s, "auth", "digest"))
	return s.pass(s.req(1, "k1", 1, 30, 71))
}

// What a client sends for a call that has ended long ago is not held to the next one.
func TestFlushedRequestIsTheOldCalls(t *testing.T) {
	for _, d := range []string{v1, v0} {
		s := flushed(t, d).sent(1, "fin").seen(1, "fin").told(2, "unsent")
		s.want(onlyRule(d, "indeterminate-stays"))
		s = flushed(t, d)
		s.pass(s.req(1, "k1", 5, 30, 72)).wait(sec).told(2, indet)
		s.want(onlyRule(d, "one-attempt"))
		// A third one is one too many, whoever sent the first.
		s = flushed(t, d)
		s.pass(s.req(1, "k1", 5, 30, 72)).pass(s.req(1, "k1", 5, 30, 73)).wait(sec).told(2, indet)
		s.want(onlyRule(d, "one-attempt"), "one-attempt contract")
	}
}

// A release that its lease has made needless may be told without an R; the R that comes
// meanwhile is that of the other call.
func TestReleasedOtherIsTheOtherCalls(t *testing.T) {
	play := func(asked bool) *script {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).wait(31*sec).ended(0, "k1", 7)
		s.ask(2, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 78)).granted(1, "k1", 8, 30*sec)
		s.pass(s.got(1, "k1", 78, 8)).acquired(2, "k1", 8).ask2release(1)
		if asked {
			s.ask2release(2)
		}
		return s.pass(s.rel(1, "k1", 8)).ended(1, "k1", 8).pass(s.answer(1, "R", "k1", 8)).released(1, "not_held")
	}
	p := onlyRule(v1, "exact-token")
	play(true).want(p)
	play(false).want(p, "exact-token safety")
}

// A session that is closed because the client is asked to says nothing about the word.
func TestClosesAfterIsNotCheckedAtTheEnd(t *testing.T) {
	for _, c := range closing {
		s := newScript(t, v1).given("c1", "a:1", "b:1").openAt(1, "c1", "a:1").next(1, 1)
		s.pass(s.word(1, c.op, c.text)).wait(2*sec).told(1, indet)
		s.openAt(2, "c1", "b:1").next(2, 2).add(history.Event{Kind: history.CaseEnding}).add(history.Event{Kind: history.CloseAsked, Client: "c1"})
		wantChecked(t, s.seen(1, "fin").want(s.ofCluster()), c.rule, false)
	}
}
