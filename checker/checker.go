// Package checker holds the oracles: pure functions from the history of a case
// to findings. It does no I/O, reads no clock and leaves no goroutine behind, and the
// same history gives the same findings in the same order.
//
// What is judged, how severe it is and when it is certain is written in
// spec/rules.md; the P-lines in the comments here are those of its section on
// certainty. The guiding principle is that what is not proved accuses nobody:
// where the history leaves two readings, the innocent one is taken.
package checker

import (
	"slices"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// Severity says how bad a broken rule is.
type Severity string

// The severities of spec/rules.md.
const (
	Safety   Severity = "safety"
	Contract Severity = "contract"
	Hygiene  Severity = "hygiene"
)

// Certainty says whether a finding counts for the verdict.
type Certainty string

// Certain findings make the verdict, suspects are notes.
const (
	Certain Certainty = "certain"
	Suspect Certainty = "suspect"
)

// Verdict is the result of a case or of a run, spelt as in the JSON report.
type Verdict string

// The verdicts of spec/cli.md.
const (
	Safe          Verdict = "safe"
	Unsafe        Verdict = "unsafe"
	Nonconforming Verdict = "nonconforming"
	NonStrict     Verdict = "non_strict"
	Inconclusive  Verdict = "inconclusive"
	Skipped       Verdict = "skipped"
)

// Values of Policy.Profile.
const (
	ProfileAny      = "any"
	ProfileOfficial = "official"
)

// Values of Policy.Busy (spec/ticketing.md §3.1).
const (
	BusyUnsettled = "unsettled" // a further attempt after B is a matter of hygiene
	BusyFinal     = "final"     // it is a finding against the contract
	BusyRetry     = "retry"     // it is allowed
)

// Policy is what a history is judged by. The zero value judges nothing, since
// it names no grammar.
type Policy struct {
	Dialect  string          // name of a built-in grammar
	Profile  string          // ProfileAny or ProfileOfficial; "" is ProfileAny
	Busy     string          // BusyUnsettled, BusyFinal or BusyRetry; "" is BusyUnsettled
	Outcomes []string        // words that the adapter declared; empty means all (P15)
	Only     map[string]bool // ids of the rules to judge; nil means all
	// Grace and Tolerance are how long after a call's deadline its session may still
	// be open, added up; nil is DefaultGrace and DefaultTolerance.
	Grace, Tolerance *time.Duration
	SawTable         bool // the server's table was recorded; false in front of a foreign server (P14)
	// ClosedWorld is the promise that nobody else uses the keys and that the
	// server does not restart. Without a table it makes server rules certain (P14).
	ClosedWorld bool
	// NoPong says that the adapter does not answer pings, so that nobody knows
	// whether the client was alive, nor how old its words are (P11): settles is then
	// not checked, nor is it told what a frame led to by the word that came after it.
	NoPong bool
	// Witnessed says that the entries and exits are told by the application under
	// test; else they are those of the tool's own, and no-overstay is not judged.
	Witnessed bool
	// Embedded says that the server is ours. A certain server finding is then our
	// own bug, and the client findings of the case become suspect.
	Embedded bool
}

// Evidence is what a finding stands on. Which fields are set depends on the
// rule; the JSON names are those of the report (spec/cli.md).
type Evidence struct {
	Session     int    `json:"session,omitempty"`
	Frame       string `json:"frame,omitempty"` // "s2c.A.1"
	Offset      int    `json:"offset"`          // bytes of the frame that had passed
	FrameHex    string `json:"frame_hex"`       // the frame as its sender sent it
	Delivered   [2]int `json:"delivered"`       // bytes of it acknowledged by the receiver's kernel, accepted by ours
	Call        int    `json:"call,omitempty"`  // the call judged
	Outcome     string `json:"outcome"`         // what the client reported for it
	ServerState string `json:"server_state"`    // the key in the server's table at that moment
	// Application tells who entered without a grant, and which two were inside at a
	// time: at most maxApplication lines.
	Application []string `json:"application,omitempty"`
	Timeline    []string `json:"timeline"` // at most maxTimeline lines
}

// Finding is one broken rule.
type Finding struct {
	Rule      string    `json:"rule"`
	Severity  Severity  `json:"severity"`
	Certainty Certainty `json:"certainty"`
	Side      string    `json:"side"` // "client" or "server"
	Message   string    `json:"message"`
	Evidence  Evidence  `json:"evidence"`
}

// Result is what a history shows.
type Result struct {
	Findings []Finding
	// Checked lists the ids of the rules that were really judged: the situation
	// that the rule speaks of occurred, and was visible. In the order of Rules.
	Checked []string
	// Unknown lists keys for which the search for an order of the operations was given
	// up: whether the server was right about them is not known.
	Unknown []string
	// NeedsFencing counts entries on a grant whose lease had ended, where no
	// client could have known it (spec/ticketing.md §3.3).
	NeedsFencing int
	// Fenced has one line for each of them, with both holders and tokens.
	Fenced []string
}

// Check judges the history of one case. The order of events is that of their
// Seq, whatever their order in the slice. It never fails: what cannot be judged
// is missing in Checked.
func Check(events []history.Event, p Policy) Result {
	var res Result
	g, ok := frames.Builtin(p.Dialect)
	if !ok {
		return res
	}
	whole := inSequence(events)
	judged := bounded(whole)
	v := newView(judged, g, p)
	v.shortened = len(judged) < len(whole)
	for i := range rules {
		r := &rules[i]
		if p.Only != nil && !p.Only[r.ID] {
			continue
		}
		j := &judge{view: v, rule: &r.Rule, res: &res}
		r.judge(j)
		if j.judged {
			res.Checked = append(res.Checked, r.ID)
		}
	}
	if p.Embedded && slices.ContainsFunc(res.Findings, certainServer) {
		for i := range res.Findings {
			if res.Findings[i].Side == sideClient {
				res.Findings[i].Certainty = Suspect
			}
		}
	}
	return res
}

// MaxRequests is how many requests of a case are judged: what a client does that
// sends more is shown by these, and rules compare each with all others.
const MaxRequests = 100

// bounded cuts a history before the request that is one too many.
func bounded(events []history.Event) []history.Event {
	n := 0
	for i := range events {
		e := &events[i]
		if e.Kind != history.Received || e.Dir != frames.ClientToServer || e.Off != 0 || e.Frame == nil || e.Frame.Op != opAcquire && e.Frame.Op != opRelease {
			continue
		}
		if n++; n > MaxRequests {
			return events[:i]
		}
	}
	return events
}

func certainServer(f Finding) bool { return f.Side == sideServer && f.Certainty == Certain }

// Verdict is the worst that the certain findings about the client say. What
// findings about the server mean is for the caller to know.
func (r Result) Verdict() Verdict {
	worst := Safe
	for _, f := range r.Findings {
		if f.Side != sideClient || f.Certainty != Certain {
			continue
		}
		switch f.Severity {
		case Safety:
			return Unsafe
		case Contract:
			worst = Nonconforming
		case Hygiene:
			if worst == Safe {
				worst = NonStrict
			}
		}
	}
	return worst
}

// judge is the pen of one rule: it notes that the rule was judged and what it
// found.
type judge struct {
	*view
	rule   *Rule
	res    *Result
	judged bool
}

// bound is the severity of a rule that comes from a clause for official clients of
// the current dialect (spec/rules.md, marked °).
func (j *judge) bound() Severity {
	if j.policy.Profile == ProfileOfficial && j.owners {
		return Contract
	}
	return Hygiene
}

// checked notes that the situation the rule speaks of occurred.
func (j *judge) checked() { j.judged = true }

// find adds a finding, and counts the rule as judged.
func (j *judge) find(s Severity, c Certainty, message string, e Evidence) {
	j.judged = true
	j.res.Findings = append(j.res.Findings, Finding{
		Rule: j.rule.ID, Severity: s, Certainty: c, Side: j.rule.Side, Message: message, Evidence: e,
	})
}
