package checker

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tornwire/frames"
	"tornwire/history"
)

// plays are whole histories with something of everything in them.
func plays(t *testing.T) map[string]*script {
	out := map[string]*script{}
	for _, d := range []string{v1, v0} {
		s, a := single(t, d, nls)
		out[d+" right"] = finish(s.pass(a), nls)
		s = overtaken(t, d)
		s.leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7)).ended(1, "k1", 9).released(1, "released")
		out[d+" released"] = s
		out[d+" stale"] = stale(t, d, 0, true)
		out[d+" resent"] = resent(t, d, 7, 77)
		out[d+" closed"] = closes(t, d, indet, nls)
	}
	out["swapped by owner"], out["swapped by order"] = pair(t), swapped4(t)
	out["swapped by owner"].pass(out["swapped by owner"].answer(1, "T", "k1", 2)).told(1, "timeout")
	out["busy"] = retried(t, 78)
	out["known"] = lateKnown(t).barrier().expire()
	return out
}

var allPolicies = []Policy{
	{Dialect: v1, SawTable: true},
	{Dialect: v1, Profile: ProfileOfficial, Embedded: true, SawTable: true},
	{Dialect: v1, ClosedWorld: true, Outcomes: []string{acq, "error"}},
	{Dialect: v0, SawTable: true, Profile: ProfileOfficial},
	{Dialect: v0},
}

// The order of the slice is not the order of the history, and one history has one
// result.
func TestOrderDoesNotMatter(t *testing.T) {
	for name, s := range plays(t) {
		want := Check(s.ev, s.policy())
		back := slices.Clone(s.ev)
		slices.Reverse(back)
		if got := Check(back, s.policy()); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: reversed\n%+v\n%+v", name, got, want)
		}
		var b bytes.Buffer
		if err := history.WriteJSON(&b, s.ev); err != nil {
			t.Fatal(err)
		}
		read, err := history.ReadJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		if got := Check(read, s.policy()); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: as JSON Lines", name)
		}
	}
}

// A right history from which one event is missing must not turn the client into a
// culprit, except where the event is the very ground it stood on.
func TestDroppedEvents(t *testing.T) {
	grounds := []history.Kind{history.Received, history.WriteBegun}
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, 7)
		finish(s.pass(a), 7)
		for i, e := range s.ev {
			ev := slices.Delete(slices.Clone(s.ev), i, i+1)
			r := Check(ev, s.policy())
			if r.Verdict() != Safe && !slices.Contains(grounds, e.Kind) {
				t.Errorf("without %s (event %d): %s: %s", e.Kind, i+1, r.Verdict(), r.Findings[0].Message)
			}
			if e.Kind == history.WriteBegun && e.Frame.String() == "s2c.A.1" && r.Verdict() != Unsafe {
				t.Errorf("without the write of the A: %s", r.Verdict())
			}
		}
		for n := range s.ev {
			if r := Check(s.ev[:n], s.policy()); r.Verdict() != Safe {
				t.Errorf("the first %d events: %s: %s", n, r.Verdict(), r.Findings[0].Message)
			}
		}
	})
}

// Moving the report before or after the write of the last byte flips the verdict.
func TestMovedReport(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, 7)
		s.pass(a).acquired(1, "k1", 7)
		n := len(s.ev)
		report, begun := &s.ev[n-2], s.ev[n-4]
		if report.Kind != history.CallResult || begun.Kind != history.WriteBegun {
			t.Fatal("the script has changed")
		}
		for _, c := range []struct {
			seq  uint64
			want Verdict
		}{{begun.Seq*10 - 1, Unsafe}, {begun.Seq*10 + 1, Safe}} {
			ev := slices.Clone(s.ev)
			for i := range ev {
				ev[i].Seq *= 10
			}
			ev[n-2].Seq = c.seq
			if r := Check(ev, s.policy()); r.Verdict() != c.want {
				t.Errorf("report at %d: %s, want %s", c.seq, r.Verdict(), c.want)
			}
		}
	})
}

func TestOnlyAndUnknownDialect(t *testing.T) {
	s, a := single(t, v1, 7)
	s.cut(a, 5).acquired(1, "k1", 7)
	p := s.policy()
	p.Only = map[string]bool{"settles": true}
	r := s.want(p)
	if !slices.Equal(r.Checked, []string{"settles"}) {
		t.Errorf("checked %v", r.Checked)
	}
	if r := Check(s.ev, Policy{Dialect: "nothing"}); len(r.Checked)+len(r.Findings) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		got, ok := RuleByID(r.ID)
		if !ok || got != r || seen[r.ID] {
			t.Errorf("%s: %v %v", r.ID, ok, seen[r.ID])
		}
		seen[r.ID] = true
		if r.Sentence == "" || r.Source == "" || r.Certain == "" || r.Provoked == "" || (r.Side != "client" && r.Side != "server") {
			t.Errorf("%+v", r)
		}
	}
	if _, ok := RuleByID("nothing"); ok || len(seen) != len(rules) {
		t.Errorf("%d rules", len(seen))
	}
}

