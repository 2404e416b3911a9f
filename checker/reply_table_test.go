package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

const zeroRule = "zero-never-queues"

// queuedZero plays c2 holding the key until pause after c1's attempt with wait 0
// was forwarded, and c1 granted then. With the table the events of the table are
// told, too.
func queuedZero(wait uint64, pause time.Duration, table bool) func(s *script) {
	return func(s *script) {
		s.pass(s.req(2, "k1", 5, 60, 8))
		if table {
			s.granted(2, "k1", 3, 60*sec)
		}
		s.pass(s.got(2, "k1", 8, 3)).pass(s.req(1, "k1", wait, 30, 7)).wait(pause).pass(s.rel(2, "k1", 3))
		if table {
			s.ended(2, "k1", 3)
		}
		s.pass(s.answer(2, "R", "k1", 3))
		if table {
			s.granted(1, "k1", 4, 30*sec)
		}
		s.pass(s.got(1, "k1", 7, 4))
	}
}

// crowd plays n attempts of one owner with wait 0 on a held key, and a grant of one
// of them when it is released.
func crowd(n int) func(s *script) {
	return func(s *script) {
		s.pass(s.req(2, "k1", 5, 60, 8)).granted(2, "k1", 3, 60*sec).pass(s.got(2, "k1", 8, 3))
		for range n {
			s.pass(s.req(1, "k1", 0, 30, 7))
		}
		s.wait(2*sec).pass(s.rel(2, "k1", 3)).ended(2, "k1", 3).pass(s.answer(2, "R", "k1", 3)).granted(1, "k1", 4, 30*sec).pass(s.got(1, "k1", 7, 4))
	}
}

