package api

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tornwire/faults/toxics"
	"tornwire/frames"
	"tornwire/internal/strict"
	"tornwire/proxy"
	"tornwire/scenarios"
)

// Limits of what a request may ask for.
const (
	// MaxProxies is the most proxies that there are at once.
	MaxProxies = 1000
	// MaxName is the longest name of a proxy, rule, toxic or gate, in bytes.
	MaxName = scenarios.MaxName
	// MaxAddress is the longest address or file name, in bytes.
	MaxAddress = 1024
	// MaxHost is the longest name of a server, in bytes.
	MaxHost = 253
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
	TLS         *TLS              // ends the clients' TLS
	UpstreamTLS *UpstreamTLS      // speaks TLS to the upstream
	Seed        *uint64           // of what is random; nil is the manager's
	Toxics      []toxics.Spec     // that a proxy begins with
}

// TLS names the PEM files of a certificate, its chain behind it, and of its key.
// They are read when the proxy is created, and when a change ends its sessions.
type TLS struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// UpstreamTLS says how the upstream's certificate is checked.
type UpstreamTLS struct {
	CA         string `json:"ca,omitempty"`          // a PEM file; "" is the system's
	ServerName string `json:"server_name,omitempty"` // "" is the upstream's host
	SkipVerify bool   `json:"skip_verify,omitempty"`
}

// read changes the settings as a body says; what it leaves out stays.
func (s *Settings) read(o *strict.Object) {
	o.Text("name", &s.Name)
	o.Text("listen", &s.Listen)
	o.Text("upstream", &s.Upstream)
	o.Flag("enabled", &s.Enabled)
	o.Text("grammar", &s.Grammar)
	var word string
	if o.Text("unreachable", &word) {
		s.Unreachable = proxy.Unreachable(word)
	}
	if o.Span("dial_timeout", &s.DialTimeout) && s.DialTimeout == 0 {
		o.Problem("dial_timeout", "is 0s, not over 0s and up to %s", proxy.DialLimit)
	}
	o.Flag("proxy_header", &s.ProxyHeader)
	s.readTLS(o)
	var seed uint64
	if strict.Read(o, "seed", "a whole number from 0 to 18446744073709551615", &seed) {
		s.Seed = &seed
	}
}

// readTLS reads the two objects; null takes one away.
func (s *Settings) readTLS(o *strict.Object) {
	if o.IsNull("tls") {
		s.TLS = nil
	}
	if t := o.Object("tls"); t != nil {
		s.TLS = &TLS{}
		t.Text("cert", &s.TLS.Cert)
		t.Text("key", &s.TLS.Key)
		t.Done()
	}
	if o.IsNull("upstream_tls") {
		s.UpstreamTLS = nil
	}
	if t := o.Object("upstream_tls"); t != nil {
		s.UpstreamTLS = &UpstreamTLS{}
		t.Text("ca", &s.UpstreamTLS.CA)
		t.Text("server_name", &s.UpstreamTLS.ServerName)
		t.Flag("skip_verify", &s.UpstreamTLS.SkipVerify)
		t.Done()
	}
}

var unreachables = []proxy.Unreachable{proxy.Reset, proxy.Refuse, proxy.Close, proxy.Hold}

// Check tells why there can be no proxy with these settings, or returns nil. The
// error is of type *Error and has all problems.
func (s *Settings) Check() error {
	var bad strict.Problems
	s.check(&bad)
	return refusal(bad)
}

// check finds everything that is wrong with the settings, but for fields that were
// found wrong already.
func (s *Settings) check(bad *strict.Problems) {
	var found strict.Problems
	s.find(&found)
	for _, p := range found {
		if !bad.Has(p.Field) {
			*bad = append(*bad, p)
		}
	}
}

