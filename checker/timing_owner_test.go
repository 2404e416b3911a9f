package checker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

// owned plays two calls one after the other, with owner 77 and another.
func owned(t *testing.T, client2, key2 string, lease2 time.Duration, owner2 uint64, between func(s *script)) *script {
	s := newScript(t, v1)
	s.open(1, "c1").open(2, client2).ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77))
	if between != nil {
		between(s)
	}
	return s.ask(2, client2, key2, 5*sec, lease2).pass(s.req(2, key2, 5, uint64(lease2/sec), owner2))
}

func TestOwnerFresh(t *testing.T) {
	ended := func(s *script) { s.pass(s.answer(1, "T", "k1", 77)).told(1, "timeout") }
	for name, c := range map[string]struct {
		client2, key2  string
		lease2         time.Duration
		between        func(s *script)
		checked, alike bool
	}{
		"another key":            {"c1", "k2", 30 * sec, nil, true, true},
		"another lease":          {"c1", "k1", 20 * sec, nil, true, true},
		"another client":         {"c2", "k1", 30 * sec, nil, true, true},
		"after the first's end":  {"c1", "k1", 30 * sec, ended, true, true},
		"both running":           {"c1", "k1", 30 * sec, nil, false, false},
		"another key, ended too": {"c2", "k2", 20 * sec, ended, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, profile := range []string{ProfileAny, ProfileOfficial} {
				var want []string
				if c.alike {
					want = []string{"owner-fresh contract"}
				}
				s := owned(t, c.client2, c.key2, c.lease2, 77, c.between)
				p := s.timed()
				p.Profile = profile
				s.want(p, want...)
				s = owned(t, c.client2, c.key2, c.lease2, 78, c.between)
				wantChecked(t, s.want(p), "owner-fresh", c.checked)
			}
		})
	}
	s := owned(t, "c2", "k2", 30*sec, 77, nil)
	r := s.want(s.timed(), "owner-fresh contract")
	first(t, r, `call 2 of client c2 on key "k2" sent owner 77 in c2s.A.2, the owner that call 1 of client c1 on key "k1" had sent in c2s.A.1`)
	if e := r.Findings[0].Evidence; e.Call != 2 || e.Frame != "c2s.A.2" || !slices.ContainsFunc(e.Timeline, func(l string) bool { return strings.Contains(l, "call asked, call 1") }) {
		t.Errorf("%+v", e)
	}
}

func TestOwnerFreshAcquittals(t *testing.T) {
	t.Run("at every byte", func(t *testing.T) { // P2
		for n := range 15 {
			s := newScript(t, v1)
			s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77)).told(1, indet)
			s.wait(2*sec).ask(2, "c1", "k2", 5*sec, 30*sec).recv(s.req(1, "k2", 5, 30, 77), 0, n)
			if n < 11 {
				wantChecked(t, s.want(s.timed()), "owner-fresh", false)
			} else {
				s.want(s.timed(), "owner-fresh contract")
			}
		}
	})
	t.Run("a resend", func(t *testing.T) { // no-resend's
		s := resent(t, v1, 14, 77)
		wantChecked(t, s.want(s.timed()), "owner-fresh", false)
	})
	t.Run("a retry after an unsent try", func(t *testing.T) { // "Never a finding" 1
		s := resent(t, v1, 0, 77)
		s.want(s.timed())
	})
	t.Run("a resend next to the new call's own", func(t *testing.T) {
		play := func(last uint64) *script {
			s := newScript(t, v1)
			s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77)).told(1, indet)
			s.wait(2*sec).ask(2, "c1", "k1", 5*sec, 30*sec).open(2, "c1").pass(s.req(2, "k1", 5, 30, 77))
			return s.pass(s.req(2, "k1", 5, 30, last))
		}
		s := play(78)
		wantChecked(t, s.want(s.timed()), "owner-fresh", false)
		s = play(77)
		s.want(s.timed(), "owner-fresh contract", "owner-fresh contract")
	})
	t.Run("a resend with another lease", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77)).pass(s.req(1, "k1", 5, 20, 77))
		s.want(s.timed())
	})
	t.Run("the first ended after the second was asked for", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").open(2, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77))
		s.ask(2, "c1", "k1", 5*sec, 30*sec).told(1, indet).pass(s.req(2, "k1", 5, 30, 77))
		wantChecked(t, s.want(s.timed()), "owner-fresh", false)
	})
	t.Run("three calls", func(t *testing.T) { // the third is found once
		s := owned(t, "c1", "k2", 30*sec, 77, nil)
		s.ask(3, "c1", "k3", 5*sec, 30*sec).pass(s.req(1, "k3", 5, 30, 77))
		s.want(s.timed(), "owner-fresh contract", "owner-fresh contract")
	})
	t.Run("not started", func(t *testing.T) { // P13
		s := owned(t, "c2", "k2", 30*sec, 77, nil)
		i := slices.IndexFunc(s.ev, func(e history.Event) bool { return e.Kind == history.CallStarted })
		s.ev = slices.Delete(s.ev, i, i+1)
		wantChecked(t, s.want(s.timed()), "owner-fresh", false)
	})
	t.Run("without calls", func(t *testing.T) { // P13
		s := newScript(t, v1)
		s.open(1, "c1").pass(s.req(1, "k1", 5, 30, 77)).pass(s.req(1, "k2", 5, 30, 77))
		wantChecked(t, s.want(s.timed()), "owner-fresh", false)
	})
	t.Run("no owners", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 0))
		s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 0))
		wantChecked(t, s.want(s.timed()), "owner-fresh", false)
	})
	t.Run("after indeterminate", func(t *testing.T) { // "Never a finding" 9
		s := owned(t, "c1", "k1", 30*sec, 78, func(s *script) { s.told(1, indet) })
		wantChecked(t, s.want(s.timed()), "owner-fresh", true)
	})
}
