package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

// stays plays an application that goes in with a grant and comes out after a time.
func stays(t *testing.T, d string, table bool, inside time.Duration) *script {
	s := newScript(t, d)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 2*sec).pass(s.req(1, "k1", 5, 2, 77))
	if table {
		s.granted(1, "k1", 7, 2*sec)
	}
	return s.pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7).wait(inside).leave(1, "k1", 7)
}

func TestNoOverstay(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		for _, table := range []bool{false, true} {
			p := Policy{Dialect: d, SawTable: table, Witnessed: true, Only: map[string]bool{"no-overstay": true}}
			s := stays(t, d, table, 4*sec)
			s.want(p, "no-overstay hygiene")
			s.add(history.Event{Kind: history.RanLate})
			s.want(p, "no-overstay hygiene suspect")

			s = stays(t, d, table, sec)
			wantChecked(t, s.want(p), "no-overstay", true)
			s = stays(t, d, table, 2*sec+900*msec) // its word may have been under way
			wantChecked(t, s.want(p), "no-overstay", true)

			s = stays(t, d, table, 4*sec) // the tool's own application
			p.Witnessed = false
			wantChecked(t, s.want(p), "no-overstay", false)
			p.Witnessed = true

			s.ev = s.ev[:len(s.ev)-1] // nothing was heard of the exit
			wantChecked(t, s.want(p), "no-overstay", false)
			s.add(history.Event{Kind: history.CaseEnding})
			s.want(p, "no-overstay hygiene suspect")
		}
	})
	s := stays(t, v1, false, 4*sec)
	p := Policy{Dialect: v1, Witnessed: true, Only: map[string]bool{"no-overstay": true}}
	first(t, s.want(p, "no-overstay hygiene"), `the application was inside for call 1 on key "k1", with token 7, from 18.000 ms to 4019.000 ms, although its lease of 2s had ended by 2014.000 ms at the latest`)
	s = newScript(t, v1).ask(1, "c1", "k1", 5*sec, 2*sec) // whose A nobody has seen
	s.acquired(1, "k1", 7).wait(9*sec).leave(1, "k1", 7)
	wantChecked(t, s.want(p), "no-overstay", false)
}
