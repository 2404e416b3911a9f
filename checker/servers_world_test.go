package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

// inWorld plays two clients on one key in front of a server without a table, in a closed
// world: the first is granted at once, the second asks after a while.
func inWorld(t *testing.T, after, lease time.Duration, first, second uint64) *script {
	s := newScript(t, v1).open(1, "c1").open(2, "c2")
	n := uint64(lease / sec)
	s.ask(1, "c1", "k1", 5*sec, lease).pass(s.req(1, "k1", 5, n, 71)).pass(s.got(1, "k1", 71, first)).acquired(1, "k1", first)
	s.wait(after).ask(2, "c2", "k1", 5*sec, lease).pass(s.req(2, "k1", 5, n, 72)).pass(s.got(2, "k1", 72, second))
	return s.acquired(2, "k1", second)
}

func exclusion() Policy {
	return Policy{Dialect: v1, ClosedWorld: true, Only: map[string]bool{"mutual-exclusion": true}}
}

// A server need not give tokens in order (spec/rules.md, token-increases). Where one
// request began after the other grant had been received, that says which came first.
func TestMutualExclusionByWireWithRandomTokens(t *testing.T) {
	inWorld(t, 11*sec, 10*sec, 9, 7).want(exclusion())
	inWorld(t, 11*sec, 10*sec, 7, 9).want(exclusion())
	r := inWorld(t, sec, 10*sec, 9, 7).want(exclusion(), "mutual-exclusion safety")
	first(t, r, `key "k1" was granted with token 7 by s2c.A.2, read at 1032.000 ms, although token 9 was granted for a lease that lasted at least until 10020.000 ms`)
	if l := strings.Join(r.Findings[0].Evidence.Timeline, "\n"); !strings.Contains(l, "s2c.A.1 bytes") || !strings.Contains(l, "s2c.A.2 bytes") {
		t.Error("the timeline does not show both grants")
	}
	inWorld(t, sec, 10*sec, 7, 9).want(exclusion(), "mutual-exclusion safety")
	// Where both were asked for before either was received, the tokens say it.
	s := newScript(t, v1).open(1, "c1").open(2, "c2")
	s.pass(s.req(1, "k1", 5, 10, 71)).pass(s.req(2, "k1", 5, 1, 72)).wait(1100 * time.Millisecond)
	s.pass(s.got(1, "k1", 71, 9)).pass(s.got(2, "k1", 72, 7)).want(exclusion())
}

// The server's clock is not ours: a lease may end a little early by our count.
func TestMutualExclusionByWireClocks(t *testing.T) {
	inWorld(t, 9900*time.Millisecond, 10*sec, 7, 9).want(exclusion(), "mutual-exclusion safety")
	s := inWorld(t, 9960*time.Millisecond, 10*sec, 7, 9)
	wantChecked(t, s.want(exclusion()), "mutual-exclusion", true)
	inWorld(t, 249*sec, 250*sec, 7, 9).want(exclusion(), "mutual-exclusion safety")
	inWorld(t, 250*sec-270*time.Millisecond, 250*sec, 7, 9).want(exclusion())
}

// What ends while the tool clears up has ended as well.
func TestLinearizableWhileClearingUp(t *testing.T) {
	s := newScript(t, v1).open(1, "c1").open(2, "c2")
	s.pass(s.req(1, "k1", 5, 2, 71)).pass(s.got(1, "k1", 71, 7)).pass(s.req(2, "k1", 5, 2, 72))
	s.add(history.Event{Kind: history.CaseEnding}).wait(2 * sec).pass(s.got(2, "k1", 72, 9))
	s.want(exclusion())
}

// A waiter that waits for one who was granted the key with a lower token is not kept out.
func TestLeaseEndsByWireWithRandomTokens(t *testing.T) {
	play := func(token uint64) *script {
		s := newScript(t, v1).open(1, "c1").open(2, "c2").open(3, "c3")
		s.pass(s.req(1, "k1", 5, 2, 71)).pass(s.got(1, "k1", 71, 9))
		s.pass(s.req(2, "k1", 60, 30, 72)).pass(s.req(3, "k1", 60, 30, 73)).wait(2 * sec)
		if token > 0 {
			s.pass(s.got(2, "k1", 72, token))
		}
		return s.wait(3 * sec).tick()
	}
	p := Policy{Dialect: v1, ClosedWorld: true, Only: map[string]bool{"lease-ends": true}}
	play(0).want(p, "lease-ends contract")
	play(12).want(p)
	play(7).want(p)
}