func TestTimelineIsClippedAndRedacted(t *testing.T) {
	s, a := single(t, v1, 7)
	n := len(a.b)
	for i := range n {
		s.recv(a, i, i+1)
	}
	for i := range n {
		s.write(a, i, i+1)
	}
	lines := Timeline(s.ev)
	last := lines[len(lines)-2:]
	if want := "  35.000 ms  session 1: s2c.A.1 bytes 0 to 19 written to the client"; last[1] != want {
		t.Errorf("%q, want %q", last[1], want)
	}
	if want := "  15.000 ms  session 1: s2c.A.1 bytes 0 to 19 received from the server: 41 00 00 00 00 00 00 00 4d 00 00 00 00 00 00 00 07 6b 31 0a"; last[0] != want {
		t.Errorf("%q, want %q", last[0], want)
	}
	for _, l := range lines {
		if bytes.Contains([]byte(l), []byte("64 69 67 65 73 74")) {
			t.Errorf("the digest is shown: %q", l)
		}
	}
	for range 60 {
		s.add(history.Event{Kind: history.CancelDone, Call: 1})
	}
	s.acquired(1, "k1", 8)
	for range 60 {
		s.add(history.Event{Kind: history.CancelDone, Call: 1})
	}
	r := s.want(s.policy(), "exact-token safety")
	tl := r.Findings[0].Evidence.Timeline
	judged := func(l string) bool { return strings.Contains(l, "call result, call 1: acquired, token 8") }
	if len(tl) != maxTimeline || tl[0] != lines[0] || !slices.ContainsFunc(tl, judged) {
		t.Errorf("%d lines: %q", len(tl), tl)
	}
}

// Check survives any list of events: real ones shuffled, doubled, cut short and
// with fields of their neighbours, and made-up ones.
func TestCheckNeverPanics(t *testing.T) {
	var pool []history.Event
	for _, s := range plays(t) {
		pool = append(pool, s.ev...)
	}
	slices.SortFunc(pool, func(a, b history.Event) int { return int(a.At - b.At) })
	rapid.Check(t, func(t *rapid.T) {
		ev := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) history.Event {
			e := rapid.SampledFrom(pool).Draw(t, "event")
			o := rapid.SampledFrom(pool).Draw(t, "other")
			e.Seq = rapid.Uint64Range(0, 80).Draw(t, "seq")
			switch rapid.IntRange(0, 9).Draw(t, "change") {
			case 0:
				e.Kind = o.Kind
			case 1:
				e.Frame, e.Dir = o.Frame, o.Dir
			case 2:
				e.Off = rapid.SampledFrom([]int{-1, 1, 5, 1023, math.MaxInt}).Draw(t, "off")
			case 3:
				e.N = rapid.SampledFrom([]int{-1, 0, 1, 1025, math.MaxInt}).Draw(t, "n")
			case 4:
				e.Data = o.Data
			case 5:
				e.Session, e.Call, e.Client = o.Session, o.Call, o.Client
			case 6:
				e.At = time.Duration(rapid.Int64().Draw(t, "at"))
				e.Wait, e.Lease = e.At, -e.At
			case 7:
				e.Dir = frames.Direction(rapid.Byte().Draw(t, "dir"))
			case 8:
				e.Token, e.Owner, e.Key, e.Peer = o.Token, o.Owner, o.Key, o.Peer
			}
			return e
		}), 0, 80).Draw(t, "events")
		for _, p := range allPolicies {
			first := Check(ev, p)
			if second := Check(ev, p); !reflect.DeepEqual(first, second) {
				t.Fatal("one history, two results")
			}
			if !slices.IsSortedFunc(first.Checked, byRule) {
				t.Fatalf("order of %v", first.Checked)
			}
		}
		Timeline(ev)
	})
}

func byRule(a, b string) int {
	at := func(id string) int { return slices.IndexFunc(Rules(), func(r Rule) bool { return r.ID == id }) }
	return at(a) - at(b)
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"seq":1,"kind":"received","session":1,"dir":"c2s","frame":{"dir":"c2s","op":"A","nth":1,"seq":0},"n":1,"data":"41"}`))
	f.Add([]byte(`{"seq":1,"kind":"call_asked","call":1,"client":"c","dir":"c2s"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := history.ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, p := range allPolicies {
			Check(ev, p)
		}
	})
}
