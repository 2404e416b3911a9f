package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tornwire/checker"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/strict"
	"tornwire/internal/words"
)

// Nobody is what lead says where no node is to lead.
const Nobody = "nobody"

// MaxSpan is the longest wait and lease of a call.
const MaxSpan = 255 * time.Second

// actions is every action, in the order in which they are listed.
var actions = []Action{
	DoOpen, DoAcquire, DoSettle, DoEnter, DoLeave, DoRelease, DoReleasing, DoReleased, DoCancel, DoClose, DoHold, DoTake, DoFree, DoExpired,
	DoArm, DoDisarm, DoGate, DoShut, DoLead, DoNotice, DoStandby, DoActive, DoPause, DoWait,
}

// Actions lists every action of a step.
func Actions() []Action { return slices.Clone(actions) }

func (r *reader) step(o *strict.Object, line int) {
	s := Step{Line: line}
	if below := o.Object("when"); below != nil {
		s.When = r.condition(below, r.at.of(strings.TrimSuffix(below.Path, ".")))
	}
	var have []string
	for _, a := range actions {
		if o.Raw(string(a)) != nil {
			have = append(have, string(a))
		}
	}
	switch len(have) {
	case 0:
		r.bad.Add(strings.TrimSuffix(o.Path, "."), "says nothing to do: one of %s", strings.Join(names(actions, func(a Action) string { return string(a) }), ", "))
		r.s.Steps = append(r.s.Steps, s)
		return
	case 1:
		s.Do = Action(have[0])
	default:
		o.Problem(have[1], "is a second thing to do beside %s: a step has one", have[0])
		r.s.Steps = append(r.s.Steps, s)
		return
	}
	if s.Do == DoPause {
		r.span(o, have[0], 0, MaxTimeout, &s.Time)
	} else if o.Text(have[0], &s.Name); s.Name == "" && !r.bad.Has(o.Path+have[0]) {
		o.Problem(have[0], "is empty")
	}
	client, key := o.Text("client", &s.Client), o.Text("key", &s.Key)
	wait := o.Raw("wait") != nil
	lease := o.Raw("lease") != nil
	if s.Do == DoAcquire {
		r.acquire(o, &s, wait, lease)
	} else {
		for member, given := range map[string]bool{"client": client, "key": key, "wait": wait, "lease": lease} {
			if given {
				o.Problem(member, "is for acquire, and this step does %s", s.Do)
			}
		}
	}
	r.s.Steps = append(r.s.Steps, s)
}

// acquire reads what a new call asks for.
func (r *reader) acquire(o *strict.Object, s *Step, wait, lease bool) {
	if s.Client == "" {
		s.Client = r.s.Clients[0].Name
	}
	if s.Key == "" && !r.bad.Has(o.Path+"key") {
		o.Problem("key", "is missing: what the call asks for")
	}
	if tail := r.keyShape(); tail != nil && s.Key != "" {
		if err := tail.CheckTail([]byte(s.Key)); err != nil {
			o.Problem("key", "is no key that the dialect can carry: %v", err)
		}
	}
	for _, x := range []struct {
		name  string
		given bool
		least time.Duration
		to    *time.Duration
	}{{"wait", wait, 0, &s.Wait}, {"lease", lease, time.Second, &s.Lease}} {
		if !x.given {
			o.Problem(x.name, "is missing: a time such as \"2s\"")
			continue
		}
		r.span(o, x.name, x.least, MaxSpan, x.to)
	}
}

func (r *reader) keyShape() *frames.Shape {
	if r.g == nil {
		return nil
	}
	s, _ := r.g.Shape(frames.ClientToServer, "A")
	return s
}

