package proxy

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// MaxRules is the most rules that are armed on one proxy at once.
const MaxRules = 1000

// Errors of Arm, Rearm and OpenGate.
var (
	ErrRuleExists = errors.New("there is a rule with this id")
	ErrNoRule     = errors.New("there is no rule with this id")
	ErrRules      = fmt.Errorf("there are %d rules, and no more are possible", MaxRules)
	ErrGates      = fmt.Errorf("there are %d gates that are open or that rules name, and no more are possible", MaxGates)
)

// RuleState is a rule that is armed, and what it did so far.
type RuleState struct {
	Rule    faults.Rule
	Matched int64         // frames that met the trigger but for its chance
	Fired   int64         // times that the fault acted
	Bytes   int64         // of the frames that were taken, as they came in
	Left    time.Duration // until the rule is disarmed; 0 means it never is by itself
}

// armed is a rule on a proxy. Its counters and its dice are its own, so that no
// change of another rule touches them.
type armed struct {
	*faults.Rule
	hash  uint64
	no    uint64 // of all rules that were ever armed, from 1
	since time.Time
	after *gate         // nil if the rule waits for none
	dead  atomic.Bool   // the rule is disarmed: it takes no frame any longer
	gone  chan struct{} // closed then: what it holds back goes on
	timer *time.Timer   // disarms it; nil if nothing does

	matched, taken, fired, bytes atomic.Int64
}

// rulebook is the immutable list of the rules that are armed; the first that
// takes a frame acts.
type rulebook struct {
	all []*armed
	by  [2]map[string][]*armed // by direction and op
}

func newRulebook(all []*armed) *rulebook {
	b := &rulebook{all: all}
	for _, r := range all {
		by := &b.by[r.Trigger.Dir]
		if *by == nil {
			*by = map[string][]*armed{}
		}
		(*by)[r.Trigger.Op] = append((*by)[r.Trigger.Op], r)
	}
	return b
}

// Arm adds a rule behind those that are armed. It acts on frames that begin in what
// is read from now on. Problems of the rule are FieldErrors; besides there are
// ErrRuleExists, ErrRules and ErrGates.
func (p *Proxy) Arm(r faults.Rule) error {
	return p.change(r, func(all []*armed, i int, n *armed) ([]*armed, error) {
		switch {
		case i >= 0:
			return nil, ErrRuleExists
		case len(all) >= MaxRules:
			return nil, ErrRules
		}
		return append(all, n), nil
	})
}

// Rearm puts a rule in the place of the one with its id, as if it were new. What
// that one holds back goes on. Problems are those of Arm, and ErrNoRule.
func (p *Proxy) Rearm(r faults.Rule) error {
	return p.change(r, func(all []*armed, i int, n *armed) ([]*armed, error) {
		if i < 0 {
			return nil, ErrNoRule
		}
		all[i] = n
		return all, nil
	})
}

// Disarm removes a rule; it is false if there is none with this id. What the rule
// holds back goes on at once, and what it was to do to a frame that is under way or
// held back is not done; bytes that it has dropped, and ends, stay as they are.
func (p *Proxy) Disarm(id string) bool {
	return p.disarm(func(r *armed) bool { return r.ID == id }) > 0
}

// DisarmAll removes all rules.
func (p *Proxy) DisarmAll() { p.disarm(func(*armed) bool { return true }) }

// Rules lists what is armed, in order. The rules' maps and bytes are not to be
// changed.
func (p *Proxy) Rules() []RuleState {
	var out []RuleState
	for _, r := range p.book.Load().all {
		out = append(out, r.state())
	}
	return out
}

// Rule finds an armed rule.
func (p *Proxy) Rule(id string) (RuleState, bool) {
	for _, r := range p.book.Load().all {
		if r.ID == id {
			return r.state(), true
		}
	}
	return RuleState{}, false
}

func (r *armed) state() RuleState {
	s := RuleState{Rule: *r.Rule, Matched: r.matched.Load(), Fired: r.fired.Load(), Bytes: r.bytes.Load()}
	if r.TTL > 0 {
		s.Left = max(r.TTL-time.Since(r.since), 1)
	}
	return s
}

// change edits the list of rules; i is where the rule with the id of the new one
// is, or -1.
func (p *Proxy) change(r faults.Rule, edit func(all []*armed, i int, n *armed) ([]*armed, error)) error {
	ready, err := r.Prepare(p.cfg.Grammar)
	if err != nil {
		return err
	}
	err = p.enlist(ready, edit)
	p.rouse()
	return err
}

