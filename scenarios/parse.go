package scenarios

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tornwire/checker"
	"tornwire/frames"
	"tornwire/internal/strict"
)

// Parse reads a scenario from TOML. Errors are Problems, all of them at once.
func Parse(file string, source []byte) (*Scenario, error) {
	b, at, err := tree(file, source)
	if err != nil {
		return nil, err
	}
	s, bad := read(b, at)
	if len(bad) > 0 {
		return nil, placed(bad, file, at)
	}
	s.File, s.Source = file, string(source)
	return s, nil
}

// ParseJSON reads a scenario from a JSON object that says the same as its TOML would. The
// problems have paths in place of files and lines.
func ParseJSON(source []byte) (*Scenario, error) {
	if len(source) > MaxSource {
		return nil, Problems{{Message: fmt.Sprintf("it has %d bytes, over %d", len(source), MaxSource)}}
	}
	s, bad := read(source, nil)
	if len(bad) > 0 {
		return nil, placed(bad, "", nil)
	}
	s.Source = string(source)
	return s, nil
}

// placed gives problems their places, and their order.
func placed(bad strict.Problems, file string, at lines) Problems {
	var out Problems
	for _, b := range bad {
		p := Problem{File: file, Path: b.Field, Message: b.Reason}
		if at != nil {
			p.Line = at.of(b.Field)
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return out
}

// reader reads the parts of a scenario.
type reader struct {
	s   *Scenario
	bad *strict.Problems
	at  lines
	g   *frames.Grammar
}

func read(source []byte, at lines) (*Scenario, strict.Problems) {
	o, bad, err := strict.Parse(source)
	if err != nil {
		return nil, strict.Problems{{Reason: err.Error()}}
	}
	r := &reader{s: &Scenario{Timeout: DefaultTimeout, Seed: 1}, bad: bad, at: at}
	r.head(o)
	r.server(o)
	each(r, o, "proxies", MaxNodes+1, r.proxy)
	each(r, o, "clients", MaxClients, r.client)
	r.defaults()
	each(r, o, "rules", MaxRules, r.rule)
	each(r, o, "steps", MaxSteps, r.step)
	each(r, o, "expect", MaxExpects, r.expect)
	o.Done()
	r.check()
	return r.s, *bad
}

// each reads a list of objects.
func each(r *reader, o *strict.Object, name string, most int, one func(*strict.Object, int)) {
	var list []json.RawMessage
	strict.Read(o, name, "a list of tables", &list)
	if len(list) > most {
		o.Problem(name, "has %d elements, over %d", len(list), most)
		return
	}
	for i, raw := range list {
		path := fmt.Sprintf("%s.%d", name, i)
		if raw[0] != '{' {
			r.bad.Add(path, "is %s, not a table", strict.Excerpt(raw))
			continue
		}
		below := strict.NewObject(path+".", raw, r.bad)
		one(below, r.at.of(path))
		below.Done()
	}
}

func (r *reader) head(o *strict.Object) {
	s := r.s
	if o.Text("name", &s.Name); !isName(s.Name) && !r.bad.Has("name") {
		o.Problem("name", "is %q, not 1 to %d of a-z, 0-9 and -", s.Name, nameLimit)
	}
	o.Text("about", &s.About)
	if s.About == "" && !r.bad.Has("about") {
		o.Problem("about", "is missing: one sentence that says what the scenario shows")
	}
	if o.Text("clause", &s.Clause); s.Clause != "" && !isClause(s.Clause) {
		o.Problem("clause", "is %q, not a number of the client contract such as 3.5", s.Clause)
	}
	s.Dialect, s.Busy = "ticketing", checker.BusyUnsettled
	r.word(o, "dialect", frames.Names(), "dialect", &s.Dialect)
	r.g, _ = frames.Builtin(s.Dialect)
	r.word(o, "profile", []string{checker.ProfileAny, checker.ProfileOfficial}, "profile", &s.Profile)
	r.word(o, "busy", []string{checker.BusyUnsettled, checker.BusyFinal, checker.BusyRetry}, "word", &s.Busy)
	strict.Read(o, "seed", "a whole number from 0 to 18446744073709551615", &s.Seed)
	r.span(o, "timeout", time.Second, MaxTimeout, &s.Timeout)
}

const nameLimit = 64

// isName tells whether a name of a scenario can be used on a command line and in a path.
func isName(name string) bool {
	return name != "" && len(name) <= nameLimit && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && name[0] != '-'
}

func isClause(s string) bool {
	chapter, number, ok := strings.Cut(s, ".")
	n, err := strconv.Atoi(number)
	return ok && chapter == "3" && err == nil && n >= 1 && n <= 17
}

// word reads a member that has to be one of a list.
func (r *reader) word(o *strict.Object, name string, list []string, what string, to *string) {
	var v string
	if !o.Text(name, &v) {
		return
	}
	if !slices.Contains(list, v) {
		o.Problem(name, "%s", strict.OneOf(v, list, what))
		return
	}
	*to = v
}

// span reads a duration between two others.
func (r *reader) span(o *strict.Object, name string, least, most time.Duration, to *time.Duration) bool {
	var v time.Duration
	if !o.Span(name, &v) {
		return false
	}
	if v < least || v > most {
		o.Problem(name, "is %s, not %s to %s", v, least, most)
		return false
	}
	*to = v
	return true
}

// name reads a name that a file gives to something of its own.
func (r *reader) name(o *strict.Object, member string, to *string) {
	o.Text(member, to)
	if r.bad.Has(o.Path + member) {
		return
	}
	if reason := BadName(*to); reason != "" {
		o.Problem(member, "%s", reason)
	}
}

func (r *reader) server(o *strict.Object) {
	s := &r.s.Server
	s.Kind = Embedded
	below := o.Object("server")
	if below == nil {
		return
	}
	s.Line = r.at.of("server")
	kind := string(s.Kind)
	r.word(below, "kind", []string{string(Embedded), string(Cluster), string(Upstream)}, "kind of server", &kind)
	s.Kind = ServerKind(kind)
	nodes := below.Count("nodes", &s.Nodes)
	if s.Kind == Cluster && (s.Nodes < 2 || s.Nodes > MaxNodes) {
		below.Problem("nodes", "is %d, and a cluster has 2 to %d", s.Nodes, MaxNodes)
	} else if nodes && s.Kind != Cluster {
		below.Problem("nodes", "is for a cluster, and this server's kind is %s", s.Kind)
	}
	tokens := readToken(below, "first_token", &s.FirstToken)
	queue := below.Count("queue_limit", &s.QueueLimit)
	address := below.Text("address", &s.Address)
	secret := below.Text("secret_file", &s.SecretFile)
	for name, given := range map[string]bool{"first_token": tokens, "queue_limit": queue} {
		if given && s.Kind == Upstream {
			below.Problem(name, "is for a server of the tool's own, and this one is an upstream")
		}
	}
	for name, given := range map[string]bool{"address": address, "secret_file": secret} {
		if given && s.Kind != Upstream {
			below.Problem(name, "is for an upstream, and this server's kind is %s", s.Kind)
		}
	}
	if s.Kind == Upstream && s.Address == "" && !r.bad.Has("server.address") {
		below.Problem("address", "is missing: where the upstream is, HOST:PORT")
	} else if s.Kind == Upstream {
		checkAddress(below, "address", s.Address)
	}
	below.Done()
}

// readToken reads a number of 64 bits, which TOML's numbers do not hold: it may be written
// as text, such as "0xff00000000000001".
func readToken(o *strict.Object, name string, to *uint64) bool {
	const what = `a number from 1 to 18446744073709551615, or one as text such as "0xff"`
	raw := o.Raw(name)
	if raw == nil {
		return false
	}
	text, base := strings.Trim(string(raw), `"`), 10
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		text, base = hex, 16
	}
	n, err := strconv.ParseUint(text, base, 64)
	if err != nil || n == 0 {
		o.Problem(name, "is %s, not %s", strict.Excerpt(raw), what)
		return false
	}
	*to = n
	return true
}

func (r *reader) proxy(o *strict.Object, line int) {
	p := Proxy{Node: 1, Line: line}
	r.name(o, "name", &p.Name)
	if o.Count("node", &p.Node); p.Node < 1 || p.Node > max(r.s.Server.Nodes, 1) {
		o.Problem("node", "is %d, and the nodes of this server are 1 to %d", p.Node, max(r.s.Server.Nodes, 1))
	}
	if o.Text("listen", &p.Listen) {
		checkAddress(o, "listen", p.Listen)
	}
	if p.Name == Nobody {
		o.Problem("name", "is %q, which is what lead says for no node", Nobody)
	}
	if slices.ContainsFunc(r.s.Proxies, func(q Proxy) bool { return q.Name == p.Name }) {
		o.Problem("name", "is %q, as that of another proxy", p.Name)
	}
	r.s.Proxies = append(r.s.Proxies, p)
}

func (r *reader) client(o *strict.Object, line int) {
	c := Client{Kind: Reference, Line: line}
	r.name(o, "name", &c.Name)
	kind := string(c.Kind)
	r.word(o, "kind", []string{string(Reference), string(Adapter), string(Command), string(Anyone)}, "kind of client", &kind)
	c.Kind = ClientKind(kind)
	given := strict.Read(o, "command", "a list of words", &c.Command)
	switch {
	case given && c.Kind != Adapter && c.Kind != Command:
		o.Problem("command", "is for an adapter or a command, and this client's kind is %s", c.Kind)
	case given && len(c.Command) == 0, !given && c.Kind == Adapter:
		o.Problem("command", "names no program")
	}
	if strict.Read(o, "proxies", "a list of names", &c.Proxies) && len(c.Proxies) == 0 {
		o.Problem("proxies", "is empty; leave it out for all")
	}
	for i, name := range c.Proxies {
		if !slices.ContainsFunc(r.s.Proxies, func(p Proxy) bool { return p.Name == name }) {
			o.Problem("proxies", "%s", strict.OneOf(name, names(r.s.Proxies, func(p Proxy) string { return p.Name }), "proxy"))
		} else if slices.Contains(c.Proxies[:i], name) {
			o.Problem("proxies", "has %q twice", name)
		}
	}
	o.Text("secret", &c.Secret)
	if slices.ContainsFunc(r.s.Clients, func(q Client) bool { return q.Name == c.Name }) {
		o.Problem("name", "is %q, as that of another client", c.Name)
	}
	r.s.Clients = append(r.s.Clients, c)
}

// defaults adds what a scenario need not say.
func (r *reader) defaults() {
	s := r.s
	if len(s.Proxies) == 0 {
		for n := range max(s.Server.Nodes, 1) {
			s.Proxies = append(s.Proxies, Proxy{Name: fmt.Sprintf("n%d", n+1), Node: n + 1})
		}
	}
	if len(s.Clients) == 0 {
		s.Clients = []Client{{Name: "c1", Kind: Reference}}
	}
	for i := range s.Clients {
		if c := &s.Clients[i]; len(c.Proxies) == 0 {
			c.Proxies = names(s.Proxies, func(p Proxy) string { return p.Name })
		}
	}
}

func names[T any](list []T, of func(T) string) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = of(x)
	}
	return out
}

func (r *reader) rule(o *strict.Object, line int) {
	x := Rule{Armed: true, Line: line}
	o.Flag("armed", &x.Armed)
	var err error
	if x.Rule, err = ReadRule(o, "", r.g); err != nil {
		o.Problem("fault", "%v", err)
	}
	x.Client = x.Trigger.Client
	if x.Client != "" {
		r.known(o, "client", x.Client)
	}
	if slices.ContainsFunc(r.s.Rules, func(q Rule) bool { return q.ID == x.ID }) {
		o.Problem("id", "is %q, as that of another rule", x.ID)
	}
	r.s.Rules = append(r.s.Rules, x)
}

// known tells of a client that there is not.
func (r *reader) known(o *strict.Object, member, name string) (Client, bool) {
	i := slices.IndexFunc(r.s.Clients, func(c Client) bool { return c.Name == name })
	if i < 0 {
		o.Problem(member, "%s", strict.OneOf(name, names(r.s.Clients, func(c Client) string { return c.Name }), "client"))
		return Client{}, false
	}
	return r.s.Clients[i], true
}
