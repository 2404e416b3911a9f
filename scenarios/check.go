package scenarios

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tornwire/history"
	"tornwire/internal/strict"
	"tornwire/internal/words"
)

// checkAddress tells of an address that cannot be: HOST:PORT or unix:/PATH.
func checkAddress(o *strict.Object, member, address string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			o.Problem(member, "is %q, and the path of a unix socket begins with /", address)
		}
		return
	}
	_, port, err := net.SplitHostPort(address)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
		o.Problem(member, "is %q, not HOST:PORT or unix:/PATH", address)
	}
}

// checks is what is known of a scenario while its steps are gone through in their order.
type checks struct {
	*reader
	calls  map[string]Client // asked for so far, and whose they are
	over   map[string]string // by call: what ended it, "settled" or "released"
	held   map[string]bool   // keys of the tool's own holder
	armed  map[string]bool   // rules
	ever   map[string]bool   // rules that were armed at any time
	opened map[string]bool   // gates
	pauses time.Duration
}

// check finds what cannot be of a scenario whose parts are right by themselves.
func (r *reader) check() {
	c := &checks{
		reader: r, calls: map[string]Client{}, over: map[string]string{}, held: map[string]bool{},
		armed: map[string]bool{}, ever: map[string]bool{}, opened: map[string]bool{},
	}
	c.doors()
	for _, x := range r.s.Rules {
		c.armed[x.ID], c.ever[x.ID] = x.Armed, x.Armed
		for _, gate := range []string{x.Trigger.After, x.Until, x.Signal} {
			if gate != "" && !slices.Contains(r.s.gates, gate) {
				r.s.gates = append(r.s.gates, gate)
			}
		}
		c.opened[x.Signal] = true
	}
	slices.Sort(r.s.gates)
	for i := range r.s.Steps {
		c.step(fmt.Sprintf("steps.%d", i), &r.s.Steps[i])
	}
	for i, x := range r.s.Rules {
		path := fmt.Sprintf("rules.%d", i)
		if !c.ever[x.ID] {
			r.bad.Add(path+".armed", "is false, and no step arms the rule")
		}
		if after := x.Trigger.After; after != "" && !c.opened[after] {
			r.bad.Add(path+".after", "is the gate %q, which neither a step nor a rule opens: the rule never acts", after)
		}
	}
	for i := range r.s.Expect {
		c.expectation(fmt.Sprintf("expect.%d", i), &r.s.Expect[i])
	}
	if len(r.s.Steps) == 0 && !slices.ContainsFunc(r.s.Clients, func(x Client) bool { return x.Kind == Command }) {
		r.bad.Add("steps", "is empty, and no client is a command: nothing would happen")
	}
	if c.pauses > r.s.Timeout {
		r.bad.Add("timeout", "is %s, and the steps pause for %s", r.s.Timeout, c.pauses)
	}
}

// doors finds proxies that cannot be listened at for all who know them.
func (c *checks) doors() {
	for i, p := range c.s.Proxies {
		if p.Listen == "" {
			continue
		}
		var users []string
		for _, x := range c.s.Clients {
			if slices.Contains(x.Proxies, p.Name) {
				users = append(users, x.Name)
			}
		}
		if len(users) > 1 {
			c.bad.Add(fmt.Sprintf("proxies.%d.listen", i), "is one address for %s: whose connection it is could not be told; give each a proxy of its own", strings.Join(users, " and "))
		}
	}
}

func (c *checks) step(path string, s *Step) {
	if s.When != nil {
		c.condition(path+".when", s.When)
	}
	at := path + "." + string(s.Do)
	switch s.Do {
	case DoAcquire:
		c.acquire(path, at, s)
	case DoOpen, DoClose:
		c.speaks(at, s.Name)
	case DoSettle, DoEnter, DoLeave, DoRelease, DoReleasing, DoReleased, DoCancel:
		c.ofCall(at, s)
	case DoHold, DoTake:
		if c.held[s.Name] {
			c.bad.Add(at, "is %q, which the tool's own holder has already", s.Name)
		}
		c.held[s.Name] = true
		c.table(at)
	case DoFree:
		if !c.held[s.Name] {
			c.bad.Add(at, "is %q, and no step before it holds or takes that", s.Name)
		}
		c.held[s.Name] = false
	case DoExpired:
		c.table(at)
	case DoArm, DoDisarm:
		c.arming(at, s)
	case DoGate, DoShut:
		if !slices.Contains(c.s.gates, s.Name) {
			c.bad.Add(at, "is %q, and no rule names that gate%s", s.Name, words.DidYouMean(s.Name, c.s.gates))
		}
		c.opened[s.Name] = true
	case DoLead, DoNotice, DoStandby, DoActive:
		c.leading(at, s)
	case DoPause:
		c.pauses += s.Time
	case DoWait:
		if s.When == nil {
			c.bad.Add(at, "has no when: nothing is waited for")
		}
	}
}

// table tells where a step needs a table that is the tool's own.
func (c *checks) table(at string) {
	if c.s.Server.Kind == Upstream {
		c.bad.Add(at, "needs a server of the tool's own, and this one is an upstream")
	}
}

// speaks tells whether the tool can ask a client for something.
func (c *checks) speaks(at, name string) (Client, bool) {
	i := slices.IndexFunc(c.s.Clients, func(x Client) bool { return x.Name == name })
	if i < 0 {
		c.bad.Add(at, "%s", strict.OneOf(name, names(c.s.Clients, func(x Client) string { return x.Name }), "client"))
		return Client{}, false
	}
	x := c.s.Clients[i]
	if x.Kind == Command || x.Kind == Anyone {
		c.bad.Add(at, "asks client %s for something, which is %s: it does what it wants", name, map[ClientKind]string{Command: "a command", Anyone: "whoever connects"}[x.Kind])
		return x, false
	}
	return x, true
}

