package api

import (
	"encoding/hex"
	"errors"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/internal/strict"
	"tornwire/proxy"
	"tornwire/scenarios"
)

// readRule reads a rule from a body. The id may be left out if it is given.
// Everything is checked that can be without the proxy; g is its grammar.
func readRule(body []byte, id string, client string, g *frames.Grammar) (faults.Rule, error) {
	o, bad, err := parse(body)
	if err != nil {
		return faults.Rule{}, err
	}
	r, err := scenarios.ReadRule(o, id, g)
	if c := r.Trigger.Client; c != "" && c != client {
		o.Problem("client", "is %q; the only one of this proxy is its name, %q", c, client)
	}
	o.Done()
	if err != nil {
		return r, err
	}
	return r, refusal(*bad)
}

// ruleError tells why a proxy did not take a rule.
func ruleError(err error) error {
	switch {
	case errors.Is(err, proxy.ErrRuleExists):
		return errRuleExists
	case errors.Is(err, proxy.ErrNoRule):
		return errRuleNotFound
	case errors.Is(err, proxy.ErrRules), errors.Is(err, proxy.ErrGates):
		return newError(statusFull, "%v", err)
	}
	var bad strict.Problems
	if rest := bad.Merge(err); rest != nil {
		return rest
	}
	return refusal(bad)
}

// RuleView is a rule as it is told to clients. What a rule leaves open is left
// out.
type RuleView struct {
	ID         string            `json:"id"`
	Dir        frames.Direction  `json:"dir"`
	Op         string            `json:"op"`
	Session    int               `json:"session,omitempty"`
	Nth        int               `json:"nth,omitempty"`
	SessionNth int               `json:"session_nth,omitempty"`
	Client     string            `json:"client,omitempty"`
	ClientNth  int               `json:"client_nth,omitempty"`
	From       string            `json:"from,omitempty"`
	Where      map[string]string `json:"where,omitempty"`
	Chance     float64           `json:"chance,omitempty"`
	After      string            `json:"after,omitempty"`
	Window     *WindowView       `json:"window,omitempty"`
	Skip       int               `json:"skip,omitempty"`
	Times      int               `json:"times,omitempty"`
	Fault      *FaultView        `json:"fault,omitempty"`
	InjectHex  string            `json:"inject_hex,omitempty"`
	Signal     string            `json:"signal,omitempty"`
	TTL        string            `json:"ttl"`

	Matched int64  `json:"matched"` // frames that met the trigger but for its chance
	Fired   int64  `json:"fired"`   // times that the fault acted
	Bytes   int64  `json:"bytes"`   // of the frames that were taken
	Left    string `json:"left"`    // until the rule is disarmed
}

// WindowView is the time, since the rule was armed, in which it acts.
type WindowView struct {
	From string `json:"from"`
	To   string `json:"to,omitempty"`
}

// FaultView is a fault of a rule.
type FaultView struct {
	Type  string            `json:"type"`
	At    scenarios.Offset  `json:"at"`
	Until string            `json:"until,omitempty"`
	Args  map[string]string `json:"args,omitempty"`
}

func viewRule(s proxy.RuleState) RuleView {
	r, t := s.Rule, s.Rule.Trigger
	v := RuleView{
		ID: r.ID, Dir: t.Dir, Op: t.Op, Session: t.Session, Nth: t.Nth, SessionNth: t.SessionNth,
		Client: t.Client, ClientNth: t.ClientNth, Where: t.Where, Chance: t.Chance, After: t.After,
		Skip: r.Skip, Times: r.Times, InjectHex: hex.EncodeToString(r.Inject), Signal: r.Signal, TTL: r.TTL.String(),
		Matched: s.Matched, Fired: s.Fired, Bytes: s.Bytes, Left: s.Left.String(),
	}
	if t.From.IsValid() {
		v.From = t.From.String()
	}
	if t.Begin > 0 || t.End > 0 {
		v.Window = &WindowView{From: t.Begin.String()}
		if t.End > 0 {
			v.Window.To = t.End.String()
		}
	}
	if r.Fault != nil {
		v.Fault = &FaultView{Type: r.Fault.ID, At: scenarios.Offset(r.At), Until: r.Until}
		for name, d := range r.Args {
			if v.Fault.Args == nil {
				v.Fault.Args = map[string]string{}
			}
			v.Fault.Args[name] = d.String()
		}
	}
	return v
}
