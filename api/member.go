package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"

	"tornwire/faults/toxics"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
	"tornwire/scenarios"
)

const (
	statusBad  = http.StatusBadRequest
	statusFull = http.StatusUnprocessableEntity // a limit is reached: 409 would read as "exists already"
)

// member is a proxy of a manager. Whoever changes it holds its turn; what is read
// without is guarded by the mutex, which is never held for long.
type member struct {
	m    *Manager
	name string
	turn chan struct{} // full while somebody changes the proxy

	mu      sync.Mutex
	set     Settings
	prx     *proxy.Proxy
	run     *run   // nil while it does not listen
	problem string // why it does not, if it should
	list    *toxics.List
	gates   map[string]bool // those that the API has opened
	gone    bool
	kept    map[string]carried // rules that were armed on an earlier data path; immutable
}

// run is a listener that is served.
type run struct {
	addr    string
	cancel  context.CancelFunc
	done    chan struct{}
	problem string // why it has ended by itself; written before done is closed
}

func newMember(m *Manager, s Settings) *member {
	return &member{m: m, name: s.Name, turn: make(chan struct{}, 1), set: s, gates: map[string]bool{}}
}

// lock waits for the turn.
func (d *member) lock(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errBusy
	}
}

func (d *member) unlock() { <-d.turn }

func (d *member) ended() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// path is the data path.
func (d *member) path() *proxy.Proxy {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.prx
}

// state is what the proxy is at this moment.
func (d *member) state() (Settings, *proxy.Proxy, *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.set
	s.Enabled = d.run != nil
	return s, d.prx, d.run
}

// put makes a state that of the proxy.
func (d *member) put(s Settings, p *proxy.Proxy, r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = ""
	if r != nil {
		s.Listen = r.addr
		select {
		case <-r.done: // it has failed by now
			d.problem, r = r.problem, nil
		default:
		}
	}
	d.set, d.prx, d.run = s, p, r
}

// newPath makes the data path that settings and toxics describe.
func (d *member) newPath(s Settings, specs []toxics.Spec) (*proxy.Proxy, *toxics.List, error) {
	c, err := s.config()
	if err != nil {
		return nil, nil, err
	}
	c.Seed = d.m.opt.Seed
	if s.Seed != nil {
		c.Seed = *s.Seed
	}
	list, err := toxics.New(c.Seed, specs...)
	if err != nil {
		return nil, nil, err
	}
	if o := d.m.opt.Observe; o != nil {
		c.Observe = func(e history.Event) { o(d.name, e) }
	}
	p := proxy.New(c)
	p.SetStages(list)
	return p, list, nil
}

// create brings the proxy into its first state.
func (d *member) create() error {
	p, list, err := d.newPath(d.set, d.set.Toxics)
	if err != nil {
		return err
	}
	d.set.Toxics, d.list = nil, list
	var r *run
	if d.set.Enabled {
		l, err := d.listen(d.set.Listen)
		if err != nil {
			return err
		}
		r = d.serve(p, l)
	}
	d.put(d.set, p, r)
	return nil
}

// serve runs a listener until it is halted.
func (d *member) serve(p *proxy.Proxy, l spot) *run {
	ctx, cancel := context.WithCancel(context.Background())
	addr := l.Addr().String()
	if l.Addr().Network() == "unix" {
		addr = "unix:" + addr
	}
	r := &run{addr: addr, cancel: cancel, done: make(chan struct{})}
	go func() {
		err := p.Serve(ctx, l.Listener, d.name)
		if ctx.Err() == nil {
			r.problem = "the listener has ended"
			if err != nil {
				r.problem = err.Error()
			}
		}
		cancel()
		l.leave()
		close(r.done)
		d.failed(r)
	}()
	return r
}

// failed notes that a listener has ended, if it did by itself.
func (d *member) failed(r *run) {
	if r.problem == "" {
		return
	}
	d.mu.Lock()
	if d.run == r {
		d.run, d.problem = nil, r.problem
	}
	d.mu.Unlock()
	d.m.opt.Log.Error().Str("proxy", d.name).Str("problem", r.problem).Msg("proxy stopped by itself")
}

// halt ends a listener and its sessions.
func (r *run) halt() {
	if r != nil {
		r.cancel()
		<-r.done
	}
}

// end is for good.
func (d *member) end() {
	_, p, r := d.state()
	r.halt()
	p.DisarmAll()
	d.mu.Lock()
	d.run, d.gone = nil, true
	d.mu.Unlock()
}