func (s *Settings) find(bad *strict.Problems) {
	if s.Name == "" {
		bad.Missing("name")
	} else if reason := scenarios.BadName(s.Name); reason != "" {
		bad.Add("name", "%s", reason)
	}
	if s.Listen != "" {
		checkAddress(bad, "listen", s.Listen)
	}
	if s.Upstream == "" {
		bad.Missing("upstream")
	} else {
		checkAddress(bad, "upstream", s.Upstream)
	}
	if s.Grammar != "" && !slices.Contains(frames.Names(), s.Grammar) {
		bad.Add("grammar", "%s", strict.OneOf(s.Grammar, frames.Names(), "grammar"))
	}
	if s.Unreachable != "" && !slices.Contains(unreachables, s.Unreachable) {
		var list []string
		for _, u := range unreachables {
			list = append(list, string(u))
		}
		bad.Add("unreachable", "%s", strict.OneOf(string(s.Unreachable), list, "word"))
	}
	if s.DialTimeout < 0 || s.DialTimeout > proxy.DialLimit {
		bad.Add("dial_timeout", "is %s, not over 0s and up to %s", s.DialTimeout, proxy.DialLimit)
	}
	s.checkTLS(bad)
	if _, err := toxics.New(0, s.Toxics...); err != nil {
		bad.Add("toxics", "cannot be: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (s *Settings) checkTLS(bad *strict.Problems) {
	if s.TLS != nil {
		checkFile(bad, "tls.cert", s.TLS.Cert, true)
		checkFile(bad, "tls.key", s.TLS.Key, true)
	}
	if t := s.UpstreamTLS; t != nil {
		checkFile(bad, "upstream_tls.ca", t.CA, false)
		if n := len(t.ServerName); n > MaxHost {
			bad.Add("upstream_tls.server_name", "has %d bytes, over %d", n, MaxHost)
		}
	}
}

func checkAddress(bad *strict.Problems, field, address string) {
	if n := len(address); n > MaxAddress {
		bad.Add(field, "has %d bytes, over %d", n, MaxAddress)
		return
	}
	network, rest, err := proxy.ParseAddress(address)
	if err != nil {
		bad.Add(field, "is no address: %v", err)
		return
	}
	if network == "tcp" && field == "upstream" {
		if _, port, _ := net.SplitHostPort(rest); port == "0" {
			bad.Add(field, "is %q, which has no port to connect to", address)
		}
	}
}

// checkFile wants the name of a file that means the same wherever the daemon was
// started, and that is not something that one would wait for in reading it.
func checkFile(bad *strict.Problems, field, name string, must bool) {
	switch {
	case name == "" && must:
		bad.Add(field, "is missing")
	case len(name) > MaxAddress:
		bad.Add(field, "has %d bytes, over %d", len(name), MaxAddress)
	case name != "" && !filepath.IsAbs(name):
		bad.Add(field, "is %q, not an absolute file name", name)
	case name != "":
		if i, err := os.Stat(name); err == nil && !i.Mode().IsRegular() {
			bad.Add(field, "is %q, which is no regular file", name)
		}
	}
}

// config returns what the settings, which were checked, mean for the data path. The
// files that they name are read.
func (s *Settings) config() (proxy.Config, error) {
	c := proxy.Config{
		Upstream: s.Upstream, Unreachable: s.Unreachable, DialTimeout: s.DialTimeout, ProxyHeader: s.ProxyHeader,
	}
	if s.Grammar != "" {
		c.Grammar = frames.MustBuiltin(s.Grammar)
	}
	var bad strict.Problems
	var err error
	if s.TLS != nil {
		if c.TLS, err = proxy.ServerTLS(s.TLS.Cert, s.TLS.Key); err != nil {
			bad.Add("tls", "cannot be used: %v", err)
		}
	}
	if t := s.UpstreamTLS; t != nil {
		if c.UpstreamTLS, err = proxy.ClientTLS(t.CA, t.ServerName, t.SkipVerify); err != nil {
			bad.Add("upstream_tls", "cannot be used: %v", err)
		}
	}
	return c, refusal(bad)
}

// samePath tells whether two settings have the same data path, wherever it
// listens.
func samePath(a, b Settings) bool {
	return a.Upstream == b.Upstream && a.Grammar == b.Grammar && a.Unreachable == b.Unreachable &&
		a.DialTimeout == b.DialTimeout && a.ProxyHeader == b.ProxyHeader &&
		same(a.TLS, b.TLS) && same(a.UpstreamTLS, b.UpstreamTLS) && same(a.Seed, b.Seed)
}

func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
