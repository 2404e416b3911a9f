package api

import (
	"tornwire/faults/toxics"
	"tornwire/proxy"
)

// View is a proxy as it is told to clients: what toxiproxy tells of one, and
// behind it what is not as it is by default.
type View struct {
	Name     string        `json:"name"`
	Listen   string        `json:"listen"`
	Upstream string        `json:"upstream"`
	Enabled  bool          `json:"enabled"` // it listens
	Toxics   []toxics.Spec `json:"toxics"`

	Grammar     string            `json:"grammar,omitempty"`
	Unreachable proxy.Unreachable `json:"unreachable,omitempty"`
	DialTimeout string            `json:"dial_timeout,omitempty"`
	ProxyHeader bool              `json:"proxy_header,omitempty"`
	TLS         *TLS              `json:"tls,omitempty"`
	UpstreamTLS *UpstreamTLS      `json:"upstream_tls,omitempty"`
	Seed        *uint64           `json:"seed,omitempty"`
	// Problem tells why a proxy does not listen that was not disabled.
	Problem string `json:"problem,omitempty"`
}

func (d *member) view() View {
	s, _, _ := d.state()
	d.mu.Lock()
	problem := d.problem
	d.mu.Unlock()
	v := View{
		Name: s.Name, Listen: s.Listen, Upstream: s.Upstream, Enabled: s.Enabled, Toxics: d.toxics(),
		Grammar: s.Grammar, Unreachable: s.Unreachable, ProxyHeader: s.ProxyHeader, TLS: s.TLS, UpstreamTLS: s.UpstreamTLS, Seed: s.Seed, Problem: problem,
	}
	if s.DialTimeout > 0 {
		v.DialTimeout = s.DialTimeout.String()
	}
	return v
}