// update changes the settings and makes the proxy what they say.
func (d *member) update(change func(*Settings) error) (View, error) {
	was, path, now := d.state()
	next := was
	if err := change(&next); err != nil {
		return View{}, err
	}
	next.Name = was.Name
	if next.Listen == "" {
		next.Listen = AnyPort
	}
	if err := next.Check(); err != nil {
		return View{}, err
	}
	newPath, list, kept := path, d.stages(), d.kept
	if !samePath(was, next) {
		var err error
		if newPath, list, err = d.newPath(next, list.Specs()); err != nil {
			return View{}, err
		}
		if kept, err = d.carry(path, newPath, next); err != nil {
			return View{}, err
		}
	}
	r, err := d.move(was, next, now, newPath, newPath != path)
	if err != nil {
		return View{}, err
	}
	if newPath != path {
		path.DisarmAll()
	}
	d.put(next, newPath, r)
	d.mu.Lock()
	d.list, d.kept = list, kept
	d.mu.Unlock()
	v := d.view()
	d.m.opt.Log.Info().Str("proxy", v.Name).Str("listen", v.Listen).Str("upstream", v.Upstream).Bool("enabled", v.Enabled).Msg("proxy changed")
	return v, nil
}

// move goes from one listener to the next. If that cannot be had, the old one goes
// on.
func (d *member) move(was, next Settings, now *run, path *proxy.Proxy, newPath bool) (*run, error) {
	switch sameListen := sameAddress(was.Listen, next.Listen); {
	case !next.Enabled:
		now.halt()
		return nil, nil
	case now == nil:
		l, err := d.listen(next.Listen)
		if err != nil {
			return nil, err
		}
		return d.serve(path, l), nil
	case sameListen && !newPath:
		return now, nil
	case !sameListen:
		l, err := d.listen(next.Listen)
		if err == nil {
			now.halt()
			return d.serve(path, l), nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || !samePort(was.Listen, next.Listen) {
			return nil, err
		}
	}
	return d.replace(was, next, now, path)
}

// replace is move where the old listener has to go before the new one can come. If
// that cannot be had, the old one comes again.
func (d *member) replace(was, next Settings, now *run, path *proxy.Proxy) (*run, error) {
	now.halt()
	l, err := d.listen(next.Listen)
	if err == nil {
		return d.serve(path, l), nil
	}
	old := d.path()
	if l, again := d.listen(was.Listen); again == nil {
		d.put(was, old, d.serve(old, l))
	} else {
		d.put(was, old, nil)
		d.mu.Lock()
		d.problem = again.Error()
		d.mu.Unlock()
	}
	return nil, err
}

// carry brings what was armed and opened onto a new data path.
func (d *member) carry(from, to *proxy.Proxy, s Settings) (map[string]carried, error) {
	kept := map[string]carried{}
	g, _ := frames.Builtin(s.Grammar)
	for _, state := range from.Rules() {
		r, ok := remaining(state)
		if !ok {
			continue
		}
		err := scenarios.Fits(r, g)
		if err == nil {
			err = to.Arm(r)
		}
		if err != nil {
			to.DisarmAll()
			return nil, newError(statusBad, "rule %s does not go with that: %s", r.ID, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		kept[r.ID] = d.before(state)
	}
	for _, g := range d.gateNames() {
		if err := to.OpenGate(g); err != nil {
			to.DisarmAll()
			return nil, gateError(err)
		}
	}
	return kept, nil
}

// reset makes the proxy run, and run without faults.
func (d *member) reset() error {
	p := d.path()
	p.DisarmAll()
	if list := d.stages(); len(list.Specs()) > 0 {
		for _, spec := range list.Specs() {
			list, _ = list.Without(spec.Name) // it is there
		}
		d.setStages(list)
	}
	p.ShutGates()
	d.mu.Lock()
	clear(d.gates)
	d.mu.Unlock()
	if _, _, r := d.state(); r != nil {
		return nil
	}
	_, err := d.update(func(s *Settings) error {
		s.Enabled = true
		return nil
	})
	return err
}

// gate opens or shuts a gate.
func (d *member) gate(name string, open bool) error {
	p := d.path()
	if open {
		if err := p.OpenGate(name); err != nil {
			return gateError(err)
		}
	} else {
		p.ShutGate(name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if open {
		d.gates[name] = true
	} else {
		delete(d.gates, name)
	}
	return nil
}

// gateError tells why a gate was not opened, or the gates of a rule not made.
func gateError(err error) error {
	if errors.Is(err, proxy.ErrGates) {
		return newError(statusFull, "%v", err)
	}
	return newError(statusBad, "%v", err)
}

// gateNames lists the gates that the API has opened.
func (d *member) gateNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.gates))
}
