package api

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tornwire/frames"
	"tornwire/proxy"
)

// Limits of what a request may ask for.
const (
	// MaxProxies is the most proxies that there are at once.
	MaxProxies = 1000
	// MaxGates is the most names of gates that are used on a proxy while it is there.
	MaxGates = 4096
	// MaxName is the longest name of a proxy, rule, toxic or gate, in bytes.
	MaxName = 128
	// MaxAddress is the longest address or file name, in bytes.
	MaxAddress = 1024
	// AnyPort is where a proxy listens that was not told where.
	AnyPort = "127.0.0.1:0"
)

// Settings describe a proxy. Name and Upstream have to be there.
type Settings struct {
	Name     string
	Listen   string // "host:port" or "unix:/path"; port 0 takes a free one; "" is AnyPort
	Upstream string // "host:port" or "unix:/path"
	Enabled  bool
	Grammar  string // a name of frames.Names; "": bytes just pass, and no rule can match a frame

	Unreachable proxy.Unreachable // what a client gets while the upstream cannot be reached; "" is proxy.Reset
	DialTimeout time.Duration     // 0 is proxy.DialLimit
	ProxyHeader bool              // a PROXY protocol header goes to the upstream first
	Seed        *uint64           // of what is random; nil is the manager's
}

// read changes the settings as a body says; what it leaves out stays.
func (s *Settings) read(o *object) {
	o.text("name", &s.Name)
	o.text("listen", &s.Listen)
	o.text("upstream", &s.Upstream)
	o.flag("enabled", &s.Enabled)
	o.text("grammar", &s.Grammar)
	var word string
	if o.text("unreachable", &word) {
		s.Unreachable = proxy.Unreachable(word)
	}
	if o.span("dial_timeout", &s.DialTimeout) && s.DialTimeout == 0 {
		o.problem("dial_timeout", "is 0s, not over 0s and up to %s", proxy.DialLimit)
	}
	o.flag("proxy_header", &s.ProxyHeader)
	var seed uint64
	if read(o, "seed", "a whole number from 0 to 18446744073709551615", &seed) {
		s.Seed = &seed
	}
}

var unreachables = []proxy.Unreachable{proxy.Reset, proxy.Refuse, proxy.Close, proxy.Hold}

// Check tells why there can be no proxy with these settings, or returns nil. The
// error is of type *Error and has all problems.
func (s *Settings) Check() error {
	for _, must := range []struct{ field, value string }{{"name", s.Name}, {"upstream", s.Upstream}} {
		if must.value == "" {
			return missing(must.field)
		}
	}
	var bad problems
	s.check(&bad)
	return bad.err()
}

// check finds everything that is wrong with the settings.
func (s *Settings) check(bad *problems) {
	if reason := badName(s.Name); reason != "" {
		bad.add("name", "%s", reason)
	}
	if s.Listen != "" {
		checkAddress(bad, "listen", s.Listen)
	}
	checkAddress(bad, "upstream", s.Upstream)
	if s.Grammar != "" && !slices.Contains(frames.Names(), s.Grammar) {
		bad.add("grammar", "%s", oneOf(s.Grammar, frames.Names(), "grammar"))
	}
	if s.Unreachable != "" && !slices.Contains(unreachables, s.Unreachable) {
		var list []string
		for _, u := range unreachables {
			list = append(list, string(u))
		}
		bad.add("unreachable", "%s", oneOf(string(s.Unreachable), list, "word"))
	}
	if s.DialTimeout < 0 || s.DialTimeout > proxy.DialLimit {
		bad.add("dial_timeout", "is %s, not over 0s and up to %s", s.DialTimeout, proxy.DialLimit)
	}
}

func checkAddress(bad *problems, field, address string) {
	if n := len(address); n > MaxAddress {
		bad.add(field, "has %d bytes, over %d", n, MaxAddress)
		return
	}
	network, _, err := parseAddress(address)
	if err == nil && network == "tcp" {
		_, port, _ := net.SplitHostPort(address)
		if _, err = net.LookupPort("tcp", port); err == nil && field == "upstream" && (port == "0" || port == "") {
			bad.add(field, "is %q, which has no port to connect to", address)
		}
	}
	if err != nil {
		bad.add(field, "is %q: %v", address, err)
	}
}

// badName tells why a name cannot be used; "" if it can. It has to stand for one
// segment of a path.
func badName(name string) string {
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

// config returns what the settings mean for the data path. They were checked.
func (s *Settings) config() proxy.Config {
	c := proxy.Config{
		Upstream: s.Upstream, Unreachable: s.Unreachable, DialTimeout: s.DialTimeout, ProxyHeader: s.ProxyHeader,
	}
	if s.Grammar != "" {
		c.Grammar = frames.MustBuiltin(s.Grammar)
	}
	return c
}

// samePath tells whether two settings have the same data path, wherever it
// listens.
func samePath(a, b Settings) bool {
	return a.Upstream == b.Upstream && a.Grammar == b.Grammar && a.Unreachable == b.Unreachable &&
		a.DialTimeout == b.DialTimeout && a.ProxyHeader == b.ProxyHeader && same(a.Seed, b.Seed)
}

func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// sameAddress tells whether two addresses are one to listen on.
func sameAddress(a, b string) bool {
	return a == b || resolved(a) == resolved(b)
}

func resolved(address string) string {
	if network, rest, err := parseAddress(address); err == nil && network == "tcp" {
		if a, err := net.ResolveTCPAddr("tcp", rest); err == nil {
			return a.String()
		}
	}
	return address
}

// parseAddress takes an address apart.
func parseAddress(s string) (network, address string, err error) {
	if _, _, err := net.SplitHostPort(s); err != nil {
		var bad *net.AddrError
		if errors.As(err, &bad) {
			return "", "", errors.New(bad.Err)
		}
		return "", "", err
	}
	return "tcp", s, nil
}
