package checker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"tornwire/history"
)

const linearRule = "mutual-exclusion"

// notOrdered asserts that only the search finds something, and of what severity.
func notOrdered(t *testing.T, s *script, p Policy, want ...string) {
	t.Helper()
	r := s.want(p, want...)
	for _, f := range r.Findings {
		if !strings.HasPrefix(f.Message, "no order of what was asked about key") {
			t.Errorf("%q", f.Message)
		}
	}
	if len(r.Unknown) > 0 {
		t.Errorf("not known of %q", r.Unknown)
	}
}

func TestNotLinearizable(t *testing.T) {
	two, told := linearRule+" safety", linearRule+" contract"
	held := func(s *script) *script { return s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 3)) }
	free := func(s *script, op string) *script { return s.pass(s.rel(1, "k1", 3)).pass(s.answer(1, op, "k1", 3)) }
	for _, c := range []struct {
		name string
		play func(s *script)
		want string
	}{
		{"one after the other", func(s *script) { free(held(s), "R").pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4)) }, ""},
		{"the release is answered later", func(s *script) {
			held(s).pass(s.req(2, "k1", 5, 30, 8)).pass(s.rel(1, "k1", 3)).pass(s.got(2, "k1", 8, 4)).pass(s.answer(1, "R", "k1", 3))
		}, ""},
		{"the release may have been lost", func(s *script) {
			held(s).pass(s.rel(1, "k1", 3)).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
		}, ""},
		{"the lease ended", func(s *script) { held(s).wait(30 * sec).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4)) }, ""},
		{"released twice", func(s *script) { free(free(held(s), "R"), "N") }, ""},
		{"not held any more", func(s *script) { free(held(s).wait(30*sec), "N") }, ""},
		{"an unseen grant has the key", func(s *script) {
			s.pass(s.req(1, "k1", 5, 1, 7)).wait(sec).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
		}, ""},
		{"released, told so twice", func(s *script) {
			s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 3)).pass(s.rel(1, "k1", 3)).pass(s.answer(1, "R", "k1", 3))
			s.pass(s.rel(2, "k1", 3)).pass(s.answer(2, "R", "k1", 3))
		}, told},
		{"not held while it is", func(s *script) { free(free(held(s), "N"), "R") }, told},
		{"granted before the release was sent", func(s *script) {
			held(s).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4)).pass(s.rel(1, "k1", 3)).pass(s.answer(1, "R", "k1", 3))
		}, two},
		{"granted to a third while the second holds", func(s *script) {
			free(held(s), "R").open(3, "c3").pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4)).wait(2 * sec)
			s.pass(s.req(3, "k1", 5, 1, 9)).pass(s.got(3, "k1", 9, 5))
		}, two},
		{"the lease has not ended", func(s *script) {
			held(s).wait(29 * sec).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
		}, two},
		{"another key is another lock", func(s *script) { held(s).pass(s.req(2, "k2", 5, 30, 8)).pass(s.got(2, "k2", 8, 4)) }, ""},
		{"the tool held it", func(s *script) {
			s.granted(0, "k1", 2, 60*sec).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
		}, two},
		{"the tool held and released it", func(s *script) {
			s.granted(0, "k1", 2, 60*sec).pass(s.req(2, "k1", 5, 30, 8))
			s.add(history.Event{Kind: history.GrantEnded, Key: "k1", Token: 2, How: history.Released}).pass(s.got(2, "k1", 8, 4))
		}, ""},
		{"something unread was forwarded", func(s *script) {
			held(s).unread(2, "R", 12).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, v1).open(1, "c1").open(2, "c2")
			c.play(s)
			j := newJudge(s, Policy{Dialect: v1, ClosedWorld: true})
			j.linearizable()
			got := ""
			for _, f := range j.res.Findings {
				got = f.Rule + " " + string(f.Severity)
				if f.Certainty != Certain {
					t.Error("it is a suspicion in a closed world")
				}
			}
			if got != c.want || len(j.res.Unknown) > 0 {
				t.Errorf("%q, want %q; not known: %q", got, c.want, j.res.Unknown)
			}
		})
	}
}

// newJudge is the pen of mutual-exclusion for a script.
func newJudge(s *script, p Policy) *judge {
	r, _ := RuleByID(linearRule)
	return &judge{view: newView(s.ev, s.g, p), rule: &r, res: &Result{}}
}

// TestLinearizableByTable: the table tells what the tool held.
func TestLinearizableByTable(t *testing.T) {
	s := newScript(t, v1).open(1, "c1")
	s.granted(0, "k1", 2, 60*sec).pass(s.req(1, "k1", 5, 30, 8)).pass(s.got(1, "k1", 8, 4))
	notOrdered(t, s, Policy{Dialect: v1, SawTable: true, Only: map[string]bool{linearRule: true}}, linearRule+" safety")
	s = newScript(t, v1).open(1, "c1")
	s.granted(0, "k1", 2, 60*sec).pass(s.req(1, "k1", 5, 30, 8))
	s.add(history.Event{Kind: history.GrantEnded, Key: "k1", Token: 2, How: history.Released}).pass(s.got(1, "k1", 8, 4))
	notOrdered(t, s, Policy{Dialect: v1, SawTable: true, Only: map[string]bool{linearRule: true}})
}

