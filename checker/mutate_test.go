package checker

import (
	"slices"
	"testing"

	"tornwire/history"
)

// change is something done to a recorded history.
type change func(ev []history.Event) []history.Event

// mutation is a history, a change to it, and the verdict of one rule before and after.
// Verdicts: the severity of its certain finding, "right" if it was judged and found
// none, and "" if it was not judged.
type mutation struct {
	rule   string
	tell   func(t *testing.T) *script
	before string
	how    change
	after  string
}

// unmutated lists the rules whose rows are still to come.
var unmutated = map[string]bool{}

func mutations() []mutation {
	return slices.Concat(entryMutations(), matchMutations(), timingMutations(), serverMutations(),
		sessionMutations(), strayMutations(), clusterMutations(), replyMutations())
}

// drop drops the events of a kind; of is a frame, a call's or a session's side, "" for
// all of them.
func drop(k history.Kind, of string) change {
	return func(ev []history.Event) []history.Event {
		return slices.DeleteFunc(slices.Clone(ev), func(e history.Event) bool {
			return e.Kind == k && (of == "" || e.Frame != nil && e.Frame.String() == of)
		})
	}
}

// last drops the last event of a kind.
func last(k history.Kind) change {
	return func(ev []history.Event) []history.Event {
		for i := len(ev) - 1; i >= 0; i-- {
			if ev[i].Kind == k {
				return slices.Delete(slices.Clone(ev), i, i+1)
			}
		}
		return ev
	}
}

// upTo moves the end of a frame's only event of a kind: n bytes of it are left, or
// made.
func upTo(k history.Kind, of string, n int) change {
	return func(ev []history.Event) []history.Event {
		ev = slices.Clone(ev)
		for i, e := range ev {
			if e.Kind == k && e.Frame != nil && e.Frame.String() == of {
				ev[i].N = n - e.Off
				if len(e.Data) > ev[i].N {
					ev[i].Data, ev[i].Last = e.Data[:ev[i].N], false
				}
			}
		}
		return ev
	}
}

func all(list ...change) change {
	return func(ev []history.Event) []history.Event {
		for _, c := range list {
			ev = c(ev)
		}
		return ev
	}
}

// untold drops what a client says of its calls.
var untold = all(drop(history.CallResult, ""), drop(history.Entered, ""))

func entryMutations() []mutation {
	granted := func(cut int, outcome string, token uint64) func(t *testing.T) *script {
		return func(t *testing.T) *script {
			s, a := single(t, v1, 7)
			if cut > 0 {
				s.recv(a, 0, len(a.b)).write(a, 0, len(a.b)-cut)
			} else {
				s.pass(a)
			}
			if outcome != acq {
				return s.told(1, outcome)
			}
			return s.acquired(1, "k1", token)
		}
	}
	return []mutation{
		{"no-entry-unconfirmed", granted(0, acq, 7), "right", drop(history.WriteBegun, "s2c.A.1"), "safety"},
		{"no-entry-unconfirmed", granted(1, acq, 7), "safety", upTo(history.WriteBegun, "s2c.A.1", 20), "right"},
		{"no-partial-frame", granted(1, acq, 7), "safety", upTo(history.WriteBegun, "s2c.A.1", 20), ""},
		{"exact-token", granted(0, acq, 8), "safety", untold, ""},
		{"indeterminate-stays", granted(1, "timeout", 0), "contract", drop(history.CallResult, ""), ""},
		{"header-by-count", func(t *testing.T) *script { return closes(t, v1, indet, nls) }, "contract", drop(history.CallResult, ""), ""},
		{"release-own", func(t *testing.T) *script {
			s := overtaken(t, v0)
			return s.leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 0)).ended(1, "k1", 9).pass(s.answer(1, "R", "k1", 0)).released(1, "released")
		}, "safety", last(history.GrantEnded), "right"},
		{"no-resend", func(t *testing.T) *script { return resent(t, v1, 14, 77) }, "contract", upTo(history.Received, "c2s.A.1", 10), "right"},
		{"one-attempt", func(t *testing.T) *script { return resent(t, v1, 1, 78) }, "contract", drop(history.Received, "c2s.A.1"), "right"},
		{"entry-after-lease", func(t *testing.T) *script { return stale(t, v1, 0, false) }, "contract", drop(history.GrantEnded, ""), ""},
		{"settles", func(t *testing.T) *script {
			s := newScript(t, v1)
			s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77)).wait(10 * sec)
			return s.add(history.Event{Kind: history.CallOverdue, Call: 1})
		}, "hygiene", drop(history.CallOverdue, ""), ""},
	}
}