func (c *checks) acquire(path, at string, s *Step) {
	x, ok := c.speaks(path+".client", s.Client)
	if _, twice := c.calls[s.Name]; twice {
		c.bad.Add(at, "is %q, as a call before it", s.Name)
	}
	if ok {
		c.calls[s.Name] = x
	}
	if s.Wait == 0 && c.g != nil {
		if shape := c.keyShape(); shape != nil {
			if _, owned := shape.Field("owner"); !owned {
				c.bad.Add(path+".wait", "is 0s, which dialect %s has no word for", c.s.Dialect)
			}
		}
	}
}

// ofCall tells of a call that cannot be there, or is over.
func (c *checks) ofCall(at string, s *Step) {
	if _, ok := c.calls[s.Name]; !ok {
		c.bad.Add(at, "is %q, and no step before it acquires that%s", s.Name, c.near(s.Name))
		return
	}
	switch was := c.over[s.Name]; {
	case s.Do == DoCancel && was != "":
		c.bad.Add(at, "is %q, which is over: a step before it has %s it", s.Name, was)
	case s.Do == DoReleased && was != "released":
		c.bad.Add(at, "is %q, and no step before it releases that", s.Name)
	case s.Do == DoEnter && was == "released":
		c.bad.Add(at, "is %q, which a step before it has released", s.Name)
	}
	switch s.Do {
	case DoRelease, DoReleasing:
		c.over[s.Name] = "released"
	case DoSettle, DoEnter:
		if c.over[s.Name] == "" {
			c.over[s.Name] = "settled"
		}
	}
}

func (c *checks) near(call string) string {
	var list []string
	for name := range c.calls {
		list = append(list, name)
	}
	slices.Sort(list)
	return words.DidYouMean(call, list)
}

func (c *checks) arming(at string, s *Step) {
	all := names(c.s.Rules, func(x Rule) string { return x.ID })
	if !slices.Contains(all, s.Name) {
		c.bad.Add(at, "is %q, and there is no such rule%s", s.Name, words.DidYouMean(s.Name, all))
		return
	}
	if c.armed[s.Name] == (s.Do == DoArm) {
		c.bad.Add(at, "is %q, which is %s already", s.Name, map[bool]string{true: "armed", false: "disarmed"}[s.Do == DoArm])
	}
	c.armed[s.Name] = s.Do == DoArm
	c.ever[s.Name] = c.ever[s.Name] || s.Do == DoArm
}

func (c *checks) leading(at string, s *Step) {
	if c.s.Server.Kind != Cluster {
		c.bad.Add(at, "needs a cluster, and this server's kind is %s", c.s.Server.Kind)
	}
	all := names(c.s.Proxies, func(p Proxy) string { return p.Name })
	if s.Do == DoLead {
		all = append(all, Nobody)
	}
	if !slices.Contains(all, s.Name) {
		c.bad.Add(at, "%s", strict.OneOf(s.Name, all, "proxy"))
	}
}

// condition tells of one that can never hold where it stands.
func (c *checks) condition(path string, w *Condition) {
	if w.Fired != "" {
		c.fires(path+".fired", w.Fired, Range{w.Count, -1}, c.armed)
	}
	if w.Call != "" {
		if _, ok := c.calls[w.Call]; !ok {
			c.bad.Add(path+".call", "is %q, and no step before it acquires that%s: the step is never reached", w.Call, c.near(w.Call))
		}
	}
	c.visible(path+".event", w.Event)
	if w.Within > c.s.Timeout {
		c.bad.Add(path+".within", "is %s, over the timeout of %s", w.Within, c.s.Timeout)
	}
}

// fires tells of a rule that cannot act, or not as often.
func (c *checks) fires(path, id string, count Range, armed map[string]bool) {
	i := slices.IndexFunc(c.s.Rules, func(x Rule) bool { return x.ID == id })
	switch {
	case i < 0:
		all := names(c.s.Rules, func(x Rule) string { return x.ID })
		c.bad.Add(path, "is %q, and there is no such rule%s", id, words.DidYouMean(id, all))
	case !armed[id] && count.Least > 0:
		c.bad.Add(path, "is %q, which no step before it has armed: it is never reached", id)
	default:
		if most := mostFirings(c.s.Rules[i]); most > 0 && count.Least > most {
			c.bad.Add(path, "is %q at least %d times, and the rule acts %d times at most", id, count.Least, most)
		}
	}
}

// mostFirings is how often a rule can act, 0 for no limit.
func mostFirings(x Rule) int {
	if x.Trigger.Nth > 0 || x.Trigger.ClientNth > 0 {
		return 1
	}
	return x.Times
}

// tableEvents are what only the server's table tells.
var tableEvents = []history.Kind{history.Queued, history.Granted, history.GrantEnded, history.AttemptEnded}

func (c *checks) visible(path, kind string) {
	if c.s.Server.Kind == Upstream && slices.Contains(tableEvents, history.Kind(kind)) {
		c.bad.Add(path, "is %s, and the table of an upstream is not seen", kind)
	}
}

func (c *checks) expectation(path string, x *Expectation) {
	if x.Fired != "" {
		c.fires(path+".fired", x.Fired, x.Count, c.ever)
	}
	if x.Call != "" {
		if _, ok := c.calls[x.Call]; !ok {
			c.bad.Add(path+".call", "is %q, and no step acquires that%s", x.Call, c.near(x.Call))
		}
	}
	c.visible(path+".event", x.Event)
	if x.NoFinding == AnyRule && slices.ContainsFunc(c.s.Expect, func(y Expectation) bool { return y.Finding != "" }) {
		c.bad.Add(path+".no_finding", "is any, and another expectation wants a finding")
	}
}