// TestLinearizableIsSuspect outside a closed world.
func TestLinearizableIsSuspect(t *testing.T) {
	s := newScript(t, v1).open(1, "c1").open(2, "c2")
	s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 3)).pass(s.rel(1, "k1", 3)).pass(s.answer(1, "R", "k1", 3))
	s.pass(s.rel(2, "k1", 3)).pass(s.answer(2, "R", "k1", 3))
	notOrdered(t, s, Policy{Dialect: v1, Only: map[string]bool{linearRule: true}}, linearRule+" contract suspect")
}

// TestSearchGivesUp: what is too much is not known, and nothing is found.
func TestSearchGivesUp(t *testing.T) {
	s := newScript(t, v1).open(1, "c1").open(2, "c2")
	s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 3)).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
	j := newJudge(s, Policy{Dialect: v1, ClosedWorld: true})
	byKey, _ := j.operations()
	for most, want := range map[int]porcupine.CheckResult{1: porcupine.Unknown, 100: porcupine.Illegal} {
		if got := j.inOrder(byKey["k1"], most); got != want {
			t.Errorf("within %d steps: %s, want %s", most, got, want)
		}
	}
	s = newScript(t, v1).open(1, "c1").open(2, "c2")
	for range maxOperations + 1 {
		s.pass(s.rel(1, "k1", 3))
	}
	j = newJudge(s, Policy{Dialect: v1, ClosedWorld: true})
	j.linearizable()
	if !slices.Equal(j.res.Unknown, []string{"k1"}) {
		t.Errorf("not known: %q", j.res.Unknown)
	}
}

// worker is one session of a random history: what it has asked and waits for.
type worker struct {
	session int
	owner   uint64
	op      string // "" if it waits for nothing
	token   uint64 // it holds, or releases
	decided string // the lock's answer, which has not been received
	lost    bool   // nor ever will be
}

// TestRightHistoriesAreOrdered plays random right servers: each request takes effect
// at some moment before its answer is received, or is lost before or after it.
func TestRightHistoriesAreOrdered(t *testing.T) {
	for _, d := range []string{v1, v0} {
		t.Run(d, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				for range 10 { // of the hundred checks that rapid makes
					s := randomHistory(t, rt, d)
					j := newJudge(s, Policy{Dialect: d, ClosedWorld: true})
					j.linearizable()
					if len(j.res.Findings) > 0 || len(j.res.Unknown) > 0 {
						rt.Fatalf("%v, not known: %q\n%s", j.res.Findings, j.res.Unknown, strings.Join(Timeline(s.ev), "\n"))
					}
				}
			})
		})
	}
}

func randomHistory(t *testing.T, rt *rapid.T, dialect string) *script {
	const lease = 3
	s := newScript(t, dialect)
	var all []*worker
	for i := range 3 {
		s.open(i+1, "c")
		all = append(all, &worker{session: i + 1})
	}
	next, owner, holder, until := uint64(1), uint64(1), uint64(0), time.Duration(0)
	live := func() bool { return holder != 0 && s.at < until }
	for range rapid.IntRange(5, 40).Draw(rt, "steps") {
		w := all[rapid.IntRange(0, len(all)-1).Draw(rt, "who")]
		switch {
		case w.lost:
		case w.op == "" && (w.token == 0 || rapid.Bool().Draw(rt, "asks though it holds")):
			w.op, w.owner, owner = "A", owner, owner+1
			s.pass(s.req(w.session, "k1", 200, lease, w.owner))
		case w.op == "":
			w.op = "R"
			s.pass(s.rel(w.session, "k1", w.token))
		case w.decided == "" && rapid.IntRange(0, 9).Draw(rt, "lost") == 0:
			w.lost = true
		case w.decided == "" && w.op == "A" && !live():
			holder, until, w.token, w.decided, next = next, s.at+lease*sec, next, "A", next+1
		case w.decided == "" && w.op == "A":
			if rapid.IntRange(0, 3).Draw(rt, "refused") == 0 {
				w.decided = "T"
			}
		case w.decided == "":
			w.decided = "N"
			if live() && (dialect == v0 || holder == w.token) {
				w.decided, holder = "R", 0
			}
		case rapid.IntRange(0, 9).Draw(rt, "answer lost") == 0:
			w.lost = true
		case w.decided == "A":
			s.pass(s.got(w.session, "k1", w.owner, w.token))
			w.op, w.decided = "", ""
		case w.decided == "T":
			s.pass(s.answer(w.session, "T", "k1", w.owner))
			w.op, w.decided = "", ""
		default:
			s.pass(s.answer(w.session, w.decided, "k1", w.token))
			w.op, w.decided, w.token = "", "", 0
		}
		s.wait(time.Duration(rapid.IntRange(0, 900).Draw(rt, "ms")) * time.Millisecond)
	}
	return s
}