func matchMutations() []mutation {
	return []mutation{
		{"match-triple", func(t *testing.T) *script {
			s := waiting(t, v1, 9*sec)
			return s.stray(s.got(1, "k1", 78, 99)).acquired(1, "k1", 99)
		}, "safety", drop(history.WriteBegun, "s2c.A.1"), ""},
		{"no-fifo", func(t *testing.T) *script {
			s := pair(t)
			return s.pass(s.answer(1, "T", "k1", 2)).told(1, "timeout")
		}, "safety", drop(history.CallResult, ""), ""},
		{"timeout-final", func(t *testing.T) *script { return answered(t, "T").told(1, "error") }, "contract", drop(history.WriteAccepted, "s2c.T.1"), ""},
		{"busy-final", func(t *testing.T) *script { return answered(t, "B").told(1, "timeout") }, "contract", upTo(history.WriteAccepted, "s2c.B.1", 11), ""},
		{"busy-not-retried", func(t *testing.T) *script { return retried(t, 78) }, "contract", drop(history.Received, "c2s.A.2"), "right"},
		{"release-known", func(t *testing.T) *script { return lateKnown(t).barrier().expire() }, "hygiene", last(history.CallResult), ""},
	}
}

func timingMutations() []mutation {
	held := func(wait, hold, wire uint64) func(t *testing.T) *script {
		return func(t *testing.T) *script {
			s := connecting(t, v1, sec*durationOf(wait), msec*durationOf(hold))
			return s.pass(s.req(1, "k1", wire, 30, 77))
		}
	}
	started := drop(history.CallStarted, "")
	return []mutation{
		{"owner-fresh", func(t *testing.T) *script { return owned(t, "c1", "k2", 30*sec, 77, nil) }, "contract", upTo(history.Received, "c2s.A.2", 10), ""},
		{"deadline-once", func(t *testing.T) *script {
			return secondTry(t, 5, func(s *script) { s.sent(1, "rst").open(2, "c1") })
		}, "contract", drop(history.EndSent, ""), ""},
		{"wait-recomputed", held(10, 3500, 10), "contract", started, ""},
		{"wait-rounded-up", held(10, 3500, 6), "contract", started, ""},
		{"wait-range", held(10, 100, 255), "contract", upTo(history.Received, "c2s.A.1", 1), ""},
		{"expired-unsent", held(1, 2500, 1), "contract", drop(history.Received, "c2s.A.1"), "right"},
		{"zero-is-immediate", held(0, 6600, 0), "contract", drop(history.Received, "c2s.A.1"), "right"},
		{"late-grant", func(t *testing.T) *script {
			s := belated(t, v1, sec, 30*sec, 2500*msec)
			return s.acquired(1, "k1", 7)
		}, "contract", untold, ""},
	}
}

