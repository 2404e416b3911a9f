package proxy

import (
	"sync"
	"sync/atomic"
)

// gate is what steps and rules wait for by its name.
type gate struct {
	mu    sync.Mutex
	ch    chan struct{} // closed while the gate is open
	state atomic.Bool
}

func (g *gate) isOpen() bool { return g.state.Load() }

// opened returns a channel that is closed while the gate is open.
func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ch
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Load() == open {
		return
	}
	g.state.Store(open)
	if open {
		close(g.ch)
	} else {
		g.ch = make(chan struct{})
	}
}

// OpenGate opens a gate that steps of faults wait for, and rules have to find
// open, until ShutGate. A name that nobody uses is remembered too.
func (p *Proxy) OpenGate(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gateOf(name).set(true)
	p.refuseNext()
}

// ShutGate shuts a gate. What waited for it and has gone on is not called back.
func (p *Proxy) ShutGate(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gateOf(name).set(false)
}

// gate finds a gate, for a step that waits for it.
func (p *Proxy) gate(name string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gateOf(name).opened()
}

// gateOf is gate where the mutex is held.
func (p *Proxy) gateOf(name string) *gate {
	g := p.gates[name]
	if g == nil {
		g = &gate{ch: make(chan struct{})}
		p.gates[name] = g
	}
	return g
}
