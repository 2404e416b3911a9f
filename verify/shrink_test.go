package verify

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tornwire/frames"
)

// TestShrink: cases of wrong clients become as small as said here, and no smaller case is
// taken that does not break the rule.
func TestShrink(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		defect, id, rule, to string
		faults               int
	}{
		{"resend-new-owner", "ticketing/single/s2c.A.1@17:truncate-rst", "one-attempt", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin", 1},
		{"enters-anyway", "ticketing/single/c2s.A.1@20:truncate-fin", "no-entry-unconfirmed", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin", 1},
		{"partial-is-acquired", "ticketing/single/s2c.A.1@20:truncate-silence", "no-partial-frame", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@17:truncate-silence", 1},
		{"wrong-token-released", "ticketing/single/c2s.R.1@18:truncate-fin", "exact-token", "ticketing/single[acquire(c1,k,1s,1s) release(1)]/none", 0},
		{"release-by-key", "ticketing-v0/expired/none", "release-own", "ticketing-v0/expired[acquire(c1,k,1s,1s) expired(k) take(k) release(1)]/none", 0},
		{"key-only", "ticketing/single/s2c.A.1@0:inject-stray", "match-triple", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:inject-stray", 1},
	} {
		t.Run(x.defect, func(t *testing.T) {
			t.Parallel()
			s := shrunkOf(t, x.defect, x.id, ShrinkOptions{Rule: x.rule})
			if s.Calls != 1 || s.Faults != x.faults || s.Finding.Rule != x.rule {
				t.Errorf("%d calls, %d faults, %s: %s", s.Calls, s.Faults, s.Finding.Rule, s.Case)
			}
			if !strings.HasPrefix(s.Case.String(), x.to) {
				t.Errorf("it became %s, not %s", s.Case, x.to)
			}
			r := runPlan(t, Options{Cases: []string{s.Case.String()}, Profile: "official", Start: Library(wrong(t, x.defect))})
			if r.ExitCode != ExitUnsafe {
				t.Errorf("the case by its id has exit code %d:\n%s", r.ExitCode, text(r))
			}
		})
	}
}

// shrunkOf shrinks until the machine was not too busy for all that shrinking did: a
// smaller case is never taken on less than two runs, but one may be lost to lateness.
func shrunkOf(t *testing.T, defect, id string, o ShrinkOptions) *Shrunk {
	t.Helper()
	p, err := NewPlan(Options{Cases: []string{id}, Profile: "official", Start: Library(wrong(t, defect))})
	if err != nil {
		t.Fatal(err)
	}
	for range busyTries {
		s, err := Shrink(t.Context(), p, o)
		switch {
		case err != nil:
			t.Log(err)
		case s.Found == s.Confirmed || s.Stopped != "":
			return s
		default:
			t.Logf("%s was found %d of %d times", s.Case, s.Found, s.Confirmed)
		}
	}
	t.Fatal("the case does not fail")
	return nil
}

// TestShrinkBlamesOne: a case in which a right client breaks the rule, too, is no case of
// the wrong one. Here the one that is taken for right is as wrong.
func TestShrinkBlamesOne(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"", "enters-anyway"} {
		s := shrunkOf(t, "enters-anyway", "ticketing/single/c2s.A.1@20:truncate-fin", ShrinkOptions{Rule: "no-entry-unconfirmed", Right: Library(wrong(t, right))})
		if same := right != ""; same != (s.Found == 0) || same != strings.Contains(s.Stopped, "a right client breaks the rule") {
			t.Errorf("beside %q: found %d times, %q", right, s.Found, s.Stopped)
		}
	}
}

// TestNotShrunk: what does not fail is not shrunk, and said to be so.
func TestNotShrunk(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		defect, rule, says string
		code               int
	}{
		{"", "", "there is nothing to shrink", ExitSafe},
		{"eof-is-timeout", "one-attempt", "does not break one-attempt, but indeterminate-stays", ExitUsage},
	} {
		p, err := NewPlan(Options{Cases: []string{"ticketing/single/s2c.A.1@0:truncate-fin"}, Start: Library(wrong(t, x.defect))})
		if err != nil {
			t.Fatal(err)
		}
		var no *ShrinkError
		for range busyTries {
			_, err = Shrink(t.Context(), p, ShrinkOptions{Rule: x.rule})
			if !errors.As(err, &no) || no.Code != ExitInconclusive {
				break
			}
		}
		if no == nil || no.Code != x.code || !strings.Contains(no.Error(), x.says) {
			t.Errorf("%s: %v", x.defect, err)
		}
	}
	for _, o := range []ShrinkOptions{{Rule: "one-atempt"}, {Rule: "mutual-exclusion"}, {Runs: -1}, {Runs: MaxShrinkRuns + 1}, {Time: time.Millisecond}, {Time: MaxShrinkTime + 1}} {
		p, _ := NewPlan(Options{Cases: []string{controlCase}, Start: Library(wrong(t, ""))})
		var usage *UsageError
		if _, err := Shrink(t.Context(), p, o); !errors.As(err, &usage) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestStories: a story is read as it is written, and wrong ones are refused.
func TestStories(t *testing.T) {
	t.Parallel()
	const text = "hold(a/b) acquire(c1,a/b,1.5s,5s) sent(1) settle(1) enter(1) leave(1) release(1) released(1) cancel(1) interject(1) " +
		"take(x) free(x) expired(a/b) unqueued(a/b,2) let-go() pause(250ms)"
	s, err := parseStory(text)
	if err != nil || s.String() != text {
		t.Fatalf("%v: %s", err, s)
	}
	id := "ticketing/single[" + text + "]/s2c.A.1@0:truncate-fin"
	c, err := ParseCaseID(id)
	if err != nil || c.String() != id || c.plain() != "ticketing/single/s2c.A.1@0:truncate-fin" {
		t.Errorf("%v: %s, %s", err, c, c.plain())
	}
	if x, err := storyCase(frames.MustBuiltin("ticketing"), c); err != nil || x.Frame.Size != 21 || x.Frame.Tail != "a/b" {
		t.Errorf("%v: %+v", err, x.Frame)
	}
	for _, bad := range []string{
		"", "hold(k)", "settle(1)", "acquire(c1,k,1s)", "acquire(,k,1s,1s)", "acquire(c1,k,1s,1s) settle(2)", "acquire(c1,k,-1s,1s)",
		"acquire(c1,k,1s,1h)", "acquire(c1,k,1s,1s) pause(2m)", "acquire(c1,k,1s,1s) dance(1)", "acquire(c1,k,1s,1s) let-go(1)", "acquire(c1,k,1s,1s",
		strings.Repeat("acquire(c1,k,1s,1s) ", MaxStorySteps+1),
	} {
		if s, err := parseStory(bad); err == nil {
			t.Errorf("%q is read as %s", bad, s)
		}
	}
	for _, bad := range []string{
		"ticketing/nowhere[acquire(c1,k,1s,1s)]/none", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@40:truncate-fin",
		"ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:tear", "ticketing/single[acquire(c1,k,1s,1s)]x/none", "ticketing/immediate]/none",
	} {
		var usage *UsageError
		if _, err := NewPlan(Options{Cases: []string{bad}}); !errors.As(err, &usage) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestFewer: what is left out of a story takes with it what depended on it.
func TestFewer(t *testing.T) {
	t.Parallel()
	s, err := parseStory("hold(k) acquire(c1,j,1s,5s) acquire(c2,k,1s,5s) settle(1) settle(2) enter(2) free(k) release(2)")
	if err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]story{
		"acquire(c1,j,1s,5s) settle(1)":                                     s.ofCalls([]int{1}, true),
		"hold(k) acquire(c2,k,1s,5s) settle(1) enter(1) free(k) release(1)": s.ofCalls([]int{2}, false),
		"hold(k) acquire(c1,j,1s,5s) settle(1) free(k)":                     s.keep(func(_ int, x step) bool { return x.client != "c2" }),
	} {
		if got.String() != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	s, err = parseStory("acquire(c1,k,1s,1s) settle(1) expired(k) acquire(c2,k,1s,5s) settle(2) enter(2) release(1) release(2)")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ofCalls([]int{1}, true).String(); got != "acquire(c1,k,1s,1s) settle(1) expired(k) take(k) release(1) free(k)" {
		t.Error(got)
	}
}
