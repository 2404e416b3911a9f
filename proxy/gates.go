package proxy

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"tornwire/faults"
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

// MaxGates is the most gates that are open, or named by an armed rule, on one proxy.
const MaxGates = 4096

// OpenGate opens a gate that steps of faults wait for, and rules have to find
// open, until ShutGate. A name that nobody uses is remembered too; ErrGates says
// that there are too many of them, and a name over faults.MaxName bytes is an error.
func (p *Proxy) OpenGate(name string) error {
	if len(name) > faults.MaxName {
		return fmt.Errorf("the name of the gate has %d bytes, not up to %d", len(name), faults.MaxName)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reserve(name) {
		return ErrGates
	}
	p.gateOf(name).set(true)
	p.refuseNext()
	return nil
}

// ShutGate shuts a gate. What waited for it and has gone on is not called back.
func (p *Proxy) ShutGate(name string) {
	p.mu.Lock()
	if g := p.gates[name]; g != nil {
		g.set(false)
	}
	p.mu.Unlock()
	p.rouse()
}

// ShutGates shuts all gates.
func (p *Proxy) ShutGates() {
	p.mu.Lock()
	for _, g := range p.gates {
		g.set(false)
	}
	p.mu.Unlock()
	p.rouse()
}

// signal opens the gate of an armed rule. If the rule has gone meanwhile and nobody
// else names the gate, there may be none any longer.
func (p *Proxy) signal(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.gates[name]; g != nil {
		g.set(true)
		p.refuseNext()
	}
}

// gate finds a gate, for a step that waits for it. There may be none any longer
// where the rule has gone, and then the step does not wait.
func (p *Proxy) gate(name string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.gates[name]; g != nil {
		return g.opened()
	}
	return nil
}

// reserve makes gates, and forgets those that are shut and that nobody names if
// there are too many. It is false if there are too many all the same. The mutex is
// held.
func (p *Proxy) reserve(names ...string) bool {
	fresh := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return p.gates[n] != nil })
	if len(p.gates)+len(fresh) > MaxGates {
		used := p.named()
		for _, n := range names {
			used[n] = true
		}
		maps.DeleteFunc(p.gates, func(n string, g *gate) bool { return !used[n] && !g.isOpen() })
	}
	if len(p.gates)+len(fresh) > MaxGates {
		return false
	}
	for _, n := range fresh {
		p.gateOf(n)
	}
	return true
}

// named are the gates that armed rules name. The mutex is held.
func (p *Proxy) named() map[string]bool {
	out := map[string]bool{}
	for _, r := range p.book.Load().all {
		for _, n := range r.Gates() {
			out[n] = true
		}
	}
	return out
}

// gateOf finds or makes a gate. The mutex is held.
func (p *Proxy) gateOf(name string) *gate {
	g := p.gates[name]
	if g == nil {
		g = &gate{ch: make(chan struct{})}
		p.gates[name] = g
	}
	return g
}
