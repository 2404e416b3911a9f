package api

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
	"tornwire/scenarios"
)

// Options say how a manager runs its proxies.
type Options struct {
	// Version is told by GET /version.
	Version string
	// Seed is that of proxies which have none of their own.
	Seed uint64
	// Log is told what changes, and what goes wrong without anybody asking.
	Log zerolog.Logger
	// Observe, if set, is shown what happens on the proxies (proxy.Config.Observe). It
	// is called on the data path and must not block.
	Observe func(proxy string, e history.Event)
}

// Manager is a set of proxies by name. It is safe for concurrent use: changes of
// one proxy are done one after another, and none waits for another proxy's.
// Errors are of type *Error.
type Manager struct {
	opt     Options
	runs    *scenarios.Runs
	streams atomic.Int32 // that are open

	mu     sync.Mutex
	list   map[string]*member
	making map[string]bool   // names of those that are being created
	unix   map[string]string // the proxy that listens at a path
	closed bool
	begun  sync.WaitGroup // creations under way
}

// NewManager returns a manager without a proxy.
func NewManager(opt Options) *Manager {
	return &Manager{opt: opt, runs: scenarios.NewRuns(), list: map[string]*member{}, making: map[string]bool{}, unix: map[string]string{}}
}

// Runs are the runs of scenarios that the API tells of.
func (m *Manager) Runs() *scenarios.Runs { return m.runs }

// Create makes a proxy, and starts it if it is enabled. If that fails, there is
// none. At most MaxProxies are possible.
func (m *Manager) Create(s Settings) (View, error) {
	if s.Listen == "" {
		s.Listen = AnyPort
	}
	if err := s.Check(); err != nil {
		return View{}, err
	}
	if err := m.reserve(s.Name); err != nil {
		return View{}, err
	}
	defer m.begun.Done()
	d := newMember(m, s)
	err := d.create()
	m.settle(s.Name, d, err)
	if err != nil {
		return View{}, err
	}
	v := d.view()
	m.opt.Log.Info().Str("proxy", v.Name).Str("listen", v.Listen).Str("upstream", v.Upstream).Bool("enabled", v.Enabled).Msg("proxy created")
	return v, nil
}

// reserve takes a name for a proxy that is about to be created.
func (m *Manager) reserve(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return errClosed
	case m.list[name] != nil || m.making[name]:
		return errProxyExists
	case len(m.list)+len(m.making) >= MaxProxies:
		return newError(statusFull, "there are %d proxies, and no more are possible", MaxProxies)
	}
	m.making[name] = true
	m.begun.Add(1)
	return nil
}

// settle ends the reservation.
func (m *Manager) settle(name string, d *member, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.making, name)
	if err == nil {
		m.list[name] = d
	}
}

// find returns a proxy.
func (m *Manager) find(name string) (*member, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.list[name]; d != nil {
		return d, nil
	}
	return nil, errProxyNotFound
}

// all lists the proxies by name.
func (m *Manager) all() []*member {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*member
	for _, name := range slices.Sorted(maps.Keys(m.list)) {
		out = append(out, m.list[name])
	}
	return out
}

// Views tells what proxies there are, in the order of their names.
func (m *Manager) Views() []View {
	out := []View{}
	for _, d := range m.all() {
		out = append(out, d.view())
	}
	return out
}

// View tells how a proxy is.
func (m *Manager) View(name string) (View, error) {
	d, err := m.find(name)
	if err != nil {
		return View{}, err
	}
	return d.view(), nil
}

// Update changes a proxy as change says. All of it is done, or nothing: if the
// proxy cannot be as it was asked to, it goes on as it was. Where a setting changes
// that the data path depends on, the sessions end, and rules stay armed, with what
// is left of their time and times.
func (m *Manager) Update(ctx context.Context, name string, change func(*Settings) error) (View, error) {
	var v View
	err := m.change(ctx, name, func(d *member) (err error) {
		v, err = d.update(change)
		return err
	})
	return v, err
}