// enlist arms a rule that is ready.
func (p *Proxy) enlist(r *faults.Rule, edit func(all []*armed, i int, n *armed) ([]*armed, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := newArmed(r)
	old := p.book.Load().all
	i := slices.IndexFunc(old, func(a *armed) bool { return a.ID == r.ID })
	all, err := edit(slices.Clone(old), i, n)
	if err != nil {
		return err
	}
	if !p.reserve(r.Gates()...) {
		return ErrGates
	}
	p.arm(n)
	p.book.Store(newRulebook(all))
	p.collect(n.Trigger.Dir, n.Trigger.Op)
	if i >= 0 {
		old[i].end()
	}
	p.refuseNext()
	return nil
}

func newArmed(r *faults.Rule) *armed {
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.ID))
	return &armed{Rule: r, hash: h.Sum64(), gone: make(chan struct{})}
}

// arm makes a rule ready that is about to be listed. The mutex is held.
func (p *Proxy) arm(a *armed) {
	p.arms++
	a.no, a.since = p.arms, time.Now()
	for _, name := range a.Gates() {
		p.gateOf(name)
	}
	a.after = p.gates[a.Trigger.After]
	if a.TTL > 0 {
		a.timer = time.AfterFunc(a.TTL, func() { p.disarm(func(o *armed) bool { return o == a }) })
	}
}

func (p *Proxy) disarm(which func(*armed) bool) (n int) {
	p.mu.Lock()
	old := p.book.Load().all
	p.book.Store(newRulebook(slices.DeleteFunc(slices.Clone(old), which)))
	for _, r := range old {
		if which(r) {
			r.end()
			n++
		}
	}
	p.refuseNext() // the one that is gone may have come before one that refuses
	p.mu.Unlock()
	p.rouse()
	return n
}

// end stops a rule that is in no list any longer.
func (r *armed) end() {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.dead.Store(true)
	close(r.gone)
}

// open tells whether the rule can take a frame now, as far as its gate, its window
// and its number of times say.
func (r *armed) open() bool {
	t := &r.Trigger
	switch {
	case r.dead.Load():
		return false
	case r.Times > 0 && r.taken.Load() >= int64(r.Times), r.after != nil && !r.after.isOpen():
		return false
	case t.Begin == 0 && t.End == 0:
		return true
	}
	d := time.Since(r.since)
	return d >= t.Begin && (t.End == 0 || d < t.End)
}

// take counts a frame that meets the trigger, and tells whether the rule acts on
// it; then it returns the draw.
func (r *armed) take(seed uint64, session int, dir frames.Direction, seq uint64) (draw float64, ok bool) {
	if n := r.matched.Add(1); n <= int64(r.Skip) {
		return 0, false
	}
	draw, ok = r.cast(seed, session, dir, seq)
	if !ok {
		return 0, false
	}
	for {
		n := r.taken.Load()
		if r.Times > 0 && n >= int64(r.Times) {
			r.matched.Add(-1) // another link was faster: the rule matches nothing any longer
			return 0, false
		}
		if r.taken.CompareAndSwap(n, n+1) {
			return draw, true
		}
	}
}

// cast throws the rule's dice for one frame. The same frame always gets the same.
func (r *armed) cast(seed uint64, session int, dir frames.Direction, seq uint64) (draw float64, ok bool) {
	if r.Trigger.Chance == 0 {
		return 0, true
	}
	x := mix(seed ^ r.hash)
	x = mix(x ^ uint64(session))
	x = mix(x ^ uint64(dir))
	draw = float64(mix(x^seq)>>11) / (1 << 53)
	return draw, draw < r.Trigger.Chance
}

// mix scatters a number over all bits (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// watches tells whether a rule only counts and signals.
func (r *armed) watches() bool { return r.Fault == nil }

// observed tells whether anybody wants to see events.
func (p *Proxy) observed() bool { return p.cfg.Recorder != nil || p.cfg.Observe != nil }

// observe records an event and shows it to the configuration's observer.
func (p *Proxy) observe(e history.Event) {
	p.cfg.Recorder.Add(e)
	if p.cfg.Observe != nil {
		p.cfg.Observe(e)
	}
}

// addrOf is the IP address of a peer, invalid if it has none.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr()
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr()
}
