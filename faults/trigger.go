package faults

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"tornwire/frames"
)

// Frame is what a trigger can see of a frame when its first byte has arrived.
type Frame struct {
	Dir        frames.Direction
	Op         string
	Session    int        // from 1, in accept order
	Nth        int        // of its direction and op over all sessions, from 1
	SessionNth int        // the same within its session
	Client     string     // whose listener it came in on
	ClientNth  int        // of its direction and op over all sessions of that client, from 1
	From       netip.Addr // the client's address; invalid where it has none
}

// Trigger says to which frames a rule applies. A zero value means any.
type Trigger struct {
	Dir        frames.Direction
	Op         string
	Session    int
	Nth        int
	SessionNth int
	Client     string
	ClientNth  int
	From       netip.Prefix // of the client's address; zones are not looked at
	// Where has conditions on fixed fields and on the text of the frame, by their
	// names in the grammar; all must hold. A number is "17", "0x11" or a range such as
	// "5..9"; text is a pattern with * for any run of bytes and ? for any one. The
	// frame is held back until as much of it is there as they have to see.
	Where map[string]string
	// Chance is the probability with which a frame that meets all else is taken,
	// over 0 and up to 1; 0 means always. The draw depends on the proxy's seed,
	// the rule's id, session, direction and the frame's number alone.
	Chance float64
	// After is a gate that has to be open.
	After string
	// Begin and End are a window of time since the rule was armed; no end if 0.
	Begin, End time.Duration
}

// Applies tells whether all that is known at a frame's first byte meets the
// trigger. Where, Chance, After and the window are not asked.
func (t *Trigger) Applies(f Frame) bool {
	return t.Dir == f.Dir && t.Op == f.Op &&
		(t.Session == 0 || t.Session == f.Session) &&
		(t.Nth == 0 || t.Nth == f.Nth) &&
		(t.SessionNth == 0 || t.SessionNth == f.SessionNth) &&
		(t.Client == "" || t.Client == f.Client) &&
		(t.ClientNth == 0 || t.ClientNth == f.ClientNth) &&
		(!t.From.IsValid() || t.From.Contains(f.From.Unmap().WithZone("")))
}

// plain is a prefix without the two things by which one address has several
// forms: IPv4 written as IPv6, and bits behind the prefix.
func plain(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// Counts tells whether the trigger names a frame by a number that no second
// connection has.
func (t *Trigger) Counts() bool { return t.Session > 0 || t.Nth > 0 || t.ClientNth > 0 }

// FieldError is a problem with one field of a rule, named as the REST API and
// scenarios name it ("fault.at", "where.key").
type FieldError struct{ Field, Reason string }

// Error returns the reason, which names the values.
func (e *FieldError) Error() string { return e.Reason }

func fieldf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// check tells why a trigger never matches a frame, or, if it has one, a frame that
// the fault can act on. Without a grammar, names are taken on trust.
func (t *Trigger) check(f *Type, g *frames.Grammar) error {
	var errs []error
	switch {
	case t.Dir > frames.ServerToClient:
		errs = append(errs, fieldf("dir", "direction %d is neither %s nor %s", t.Dir, frames.ClientToServer, frames.ServerToClient))
	case t.Op == "":
		errs = append(errs, fieldf("op", "op is missing"))
	default:
		errs = append(errs, t.checkOp(f, g))
	}
	errs = append(errs, t.checkNumbers())
	if t.Op == OpOpen {
		errs = append(errs, t.checkOpen(f))
	}
	return errors.Join(errs...)
}

func (t *Trigger) checkNumbers() error {
	var errs []error
	for _, n := range []struct {
		field string
		v     int
	}{{"session", t.Session}, {"nth", t.Nth}, {"session_nth", t.SessionNth}, {"client_nth", t.ClientNth}} {
		if n.v < 0 {
			errs = append(errs, fieldf(n.field, "%s is %d, not 0 or more", n.field, n.v))
		}
	}
	if !(t.Chance >= 0 && t.Chance <= 1) {
		errs = append(errs, fieldf("chance", "chance is %v, not over 0 up to 1", t.Chance))
	}
	if t.From != (netip.Prefix{}) && !t.From.IsValid() {
		errs = append(errs, fieldf("from", "from is no prefix of addresses"))
	}
	if t.Begin < 0 || t.End < 0 || t.End > 0 && t.End <= t.Begin {
		errs = append(errs, fieldf("window", "the window is from %s to %s: it never is", t.Begin, t.End))
	}
	return errors.Join(errs...)
}

// checkOp tells why the frame that is meant does not exist, or is not one for the
// fault.
func (t *Trigger) checkOp(f *Type, g *frames.Grammar) error {
	switch {
	case f != nil && f.Only != "" && t.Op != f.Only:
		return fieldf("op", "fault %s is meant for %s, not for %s", f.ID, f.Only, t.Op)
	case f != nil && f.Opens != (t.Op == OpOpen):
		return fieldf("op", "fault %s acts on a frame, and %s is a connection", f.ID, t.Op)
	case g == nil || t.Op == OpOpen:
		return nil
	}
	s, ok := g.Shape(t.Dir, t.Op)
	if !ok {
		return fieldf("op", "the grammar has no %s in %s; it has %s", t.Op, t.Dir, opsOf(g, t.Dir))
	}
	return checkWhere(t.Where, s)
}

// checkOpen tells what cannot be known of a connection.
func (t *Trigger) checkOpen(f *Type) error {
	early := f != nil && f.ID == "refuse"
	var errs []error
	bad := func(is bool, field, format string, args ...any) {
		if is {
			errs = append(errs, fieldf(field, format, args...))
		}
	}
	bad(t.Dir == frames.ServerToClient, "dir", "a connection is %s, not %s", frames.ClientToServer, t.Dir)
	bad(t.SessionNth > 1, "session_nth", "a connection is the first of its session, not number %d", t.SessionNth)
	bad(len(t.Where) > 0, "where", "a connection has no fields")
	bad(early && t.From.IsValid(), "from", "who connects is not known before the connection is refused")
	bad(early && (t.Begin > 0 || t.End > 0), "window", "fault refuse begins when the rule is armed, and has no window")
	return errors.Join(errs...)
}

// opsOf lists the ops of a direction.
func opsOf(g *frames.Grammar, dir frames.Direction) string {
	var ops []string
	for _, s := range g.Shapes() {
		if s.Dir == dir {
			ops = append(ops, s.Op)
		}
	}
	return strings.Join(ops, ", ")
}