func (r *reader) condition(o *strict.Object, line int) *Condition {
	c := &Condition{Within: DefaultWithin, Count: 1, Line: line}
	given := map[string]bool{
		"frame": o.Text("frame", &c.Frame), "event": o.Text("event", &c.Event), "fired": o.Text("fired", &c.Fired),
		"after": r.span(o, "after", 0, MaxTimeout, &c.After),
	}
	r.oneOf(o, given, []string{"frame", "event", "fired", "after"}, "a condition")
	if o.Count("count", &c.Count); c.Count < 1 || c.Count > MaxCount {
		o.Problem("count", "is %d, not 1 to %d", c.Count, MaxCount)
	}
	r.span(o, "within", time.Millisecond, MaxWithin, &c.Within)
	if given["frame"] {
		_, nth, ok := r.frame(o, "frame", c.Frame)
		if ok && nth > 0 && c.Count > 1 {
			o.Problem("count", "is %d, and %s is one frame", c.Count, c.Frame)
		}
	}
	if given["event"] {
		r.event(o, "event", c.Event)
	}
	for member, given := range map[string]bool{"client": o.Text("client", &c.Client), "call": o.Text("call", &c.Call), "key": o.Text("key", &c.Key)} {
		switch {
		case !given:
		case c.Event == "" && !(member == "client" && c.Frame != ""):
			o.Problem(member, "is for an event%s", map[bool]string{true: " or a frame", false: ""}[member == "client"])
		case member == "client":
			r.known(o, "client", c.Client)
		}
	}
	o.Done()
	return c
}

// MaxCount is the most times that something is waited for or expected.
const MaxCount = 10000

// oneOf tells where not exactly one of several members is there.
func (r *reader) oneOf(o *strict.Object, given map[string]bool, list []string, what string) {
	var have []string
	for _, name := range list {
		if given[name] || r.bad.Has(o.Path+name) {
			have = append(have, name)
		}
	}
	switch {
	case len(have) == 0:
		r.bad.Add(strings.TrimSuffix(o.Path, "."), "is %s without one of %s", what, strings.Join(list, ", "))
	case len(have) > 1:
		o.Problem(have[1], "cannot stand beside %s: %s has one", have[0], what)
	}
}

// frame reads the name of a frame, "s2c.A" or "s2c.A.1".
func (r *reader) frame(o *strict.Object, member, text string) (ref history.FrameRef, nth int, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 {
		o.Problem(member, "is %q, not a frame such as s2c.A or s2c.A.1", text)
		return ref, 0, false
	}
	dir, err := frames.ParseDirection(parts[0])
	if err != nil {
		o.Problem(member, "is %q, and a direction is c2s or s2c", text)
		return ref, 0, false
	}
	if len(parts) == 3 {
		if nth, err = strconv.Atoi(parts[2]); err != nil || nth < 1 || nth > MaxCount {
			o.Problem(member, "is %q, and %q is no number from 1 to %d", text, parts[2], MaxCount)
			return ref, 0, false
		}
	}
	if _, known := r.g.Shape(dir, parts[1]); !known {
		var ops []string
		for _, s := range r.g.Shapes() {
			if s.Dir == dir {
				ops = append(ops, s.Op)
			}
		}
		o.Problem(member, "is %q: dialect %s has no frame %s from %s; there are %s", text, r.g.Name, parts[1], dir, strings.Join(ops, ", "))
		return ref, 0, false
	}
	return history.FrameRef{Dir: dir, Op: parts[1], Nth: nth}, nth, true
}

func (r *reader) event(o *strict.Object, member, kind string) {
	kinds := names(history.Kinds(), func(k history.Kind) string { return string(k) })
	if !slices.Contains(kinds, kind) {
		o.Problem(member, "is %q, and there is no such kind of event%s", kind, words.DidYouMean(kind, kinds))
	}
}

// expectWords is every member that says what is expected.
var expectWords = []string{"verdict", "finding", "no_finding", "checked", "call", "fired", "frame", "event"}