// Delete ends a proxy and its sessions.
func (m *Manager) Delete(ctx context.Context, name string) error {
	return m.change(ctx, name, func(d *member) error {
		m.mu.Lock()
		delete(m.list, name)
		m.mu.Unlock()
		d.end()
		m.opt.Log.Info().Str("proxy", name).Msg("proxy deleted")
		return nil
	})
}

// change does something to a proxy while nobody else changes it.
func (m *Manager) change(ctx context.Context, name string, do func(*member) error) error {
	d, err := m.find(name)
	if err != nil {
		return err
	}
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	if d.ended() {
		return errProxyNotFound
	}
	return do(d)
}

// Reset enables all proxies and removes all toxics, rules and open gates. A proxy
// that cannot be enabled keeps none of the others from it.
func (m *Manager) Reset(ctx context.Context) error {
	var first error
	for _, d := range m.all() {
		err := m.change(ctx, d.name, func(d *member) error { return d.reset() })
		if err != nil && err != errProxyNotFound && first == nil {
			first = err
		}
	}
	m.opt.Log.Info().Msg("reset")
	return first
}

// Close ends all proxies and their sessions. It returns when all their goroutines
// have ended; nothing can be created afterwards.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.begun.Wait()
	m.runs.Close()
	var wg sync.WaitGroup
	for _, d := range m.all() {
		wg.Go(func() {
			_ = m.Delete(context.Background(), d.name) // it may be gone already
		})
	}
	wg.Wait()
}

// Arm adds a rule to a proxy.
func (m *Manager) Arm(ctx context.Context, name string, r faults.Rule) (proxy.RuleState, error) {
	return m.setRule(ctx, name, r, (*proxy.Proxy).Arm)
}

// Rearm puts a rule in the place of the one with its id.
func (m *Manager) Rearm(ctx context.Context, name string, r faults.Rule) (proxy.RuleState, error) {
	return m.setRule(ctx, name, r, (*proxy.Proxy).Rearm)
}

func (m *Manager) setRule(ctx context.Context, name string, r faults.Rule, set func(*proxy.Proxy, faults.Rule) error) (proxy.RuleState, error) {
	var state proxy.RuleState
	err := m.change(ctx, name, func(d *member) error {
		if err := set(d.path(), r); err != nil {
			return ruleError(err)
		}
		d.forget(r.ID)
		var ok bool
		if state, ok = d.path().Rule(r.ID); !ok {
			state = proxy.RuleState{Rule: r} // its time is over already
		}
		m.opt.Log.Info().Str("proxy", name).Str("rule", r.ID).Stringer("ttl", r.TTL).Msg("rule armed")
		return nil
	})
	return state, err
}

// Disarm removes a rule from a proxy.
func (m *Manager) Disarm(ctx context.Context, name, id string) error {
	return m.change(ctx, name, func(d *member) error {
		if !d.path().Disarm(id) {
			return errRuleNotFound
		}
		m.opt.Log.Info().Str("proxy", name).Str("rule", id).Msg("rule disarmed")
		return nil
	})
}

// Rules lists the rules of a proxy, in the order in which they are asked.
func (m *Manager) Rules(name string) ([]proxy.RuleState, error) {
	d, err := m.find(name)
	if err != nil {
		return nil, err
	}
	return d.rules(), nil
}

// Rule finds a rule of a proxy.
func (m *Manager) Rule(name, id string) (proxy.RuleState, error) {
	d, err := m.find(name)
	if err != nil {
		return proxy.RuleState{}, err
	}
	for _, s := range d.rules() {
		if s.Rule.ID == id {
			return s, nil
		}
	}
	return proxy.RuleState{}, errRuleNotFound
}

// Gate opens or shuts a gate of a proxy. At most proxy.MaxGates can be
// open, or named by rules, at once.
func (m *Manager) Gate(ctx context.Context, name, gate string, open bool) error {
	if reason := scenarios.BadName(gate); reason != "" {
		return newError(statusBad, "the gate's name %s", reason)
	}
	return m.change(ctx, name, func(d *member) error { return d.gate(gate, open) })
}
