package api

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/internal/words"
	"tornwire/proxy"
)

// Times that a rule stays armed.
const (
	// DefaultTTL is that of a rule which says none.
	DefaultTTL = 10 * time.Minute
	// MaxTTL is the longest.
	MaxTTL = 24 * time.Hour
)

// readRule reads a rule from a body. The id may be left out if it is given.
// Everything is checked that can be without the proxy; g is its grammar.
func readRule(body []byte, id string, client string, g *frames.Grammar) (faults.Rule, error) {
	r := faults.Rule{ID: id, TTL: DefaultTTL}
	o, bad, err := parse(body)
	if err != nil {
		return r, err
	}
	o.text("id", &r.ID)
	if id != "" && r.ID != id {
		o.problem("id", "is %q, and the path names %q", r.ID, id)
	} else if reason := badName(r.ID); reason != "" {
		o.problem("id", "%s", reason)
	}
	readTrigger(o, &r.Trigger)
	if c := r.Trigger.Client; c != "" && c != client {
		o.problem("client", "is %q; the only one of this proxy is its name, %q", c, client)
	}
	o.count("skip", &r.Skip)
	o.count("times", &r.Times)
	readFault(o, &r)
	for _, gate := range []struct {
		name string
		to   *string
	}{{"after", &r.Trigger.After}, {"signal", &r.Signal}} {
		readGate(o, gate.name, gate.to)
	}
	if o.span("ttl", &r.TTL); r.TTL <= 0 || r.TTL > MaxTTL {
		o.problem("ttl", "is %s, not over 0s and up to %s", r.TTL, MaxTTL)
	}
	o.done()
	if !bad.has("dir") { // what the other direction has is no news
		if err := bad.merge(fits(r, g)); err != nil {
			return r, err
		}
	} else if _, err := r.Prepare(nil); bad.merge(err) != nil {
		return r, err
	}
	return r, bad.err()
}

// fits tells what is wrong with a rule for a proxy with a grammar, or without.
func fits(r faults.Rule, g *frames.Grammar) error {
	_, err := r.Prepare(g)
	if g == nil && r.Trigger.Op != "" && r.Trigger.Op != faults.OpOpen {
		return errors.Join(&faults.FieldError{
			Field: "op", Reason: fmt.Sprintf("op is %q, and the proxy has no grammar: only open is possible", r.Trigger.Op),
		}, err)
	}
	return err
}

// readGate reads the name of a gate.
func readGate(o *object, name string, to *string) {
	if o.text(name, to) && *to != "" {
		if reason := badName(*to); reason != "" {
			o.problem(name, "%s", reason)
		}
	}
}

func readTrigger(o *object, t *faults.Trigger) {
	dir := frames.ClientToServer.String()
	o.text("op", &t.Op)
	given := o.text("dir", &dir)
	d, err := frames.ParseDirection(dir)
	switch {
	case err != nil:
		o.problem("dir", "is %q, not c2s or s2c", dir)
	case !given && t.Op != faults.OpOpen && !o.bad.has(o.path+"dir"):
		o.problem("dir", "is missing: c2s or s2c")
	}
	t.Dir = d
	o.count("session", &t.Session)
	o.count("nth", &t.Nth)
	o.count("session_nth", &t.SessionNth)
	o.text("client", &t.Client)
	o.count("client_nth", &t.ClientNth)
	var from string
	if o.text("from", &from) && from != "" {
		if t.From, err = prefix(from); err != nil {
			o.problem("from", "is %q, not an address or a prefix such as 10.0.0.0/8", from)
		}
	}
	if w := o.object("where"); w != nil {
		t.Where = map[string]string{}
		for _, name := range w.names() {
			var pattern string
			if w.text(name, &pattern) {
				t.Where[name] = pattern
			}
		}
	}
	if o.number("chance", &t.Chance) && !(t.Chance > 0 && t.Chance <= 1) {
		o.problem("chance", "is %v, not over 0 and up to 1", t.Chance)
	}
	if w := o.object("window"); w != nil {
		w.span("from", &t.Begin)
		w.span("to", &t.End)
		w.done()
	}
}

// prefix reads a prefix, or an address for itself.
func prefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}

func readFault(o *object, r *faults.Rule) {
	f := o.object("fault")
	var data string
	if o.text("inject_hex", &data) {
		var err error
		if r.Inject, err = hex.DecodeString(data); err != nil {
			o.problem("inject_hex", "is not an even number of hexadecimal digits")
		}
	}
	if f == nil {
		return
	}
	var id string
	if f.text("type", &id); id == "" && !o.bad.has("fault.type") {
		f.problem("type", "is missing; \"tornwire list faults\" shows what there is")
	}
	t, ok := faults.ByID(id)
	if of := faults.Select(id); !ok && len(of) > 0 { // a family: a rule does one thing, the first that is listed
		t, ok = of[0], true
	}
	if !ok && id != "" {
		f.problem("type", "is %q, and there is no such fault%s; \"tornwire list faults\" shows what there is", id, words.DidYouMean(id, ids()))
	}
	r.Fault = t
	var at Offset
	if read(f, "at", `a whole number from 0 to 4294967295, or "n"`, &at) {
		r.At = int(at)
	}
	readGate(f, "until", &r.Until)
	if args := f.object("args"); args != nil {
		r.Args = faults.Args{}
		for _, name := range args.names() {
			var d time.Duration
			if args.span(name, &d) {
				r.Args[name] = d
			}
		}
	}
	f.done()
}

func ids() []string {
	var out []string
	for _, t := range faults.All() {
		out = append(out, t.ID)
	}
	return out
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
	var bad problems
	if rest := bad.merge(err); rest != nil {
		return rest
	}
	return bad.err()
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

// Offset is how many bytes of a frame pass before a fault acts: a number, or "n" for
// all, which is faults.FrameEnd.
type Offset int

// MarshalJSON writes a number, or "n".
func (o Offset) MarshalJSON() ([]byte, error) {
	if o == faults.FrameEnd {
		return []byte(`"n"`), nil
	}
	return strconv.AppendInt(nil, int64(o), 10), nil
}

// UnmarshalJSON reads a number of 32 bits, or "n".
func (o *Offset) UnmarshalJSON(b []byte) error {
	if string(b) == `"n"` {
		*o = faults.FrameEnd
		return nil
	}
	n, err := strconv.ParseUint(string(b), 10, 32)
	*o = Offset(n)
	return err
}

// FaultView is a fault of a rule.
type FaultView struct {
	Type  string            `json:"type"`
	At    Offset            `json:"at"`
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
		v.Fault = &FaultView{Type: r.Fault.ID, At: Offset(r.At), Until: r.Until}
		for name, d := range r.Args {
			if v.Fault.Args == nil {
				v.Fault.Args = map[string]string{}
			}
			v.Fault.Args[name] = d.String()
		}
	}
	return v
}