func (r *reader) expect(o *strict.Object, line int) {
	x := Expectation{Line: line, Count: Range{1, -1}}
	given := map[string]bool{}
	for name, to := range map[string]*string{
		"verdict": &x.Verdict, "finding": &x.Finding, "no_finding": &x.NoFinding, "checked": &x.Checked, "call": &x.Call,
		"fired": &x.Fired, "frame": &x.Frame, "event": &x.Event,
	} {
		given[name] = o.Text(name, to)
	}
	r.oneOf(o, given, expectWords, "an expectation")
	if given["verdict"] {
		r.word(o, "verdict", []string{string(checker.Safe), string(checker.Unsafe), string(checker.Nonconforming), string(checker.NonStrict), string(checker.Inconclusive)}, "verdict", &x.Verdict)
	}
	for name, id := range map[string]string{"finding": x.Finding, "no_finding": x.NoFinding, "checked": x.Checked} {
		if given[name] && !(name == "no_finding" && id == AnyRule) {
			r.ruleID(o, name, id)
		}
	}
	if given["frame"] {
		r.frame(o, "frame", x.Frame)
	}
	if given["event"] {
		r.event(o, "event", x.Event)
	}
	if given["call"] != strict.Read(o, "outcomes", "a list of words", &x.Outcomes) && !r.bad.Has(o.Path+"outcomes") {
		o.Problem("outcomes", "is what a call may end with, and belongs to call")
	}
	for _, word := range x.Outcomes {
		if !slices.Contains(outcomes, word) {
			o.Problem("outcomes", "%s", strict.OneOf(word, outcomes, "outcome"))
		}
	}
	counted := given["fired"] || given["frame"] || given["event"]
	var count string
	if o.Text("count", &count) {
		if err := x.Count.parse(count); err != nil {
			o.Problem("count", "%v", err)
		} else if !counted {
			o.Problem("count", "is for fired, frame and event")
		}
	}
	if o.Text("client", &x.Client) {
		if r.known(o, "client", x.Client); !given["frame"] && !given["event"] {
			o.Problem("client", "is for frame and event")
		}
	}
	if o.Text("key", &x.Key) && !given["event"] {
		o.Problem("key", "is for event")
	}
	r.s.Expect = append(r.s.Expect, x)
}

// AnyRule in NoFinding means every rule.
const AnyRule = "*"

var outcomes = []string{
	history.OutcomeAcquired, history.OutcomeTimeout, history.OutcomeBusy, history.OutcomeIndeterminate, history.OutcomeUnsent, history.OutcomeError,
}

func (r *reader) ruleID(o *strict.Object, member, id string) {
	if _, ok := checker.RuleByID(id); !ok {
		all := names(checker.Rules(), func(x checker.Rule) string { return x.ID })
		o.Problem(member, "is %q, and there is no such rule%s; tornwire list rules shows them", id, words.DidYouMean(id, all))
	}
}

// String is "2", "1..", "..3" or "1..3".
func (n Range) String() string {
	switch {
	case n.Least == n.Most:
		return strconv.Itoa(n.Least)
	case n.Most < 0:
		return fmt.Sprintf("%d..", n.Least)
	case n.Least == 0:
		return fmt.Sprintf("..%d", n.Most)
	}
	return fmt.Sprintf("%d..%d", n.Least, n.Most)
}

// Has tells whether a number lies in the range.
func (n Range) Has(k int) bool { return k >= n.Least && (n.Most < 0 || k <= n.Most) }

func (n *Range) parse(text string) error {
	least, most, between := strings.Cut(text, "..")
	if !between {
		most = least
	}
	out := Range{0, -1}
	for _, x := range []struct {
		text string
		to   *int
	}{{least, &out.Least}, {most, &out.Most}} {
		if x.text == "" && between {
			continue
		}
		k, err := strconv.Atoi(x.text)
		if err != nil || k < 0 || k > MaxCount {
			return fmt.Errorf("is %q, not a number or a range such as \"1..\", \"..3\" or \"1..3\", up to %d", text, MaxCount)
		}
		*x.to = k
	}
	if out.Most >= 0 && out.Least > out.Most || text == ".." {
		return fmt.Errorf("is %q, and no number lies in it", text)
	}
	*n = out
	return nil
}
