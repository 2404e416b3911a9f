package scenarios

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/internal/strict"
	"tornwire/internal/words"
)

// MaxName is the most bytes of a name of a rule, a gate or a proxy.
const MaxName = 128

// Times that a rule stays armed.
const (
	// DefaultTTL is that of a rule which says none.
	DefaultTTL = 10 * time.Minute
	// MaxTTL is the longest.
	MaxTTL = 24 * time.Hour
)

// ReadRule reads a rule from a JSON object, as the REST API takes it; it asks for all
// members that a rule has. An id may be given, and then left out. Everything is checked
// that can be without a proxy: g is its grammar, nil if it has none. What is wrong with the
// rule is told as problems of o; the error is for what is not.
func ReadRule(o *strict.Object, id string, g *frames.Grammar) (faults.Rule, error) {
	r := faults.Rule{ID: id, TTL: DefaultTTL}
	bad := &strict.Problems{}
	at := *o
	at.Bad = bad
	readRule(&at, &r, id)
	o.Asked(&at)
	var err error
	if !bad.Has(o.Path + "dir") { // what the other direction has is no news
		err = bad.MergeAt(o.Path, Fits(r, g))
	} else if _, bare := r.Prepare(nil); bad.MergeAt(o.Path, bare) != nil {
		err = bare
	}
	*o.Bad = append(*o.Bad, *bad...)
	return r, err
}

func readRule(o *strict.Object, r *faults.Rule, id string) {
	o.Text("id", &r.ID)
	if id != "" && r.ID != id {
		o.Problem("id", "is %q, and the path names %q", r.ID, id)
	} else if reason := BadName(r.ID); reason != "" {
		o.Problem("id", "%s", reason)
	}
	readTrigger(o, &r.Trigger)
	o.Count("skip", &r.Skip)
	o.Count("times", &r.Times)
	readFault(o, r)
	for _, gate := range []struct {
		name string
		to   *string
	}{{"after", &r.Trigger.After}, {"signal", &r.Signal}} {
		readGate(o, gate.name, gate.to)
	}
	if o.Span("ttl", &r.TTL); r.TTL <= 0 || r.TTL > MaxTTL {
		o.Problem("ttl", "is %s, not over 0s and up to %s", r.TTL, MaxTTL)
	}
}

// Fits tells what is wrong with a rule for a proxy with a grammar, or without.
func Fits(r faults.Rule, g *frames.Grammar) error {
	_, err := r.Prepare(g)
	if g == nil && r.Trigger.Op != "" && r.Trigger.Op != faults.OpOpen {
		return errors.Join(&faults.FieldError{
			Field: "op", Reason: fmt.Sprintf("op is %q, and the proxy has no grammar: only open is possible", r.Trigger.Op),
		}, err)
	}
	return err
}

// readGate reads the name of a gate.
func readGate(o *strict.Object, name string, to *string) {
	if o.Text(name, to) && *to != "" {
		if reason := BadName(*to); reason != "" {
			o.Problem(name, "%s", reason)
		}
	}
}

func readTrigger(o *strict.Object, t *faults.Trigger) {
	dir := frames.ClientToServer.String()
	o.Text("op", &t.Op)
	given := o.Text("dir", &dir)
	d, err := frames.ParseDirection(dir)
	switch {
	case err != nil:
		o.Problem("dir", "is %q, not c2s or s2c", dir)
	case !given && t.Op != faults.OpOpen && !o.Bad.Has(o.Path+"dir"):
		o.Problem("dir", "is missing: c2s or s2c")
	}
	t.Dir = d
	o.Count("session", &t.Session)
	o.Count("nth", &t.Nth)
	o.Count("session_nth", &t.SessionNth)
	o.Text("client", &t.Client)
	o.Count("client_nth", &t.ClientNth)
	var from string
	if o.Text("from", &from) && from != "" {
		if t.From, err = prefix(from); err != nil {
			o.Problem("from", "is %q, not an address or a prefix such as 10.0.0.0/8", from)
		}
	}
	if w := o.Object("where"); w != nil {
		t.Where = map[string]string{}
		for _, name := range w.Names() {
			var pattern string
			if w.Text(name, &pattern) {
				t.Where[name] = pattern
			}
		}
	}
	if o.Number("chance", &t.Chance) && !(t.Chance > 0 && t.Chance <= 1) {
		o.Problem("chance", "is %v, not over 0 and up to 1", t.Chance)
	}
	if w := o.Object("window"); w != nil {
		w.Span("from", &t.Begin)
		w.Span("to", &t.End)
		w.Done()
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

func readFault(o *strict.Object, r *faults.Rule) {
	f := o.Object("fault")
	var data string
	if o.Text("inject_hex", &data) {
		var err error
		if r.Inject, err = hex.DecodeString(data); err != nil {
			o.Problem("inject_hex", "is not an even number of hexadecimal digits")
		}
	}
	if f == nil {
		return
	}
	var id string
	if f.Text("type", &id); id == "" && !o.Bad.Has("fault.type") {
		f.Problem("type", "is missing; \"tornwire list faults\" shows what there is")
	}
	t, ok := faults.ByID(id)
	if of := faults.Select(id); !ok && len(of) > 0 { // a family: a rule does one thing, the first that is listed
		t, ok = of[0], true
	}
	if !ok && id != "" {
		f.Problem("type", "is %q, and there is no such fault%s; \"tornwire list faults\" shows what there is", id, words.DidYouMean(id, ids()))
	}
	r.Fault = t
	var at Offset
	if strict.Read(f, "at", `a whole number from 0 to 4294967295, or "n"`, &at) {
		r.At = int(at)
	}
	readGate(f, "until", &r.Until)
	if args := f.Object("args"); args != nil {
		r.Args = faults.Args{}
		for _, name := range args.Names() {
			var d time.Duration
			if args.Span(name, &d) {
				r.Args[name] = d
			}
		}
	}
	f.Done()
}

func ids() []string {
	var out []string
	for _, t := range faults.All() {
		out = append(out, t.ID)
	}
	return out
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

// BadName tells why a name cannot be used; "" if it can. It has to stand for one
// segment of a path.
func BadName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > MaxName:
		return "has " + strconv.Itoa(len(name)) + " bytes, over " + strconv.Itoa(MaxName)
	case name == "." || name == "..":
		return "is " + name + ", which no path can name"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a space"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	}
	for _, r := range name {
		if r == '/' || !unicode.IsPrint(r) {
			return "has " + strconv.QuoteRune(r) + " in it, which no name may have"
		}
	}
	return ""
}
