package checker

import (
	"slices"
	"testing"

	"tornwire/history"
)

// applicationOf is what the evidence of the first finding of a rule tells of the
// application.
func applicationOf(t *testing.T, s *script, p Policy, rule string) []string {
	t.Helper()
	p.Only = map[string]bool{rule: true}
	r := Check(s.ev, p)
	if len(r.Findings) == 0 {
		t.Fatalf("%s finds nothing", rule)
	}
	return r.Findings[0].Evidence.Application
}

func TestApplicationWithoutAGrant(t *testing.T) {
	const call = "call 1 of client c1 (token 7) entered at 17.000 ms without a grant: "
	play := func(grant func(s *script)) *script {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77))
		grant(s)
		s.at = 15 * msec
		return s.acquired(1, "k1", 7)
	}
	for name, c := range map[string]struct {
		grant func(s *script)
		want  []string
	}{
		"none":       {func(*script) {}, []string{call + "the server had granted no such token; the key was free"}},
		"another":    {func(s *script) { s.granted(1, "k1", 8, 30*sec) }, []string{call + "the server had granted no such token; the key was held by client c1, token 8, since 14.000 ms"}},
		"unseen":     {func(s *script) { s.granted(1, "k1", 7, 30*sec) }, []string{call + "the server had granted that token, but no whole A with it had been delivered"}},
		"the tool's": {func(s *script) { s.granted(0, "k1", 7, 30*sec) }, []string{call + "that token had been granted to the tool's own holder"}},
		"ended":      {func(s *script) { s.granted(1, "k1", 7, 30*sec).ended(0, "k1", 7) }, []string{call + "its lease had ended at 15.000 ms; the key was free"}},
		"released":   {func(s *script) { s.granted(1, "k1", 7, 30*sec).ended(1, "k1", 7) }, []string{call + "its grant had been released at 15.000 ms; the key was free"}},
	} {
		s := play(c.grant)
		if got := applicationOf(t, s, s.policy(), "no-entry-unconfirmed"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
		p := s.policy()
		p.SawTable = false // nothing is known of grants
		if got := applicationOf(t, s, p, "no-entry-unconfirmed"); len(got) > 0 {
			t.Errorf("%s, without a table: %q", name, got)
		}
	}
	s := newScript(t, v1) // it did not go in
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77))
	s.add(history.Event{Kind: history.CallResult, Call: 1, Outcome: acq, Token: 7, HasToken: true})
	if got := applicationOf(t, s, s.policy(), "no-entry-unconfirmed"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestApplicationOfTwo(t *testing.T) {
	play := func(refused bool, out func(s *script)) *script {
		s := newScript(t, v1)
		s.open(1, "c1").granted(0, "k1", 9, 30*sec)
		s.add(history.Event{Kind: history.Entered, Key: "k1", Token: 9, HasToken: true})
		s.add(history.Event{Kind: history.Entered, Key: "k2", Token: 9, HasToken: true})
		out(s)
		s.ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77)).acquired(1, "k1", 7)
		s.ev[len(s.ev)-1].Refused = refused
		return s.wait(20*msec).leave(1, "k1", 7)
	}
	stay := func(*script) {}
	both := "the tool's own holder (token 9) and call 1 of client c1 (token 7) were both inside from 18.000 ms on, for 21.000 ms"
	s := play(false, stay)
	if got := applicationOf(t, s, s.policy(), "no-entry-unconfirmed"); len(got) != 2 || got[1] != both {
		t.Errorf("%q", got)
	}
	s = play(true, stay)
	if got := applicationOf(t, s, s.policy(), "no-entry-unconfirmed"); len(got) != 2 || got[1] != both+"; a resource that checks tokens refuses token 7" {
		t.Errorf("%q", got)
	}
	s = play(false, stay) // on its way out
	s.ev[len(s.ev)-1].Refused = true
	if got := applicationOf(t, s, s.policy(), "no-entry-unconfirmed"); len(got) != 2 || got[1] != both+"; a resource that checks tokens refuses token 7" {
		t.Errorf("%q", got)
	}
	s = play(false, func(s *script) {
		s.add(history.Event{Kind: history.Left, Key: "k1", Token: 9, HasToken: true})
	})
	if got := applicationOf(t, s, s.policy(), "no-entry-unconfirmed"); len(got) != 1 {
		t.Errorf("one after the other: %q", got)
	}
}
