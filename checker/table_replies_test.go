package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

func TestNoGrantAfterTimeoutOrBusy(t *testing.T) {
	const rule = "no-grant-after-timeout-or-busy"
	found := []string{rule + " contract"}
	ask := func(s *script, owner uint64) *script { return s.pass(s.req(1, "k1", 5, 30, owner)) }
	var plays []play
	for _, d := range []string{v1, v0} {
		plays = append(plays, []play{
			{"granted after T", d, func(s *script) { ask(s, 7).pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k1", 7, 3)) }, found, true},
			{"both refused, then granted", d, func(s *script) {
				ask(ask(s, 7), 7).pass(s.answer(1, "T", "k1", 7)).pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k1", 7, 3))
			}, found, true},
			{"a second T before the grant", d, func(s *script) {
				ask(s, 7).pass(s.answer(1, "T", "k1", 7)).pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k1", 7, 3))
			}, found, true},
			{"refused", d, func(s *script) { ask(s, 7).pass(s.answer(1, "T", "k1", 7)) }, nil, true},
			{"granted", d, func(s *script) { ask(s, 7).pass(s.got(1, "k1", 7, 3)) }, nil, false},
			{"one refused, one granted", d, func(s *script) {
				ask(ask(s, 7), 7).pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k1", 7, 3))
			}, nil, true},
			{"granted twice, one refused", d, func(s *script) {
				ask(ask(s, 7), 7).pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k1", 7, 3)).pass(s.got(1, "k1", 7, 4))
			}, nil, true},
			{"asked again", d, func(s *script) { ask(ask(s, 7).pass(s.answer(1, "T", "k1", 7)), 7).pass(s.got(1, "k1", 7, 3)) }, nil, true},
			{"on another session", d, func(s *script) { ask(s, 7).pass(s.answer(1, "T", "k1", 7)).pass(s.got(2, "k1", 7, 3)) }, nil, true},
			{"another key", d, func(s *script) { ask(s, 7).pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k2", 7, 3)) }, nil, true},
			{"written by us", d, func(s *script) {
				ask(s, 7).pass(s.answer(1, "T", "k1", 7)).write(s.withData(s.got(1, "k1", 7, 3)))
			}, nil, true},
			{"something unread was forwarded", d, func(s *script) {
				ask(s, 7).pass(s.answer(1, "T", "k1", 7)).unread(1, "A", 14).pass(s.got(1, "k1", 7, 3))
			}, nil, true},
		}...)
	}
	runPlays(t, rule, false, append(plays,
		play{"granted after B", v1, func(s *script) { ask(s, 7).pass(s.answer(1, "B", "k1", 7)).pass(s.got(1, "k1", 7, 3)) }, found, true},
		play{"another owner's", v1, func(s *script) { ask(ask(s, 7), 8).pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k1", 8, 3)) }, nil, true},
	))
}

func TestRepeatIsNewAttempt(t *testing.T) {
	const rule = "repeat-is-new-attempt"
	found := []string{rule + " contract"}
	ask := func(s *script, session int, owner uint64) *script {
		return s.pass(s.req(session, "k1", 5, 30, owner))
	}
	runPlays(t, rule, false, []play{
		{"the active token", v1, func(s *script) {
			ask(ask(s, 1, 7).pass(s.got(1, "k1", 7, 3)), 1, 7).pass(s.got(1, "k1", 7, 3))
		}, found, true},
		{"the active token, on another session", v1, func(s *script) {
			ask(ask(s, 1, 7).pass(s.got(1, "k1", 7, 3)), 2, 7).pass(s.got(2, "k1", 7, 3))
		}, found, true},
		{"at once", v1, func(s *script) {
			ask(ask(s, 1, 7), 1, 7).pass(s.got(1, "k1", 7, 3)).pass(s.got(1, "k1", 7, 3))
		}, found, true},
		{"one attempt, answered twice", v1, func(s *script) { ask(s, 1, 7).pass(s.got(1, "k1", 7, 3)).pass(s.got(1, "k1", 7, 3)) }, nil, false},
		{"refused", v1, func(s *script) {
			ask(ask(s, 1, 7).pass(s.got(1, "k1", 7, 3)), 1, 7).pass(s.answer(1, "T", "k1", 7))
		}, nil, true},
		{"granted anew", v1, func(s *script) {
			ask(ask(s, 1, 7).pass(s.got(1, "k1", 7, 3)), 1, 7).pass(s.got(1, "k1", 7, 4))
		}, nil, true},
		{"another owner", v1, func(s *script) {
			ask(ask(s, 1, 7).pass(s.got(1, "k1", 7, 3)), 1, 8).pass(s.got(1, "k1", 8, 3))
		}, nil, false},
		{"another key", v1, func(s *script) {
			ask(s, 1, 7).pass(s.got(1, "k1", 7, 3)).pass(s.req(1, "k2", 5, 30, 7)).pass(s.got(1, "k2", 7, 3))
		}, nil, false},
		{"doubled by us on the way back", v1, func(s *script) {
			a := s.got(1, "k1", 7, 3)
			ask(ask(s, 1, 7).pass(a).write(a, 0, len(a.b)), 1, 7).pass(s.answer(1, "T", "k1", 7))
		}, nil, true},
		{"an older dialect has no owners", v0, func(s *script) {
			ask(ask(s, 1, 0).pass(s.got(1, "k1", 0, 3)), 1, 0).pass(s.got(1, "k1", 0, 3))
		}, nil, false},
	})
}

func TestReleaseNeedsExactToken(t *testing.T) {
	const rule = "release-needs-exact-token"
	found, suspect := []string{rule + " safety"}, []string{rule + " safety suspect"}
	held := func(s *script) *script { return s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 3)) }
	waits := func(s *script) *script { return s.pass(s.req(2, "k1", 9, 30, 8)) }
	wrong := func(s *script, op string) *script { return s.pass(s.rel(2, "k1", 9)).pass(s.answer(2, op, "k1", 9)) }
	runPlays(t, rule, false, []play{
		{"the next is granted", v1, func(s *script) { wrong(waits(held(s)), "R").pass(s.got(2, "k1", 8, 4)) }, found, true},
		{"the next is granted first", v1, func(s *script) {
			waits(held(s)).pass(s.rel(2, "k1", 9)).pass(s.got(2, "k1", 8, 4)).pass(s.answer(2, "R", "k1", 9))
		}, found, true},
		{"nobody is granted", v1, func(s *script) { wrong(held(s), "R") }, suspect, true},
		{"not held", v1, func(s *script) { wrong(held(s), "N") }, nil, true},
		{"the lease may be over", v1, func(s *script) {
			wrong(waits(held(s)).wait(30*sec-50*time.Millisecond), "R").pass(s.got(2, "k1", 8, 4))
		}, nil, false},
		{"the next is granted when the lease is over", v1, func(s *script) {
			wrong(waits(held(s)), "R").wait(30 * sec).pass(s.got(2, "k1", 8, 4))
		}, suspect, true},
		{"released exactly before", v1, func(s *script) {
			wrong(waits(held(s)).pass(s.rel(1, "k1", 3)), "R").pass(s.got(2, "k1", 8, 4))
		}, nil, false},
		{"released exactly behind it", v1, func(s *script) {
			wrong(waits(held(s)), "R").pass(s.rel(1, "k1", 3)).pass(s.got(2, "k1", 8, 4))
		}, suspect, true},
		{"granted only later", v1, func(s *script) {
			r := s.pass(s.rel(2, "k1", 9))
			held(r).pass(s.answer(2, "R", "k1", 9))
		}, nil, false},
		{"another key", v1, func(s *script) { held(s).pass(s.rel(2, "k2", 9)).pass(s.answer(2, "R", "k2", 9)) }, nil, false},
		{"never asked", v1, func(s *script) { held(s).pass(s.answer(2, "R", "k1", 9)) }, nil, false},
		{"an older dialect releases by key", v0, func(s *script) { wrong(held(s), "R").pass(s.got(2, "k1", 0, 4)) }, nil, false},
	})
	runPlays(t, rule, true, []play{
		{"ended by a wrong one", v1, func(s *script) { s.granted(1, "k1", 3, 30*sec).pass(s.rel(2, "k1", 9)).ended(2, "k1", 3) }, found, true},
		{"ended by none", v1, func(s *script) { s.granted(1, "k1", 3, 30*sec).ended(2, "k1", 3) }, found, true},
		{"ended by the token of another key", v1, func(s *script) {
			s.granted(1, "k1", 3, 30*sec).pass(s.rel(2, "k2", 3)).ended(2, "k1", 3)
		}, found, true},
		{"ended before its R was whole", v1, func(s *script) {
			r := s.rel(2, "k1", 3)
			s.granted(1, "k1", 3, 30*sec).cut(r, len(r.b)-1).ended(2, "k1", 3).write(r, len(r.b)-1, len(r.b))
		}, found, true},
		{"ended exactly, on another session", v1, func(s *script) { s.granted(1, "k1", 3, 30*sec).pass(s.rel(2, "k1", 3)).ended(2, "k1", 3) }, nil, true},
		{"the lease ended", v1, func(s *script) { s.granted(1, "k1", 3, 30*sec).ended(0, "k1", 3) }, nil, false},
		{"the tool ended it", v1, func(s *script) {
			s.granted(0, "k1", 3, 30*sec).add(history.Event{Kind: history.GrantEnded, Key: "k1", Token: 3, How: history.Released})
		}, nil, false},
		{"something unread was forwarded", v1, func(s *script) { s.granted(1, "k1", 3, 30*sec).unread(2, "R", 12).ended(2, "k1", 3) }, nil, false},
		{"an older dialect releases by key", v0, func(s *script) { s.granted(1, "k1", 3, 30*sec).pass(s.rel(2, "k1", 9)).ended(2, "k1", 3) }, nil, false},
	})
}