func TestZeroNeverQueues(t *testing.T) {
	found := []string{zeroRule + " contract"}
	for _, table := range []bool{true, false} {
		runPlays(t, zeroRule, table, []play{
			{"queued", v1, queuedZero(0, sec, table), found, true},
			{"just released", v1, queuedZero(0, sec-20*time.Millisecond, table), nil, false},
			{"wait 1", v1, queuedZero(1, 2*sec, table), nil, false},
			{"v0 waits for ever", v0, queuedZero(0, 5*sec, table), nil, false},
			{"answered at once", v1, func(s *script) {
				s.granted(0, "k1", 1, 60*sec).pass(s.req(1, "k1", 0, 30, 7)).pass(s.answer(1, "T", "k1", 7))
			}, nil, true},
			{"busy", v1, func(s *script) { s.pass(s.req(1, "k1", 0, 30, 7)).pass(s.answer(1, "B", "k1", 7)) }, nil, true},
			{"the tool was late", v1, func(s *script) {
				queuedZero(0, 2*sec, table)(s)
				s.add(history.Event{Kind: history.RanLate, N: 700})
			}, nil, false},
			{"as many as can be told apart", v1, crowd(maxWindow), found, true},
			{"more than can be told apart", v1, crowd(maxWindow + 1), nil, false},
			{"a second attempt of the owner waits", v1, func(s *script) {
				s.pass(s.req(1, "k1", 9, 30, 7))
				queuedZero(0, 2*sec, table)(s)
			}, nil, false},
			{"the A was held back on the way", v1, func(s *script) {
				s.pass(s.req(1, "k1", 0, 30, 7)).granted(1, "k1", 4, 30*sec).wait(sec * 2)
				s.pass(s.rel(1, "k1", 4)).ended(1, "k1", 4).pass(s.got(1, "k1", 7, 4)).pass(s.answer(1, "R", "k1", 4))
			}, nil, false},
			{"unread", v1, func(s *script) {
				s.unread(1, "A", 14)
				queuedZero(0, 2*sec, table)(s)
			}, nil, false},
			{"held back by us", v1, func(s *script) {
				s.pass(s.req(2, "k1", 5, 60, 8)).granted(2, "k1", 3, 60*sec).pass(s.got(2, "k1", 8, 3))
				r := s.req(1, "k1", 0, 30, 7)
				s.cut(r, len(r.b)-1).wait(2*sec).pass(s.rel(2, "k1", 3)).ended(2, "k1", 3).pass(s.answer(2, "R", "k1", 3))
				s.write(r, len(r.b)-1, len(r.b)).granted(1, "k1", 4, 30*sec).pass(s.got(1, "k1", 7, 4))
			}, nil, false},
			{"accepted late", v1, func(s *script) {
				s.pass(s.req(2, "k1", 5, 60, 8)).granted(2, "k1", 3, 60*sec).pass(s.got(2, "k1", 8, 3))
				r := s.req(1, "k1", 0, 30, 7)
				s.recv(r, 0, len(r.b)).bytes(history.WriteBegun, r, 0, len(r.b)).wait(2*sec).bytes(history.WriteAccepted, r, 0, len(r.b))
				s.pass(s.rel(2, "k1", 3)).ended(2, "k1", 3).pass(s.answer(2, "R", "k1", 3)).granted(1, "k1", 4, 30*sec).wait(2 * sec).pass(s.got(1, "k1", 7, 4))
			}, nil, false},
		})
	}
	runPlays(t, zeroRule, true, []play{
		{"the lease ended", v1, func(s *script) {
			s.granted(0, "k1", 1, 2*sec).pass(s.req(1, "k1", 0, 30, 7)).wait(2*sec).ended(0, "k1", 1).granted(1, "k1", 4, 30*sec).pass(s.got(1, "k1", 7, 4))
		}, found, true},
		{"another key's lease ended", v1, func(s *script) {
			s.granted(0, "k2", 1, 2*sec).pass(s.req(1, "k1", 0, 30, 7)).wait(2*sec).ended(0, "k2", 1).granted(1, "k1", 4, 30*sec).pass(s.got(1, "k1", 7, 4))
		}, nil, false},
		{"granted before the other, delivered late", v1, func(s *script) {
			s.granted(0, "k1", 1, 9*sec).pass(s.req(1, "k1", 0, 30, 7)).granted(1, "k1", 4, 30*sec).wait(2*sec).ended(0, "k1", 1).pass(s.got(1, "k1", 7, 4))
		}, nil, false},
		{"held only later", v1, func(s *script) {
			s.pass(s.req(1, "k1", 0, 30, 7)).granted(0, "k1", 1, 2*sec).wait(2*sec).ended(0, "k1", 1).granted(1, "k1", 4, 30*sec).pass(s.got(1, "k1", 7, 4))
		}, nil, false},
	})
	runPlays(t, zeroRule, false, []play{
		{"the release was not answered", v1, func(s *script) {
			s.pass(s.req(2, "k1", 5, 1, 8)).pass(s.got(2, "k1", 8, 3)).pass(s.req(1, "k1", 0, 30, 7)).wait(2 * sec).pass(s.rel(2, "k1", 3))
			s.pass(s.answer(2, "N", "k1", 3)).pass(s.got(1, "k1", 7, 4))
		}, nil, false},
		{"an earlier release may have done it", v1, func(s *script) {
			s.pass(s.req(2, "k1", 5, 60, 8)).pass(s.got(2, "k1", 8, 3)).pass(s.req(1, "k1", 0, 30, 7)).pass(s.rel(2, "k1", 3)).wait(2 * sec)
			s.pass(s.rel(2, "k1", 3)).pass(s.answer(2, "R", "k1", 3)).pass(s.got(1, "k1", 7, 4))
		}, nil, false},
		{"something unread was forwarded elsewhere", v1, func(s *script) {
			s.open(3, "c3").unread(3, "R", 13)
			queuedZero(0, 2*sec, false)(s)
		}, nil, false},
		{"granted meanwhile, as far as is known", v1, func(s *script) {
			s.pass(s.req(2, "k1", 5, 60, 8)).pass(s.req(1, "k1", 0, 30, 7)).pass(s.got(2, "k1", 8, 3)).wait(2 * sec).pass(s.rel(2, "k1", 3))
			s.pass(s.answer(2, "R", "k1", 3)).pass(s.got(1, "k1", 7, 4))
		}, nil, false},
	})
}