func serverMutations() []mutation {
	two := func(t *testing.T) *script { s := newScript(t, v1); return s.open(1, "c1").open(2, "c2") }
	return []mutation{
		{"echo-matches", func(t *testing.T) *script {
			s := two(t)
			return s.pass(s.req(1, "k1", 5, 30, 77)).pass(s.answer(1, "T", "k1", 77))
		}, "right", upTo(history.WriteBegun, "c2s.A.1", 10), "safety"},
		{"one-reply-per-attempt", func(t *testing.T) *script {
			s := two(t)
			return s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.answer(1, "T", "k1", 7)).pass(s.answer(1, "T", "k1", 7))
		}, "contract", drop(history.Received, "s2c.T.2"), "right"},
		{"no-early-timeout", func(t *testing.T) *script {
			s := two(t)
			timedOut(v1, 5, sec)(s)
			return s
		}, "contract", drop(history.Received, "s2c.T.1"), ""},
		{"zero-never-queues", func(t *testing.T) *script {
			s := two(t)
			queuedZero(0, 2*sec, true)(s)
			return s
		}, "contract", all(last(history.Granted), drop(history.Received, "s2c.A.2")), ""},
		{"lease-ends", func(t *testing.T) *script { return held(two(t), 60).wait(3 * sec).tick() }, "contract", drop(history.CancelDone, ""), ""},
		{"mutual-exclusion", func(t *testing.T) *script {
			return two(t).granted(0, "k1", 5, sec).ended(0, "k1", 5).granted(0, "k1", 7, sec)
		}, "right", drop(history.GrantEnded, ""), "safety"},
		{"mutual-exclusion", func(t *testing.T) *script {
			s := two(t).granted(0, "k1", 2, 60*sec)
			return s.pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
		}, "safety", drop(history.Received, "s2c.A.1"), ""},
		{"token-increases", func(t *testing.T) *script {
			return two(t).granted(1, "k1", 5, sec).ended(1, "k1", 5).granted(1, "k2", 4, sec)
		}, "safety", last(history.Granted), ""},
	}
}

// TestMutations: each rule stands on events and on bytes. Where one is dropped, or
// moved, its verdict is another.
func TestMutations(t *testing.T) {
	rows := map[string]bool{}
	for _, m := range mutations() {
		rows[m.rule] = true
		t.Run(m.rule, func(t *testing.T) {
			s := m.tell(t)
			changed := m.how(s.ev)
			if got := verdictOn(s, m.rule, s.ev); got != m.before {
				t.Errorf("before: %q, want %q", got, m.before)
			}
			if got := verdictOn(s, m.rule, changed); got != m.after || m.after == m.before {
				t.Errorf("after: %q, want %q, which is not %q", got, m.after, m.before)
			}
		})
	}
	for _, r := range Rules() {
		if rows[r.ID] == unmutated[r.ID] {
			t.Errorf("%s: has a row: %v, is said to have none: %v", r.ID, rows[r.ID], unmutated[r.ID])
		}
	}
}

// TestPolicySeverity: what a policy says a rule can give at most, it does not pass; a
// rule that depends on the policy is milder under another.
func TestPolicySeverity(t *testing.T) {
	grave := []Severity{Hygiene, Contract, Safety}
	for _, m := range mutations() {
		s := m.tell(t)
		for _, profile := range []string{ProfileAny, ProfileOfficial} {
			for _, busy := range []string{BusyUnsettled, BusyFinal, BusyRetry} {
				p := s.policy()
				p.Profile, p.Busy = profile, busy
				for _, f := range Check(s.ev, p).Findings {
					r, _ := RuleByID(f.Rule)
					if most := p.Severity(r); slices.Index(grave, f.Severity) > slices.Index(grave, most) {
						t.Errorf("%s under %s and %s: %s, over %s: %s", f.Rule, profile, busy, f.Severity, most, f.Message)
					}
				}
			}
		}
	}
	strictest := Policy{Dialect: v1, Profile: ProfileOfficial, Busy: BusyFinal}
	mildest := Policy{Dialect: v0, Profile: ProfileAny, Busy: BusyUnsettled}
	for _, r := range Rules() {
		if strictest.Severity(r) != r.Severity || (mildest.Severity(r) != r.Severity) != (Depends(r) != "") {
			t.Errorf("%s: %s, %s and %s, %q", r.ID, r.Severity, strictest.Severity(r), mildest.Severity(r), Depends(r))
		}
	}
}

// verdictOn is what a rule says of a history.
func verdictOn(s *script, rule string, ev []history.Event) string {
	p := s.policy()
	p.Profile, p.Busy, p.Only = ProfileOfficial, BusyFinal, map[string]bool{rule: true}
	p.Witnessed = rule == "no-overstay"
	r := Check(ev, p)
	for _, f := range r.Findings {
		if f.Certainty == Certain {
			return string(f.Severity)
		}
	}
	if slices.Contains(r.Checked, rule) {
		return "right"
	}
	return ""
}
