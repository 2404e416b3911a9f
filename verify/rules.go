package verify

import (
	"maps"
	"slices"
	"time"

	"tornwire/faults"
	"tornwire/frames"
)

// What a stray reply names: an owner and a token that nobody has, and, where a
// reply has no owner, a key that nobody asks for.
const (
	strayOwner = 0x53545241594F574E
	strayToken = 0x5354524159544F4B
	strayKey   = "stray-1"
)

// payload builds what an injecting fault writes beside a frame of an exchange. It
// is false where no server of the dialect may send such a thing there.
func payload(g *frames.Grammar, kind string, x Expected) ([]byte, bool) {
	if kind == "keepalive" {
		_, ok := g.Shape(x.Frame.Dir, frames.OpKeepAlive)
		return []byte{'\n'}, ok
	}
	if x.Frame.Dir != frames.ServerToClient {
		return nil, false
	}
	switch kind {
	case "notice":
		return message(g, "L", "127.0.0.9:9", nil)
	case "error":
		return message(g, "E", "not_active", nil)
	case "garbage":
		return []byte("Zgarbage\n"), true
	case "stray":
		return stray(g, x)
	}
	return nil, false
}

// stray is a reply that nobody waits for: before the answer to a release a T that
// names its token in the owner's place, else a grant of the frame's key for a
// foreign owner, or, in a dialect without owners, of a foreign key.
func stray(g *frames.Grammar, x Expected) ([]byte, bool) {
	values := map[string]uint64{"owner": strayOwner, "token": strayToken}
	key := x.Tail
	if key == "" || !current(g) {
		key = strayKey
	}
	if x.Token != 0 && current(g) {
		values["owner"] = x.Token
		return message(g, "T", key, values)
	}
	return message(g, "A", key, values)
}

// message builds a frame of the server.
func message(g *frames.Grammar, op, tail string, values map[string]uint64) ([]byte, bool) {
	s, ok := g.Shape(frames.ServerToClient, op)
	if !ok {
		return nil, false
	}
	var v []uint64
	for _, f := range s.Fields {
		v = append(v, values[f.Name])
	}
	b, err := s.Append(nil, []byte(tail), v...)
	return b, err == nil
}

// sweepArgs are arguments that the sweep does not leave at their defaults: no
// deadline of a workload may fall on the end of a pause.
var sweepArgs = map[string]faults.Args{
	"coalesce": {"most": 600 * time.Millisecond},
}

// rulesOf returns the rules that put the case's fault onto its frame.
func rulesOf(c Case, g *frames.Grammar) (*faults.Set, error) {
	if c.ID.Fault == NoFault || c.Workload.Own != nil && c.Workload.Own.Payload != nil {
		return nil, nil
	}
	t, ok := faults.ByID(c.ID.Fault)
	if !ok {
		return nil, usagef("there is no fault %q", c.ID.Fault)
	}
	f := c.ID.Frame
	rule := faults.Rule{
		ID: c.ID.plain(), Fault: t, At: c.ID.Offset, Args: c.Workload.Args[t.ID],
		Trigger: faults.Trigger{Dir: f.Dir, Op: f.Op, Session: f.Session, Nth: f.Nth},
	}
	if rule.Args == nil {
		rule.Args = sweepArgs[t.ID]
	}
	if refusesLater(c) > 0 {
		rule.Args = faults.Args{"most": refuseLimit}
	}
	if t.Injects != "" {
		rule.Inject, _ = payload(g, t.Injects, c.Frame)
	}
	own := c.Workload.Own
	switch {
	case own != nil && len(own.Each) > 0:
		return eachClient(rule, own.Each)
	case c.Workload.EachSession:
		rule.Trigger.Nth, rule.Trigger.SessionNth = 0, f.Nth
	case f.Op == opOpen:
		rule.Trigger = faults.Trigger{Dir: f.Dir, Op: f.Op, Client: c.Frame.Client, ClientNth: c.Frame.ClientNth}
	case f.inSession() > 0:
		rule.Trigger.Session, rule.Trigger.Nth, rule.Trigger.SessionNth = f.inSession(), 0, f.Nth
	}
	if own != nil {
		rule.Args = own.Args
	}
	return faults.NewSet(rule)
}

// eachClient makes a rule for the first such frame of each client.
func eachClient(rule faults.Rule, each map[string]faults.Args) (*faults.Set, error) {
	var rules []faults.Rule
	for _, client := range slices.Sorted(maps.Keys(each)) {
		rule.Args = each[client]
		rule.Trigger = faults.Trigger{Dir: rule.Trigger.Dir, Op: rule.Trigger.Op, Client: client, ClientNth: 1}
		rules = append(rules, rule)
	}
	return faults.NewSet(rules...)
}