const tokenRule = "token-increases"

func TestTokenIncreases(t *testing.T) {
	grants := func(tokens ...uint64) func(s *script) {
		return func(s *script) {
			for i, n := range tokens {
				key := []string{"k1", "k2"}[i%2]
				s.granted(1, key, n, sec).ended(1, key, n)
			}
		}
	}
	found := []string{tokenRule + " safety"}
	for _, d := range []string{v1, v0} {
		runPlays(t, tokenRule, true, []play{
			{"rising", d, grants(1, 2, nls, 1<<64-1), nil, true},
			{"falling", d, grants(5, 4), found, true},
			{"repeated", d, grants(5, 5), found, true},
			{"not above the highest", d, grants(5, 9, 7, 8, 10), []string{found[0], found[0]}, true},
			{"from 0", d, grants(0, 1), nil, true},
			{"one", d, grants(5), nil, false},
		})
	}
	s := newScript(t, v1)
	grants(5, 4)(s.open(1, "c1"))
	f := s.want(judged(s, tokenRule, true), found...).Findings[0]
	if !strings.HasPrefix(f.Message, `key "k2" was granted to client c1 with token 4 at `) {
		t.Errorf("%q", f.Message)
	}
}

func TestTokenIncreasesByWire(t *testing.T) {
	found := map[string][]string{v1: {tokenRule + " hygiene"}, v0: {tokenRule + " safety"}}
	suspect := map[string][]string{v1: {tokenRule + " hygiene suspect"}, v0: {tokenRule + " safety suspect"}}
	// Two attempts on two keys and sessions, the second after the first grant was
	// received or before.
	pair := func(after bool, first, second uint64) func(s *script) {
		return func(s *script) {
			a, b := s.req(1, "k1", 5, 30, 7), s.req(2, "k2", 5, 30, 8)
			s.pass(a)
			if !after {
				s.pass(b)
			}
			s.pass(s.got(1, "k1", 7, first))
			if after {
				s.pass(b)
			}
			s.pass(s.got(2, "k2", 8, second))
		}
	}
	again := func(first, second uint64) func(s *script) {
		return func(s *script) {
			s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, first)).pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, second))
		}
	}
	for _, d := range []string{v1, v0} {
		plays := []play{
			{"rising", d, pair(true, 5, 6), nil, true},
			{"falling", d, pair(true, 6, 5), suspect[d], true},
			{"repeated", d, pair(true, 6, 6), suspect[d], true},
			{"at one time", d, pair(false, 6, 5), nil, false},
			{"on one session and key, rising", d, again(5, 6), nil, true},
			{"on one session and key, the active token", d, again(5, 5), suspect[d], true},
			{"either of two attempts", d, func(s *script) {
				s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.req(2, "k2", 5, 30, 8)).pass(s.got(2, "k2", 8, 5))
				s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 4))
			}, nil, false},
			{"forwarded late by us", d, func(s *script) {
				b := s.req(2, "k2", 5, 30, 8)
				s.pass(s.req(1, "k1", 5, 30, 7)).cut(b, len(b.b)-1).pass(s.got(1, "k1", 7, 6)).write(b, len(b.b)-1, len(b.b)).pass(s.got(2, "k2", 8, 5))
			}, suspect[d], true},
			{"doubled by us", d, func(s *script) {
				a := s.got(1, "k1", 7, 6)
				s.pass(s.req(1, "k1", 5, 30, 7)).pass(a).write(a, 0, len(a.b)).pass(s.req(2, "k2", 5, 30, 8)).write(a, 0, len(a.b))
			}, nil, false},
		}
		runPlays(t, tokenRule, false, plays)
		s := newScript(t, d)
		pair(true, 6, 5)(s.open(1, "c1").open(2, "c2"))
		p := judged(s, tokenRule, false)
		p.ClosedWorld = true
		s.want(p, found[d]...)
	}
}
