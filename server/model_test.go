package server

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var modelKeys = []string{"a", "b", "c"}

// model is the lock table of spec/ticketing.md §2 in its simplest form: it looks
// at everything in every step of time.
type model struct {
	queueLimit, capacity int
	now                  int // seconds
	token                uint64
	locks                map[string]*modelLock
	said                 []string
}

type modelLock struct {
	token   uint64
	owner   uint64 // rises with every attempt
	until   int
	waiters []modelWaiter
}

type modelWaiter struct {
	owner    uint64
	lease    int
	deadline int
	party    int
}

func (m *model) say(format string, args ...any) {
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

func (m *model) used() int {
	n := 0
	for _, l := range m.locks {
		n += 1 + len(l.waiters)
	}
	return n
}

func (m *model) grant(key string, l *modelLock, owner uint64, lease int) {
	m.token++
	l.token, l.owner, l.until = m.token, owner, m.now+lease
	m.locks[key] = l
	m.say("granted %s token=%d owner=%d", key, m.token, owner)
}

func (m *model) acquire(party int, key string, owner uint64, wait, lease int) {
	l := m.locks[key]
	switch {
	case m.used() >= m.capacity:
		m.say("attempt_ended %s refused owner=%d", key, owner)
	case l == nil:
		m.grant(key, &modelLock{}, owner, lease)
	case wait == 0 || len(l.waiters) >= m.queueLimit:
		m.say("attempt_ended %s refused owner=%d", key, owner)
	default:
		l.waiters = append(l.waiters, modelWaiter{owner, lease, m.now + wait, party})
		m.say("queued %s owner=%d", key, owner)
	}
}

func (m *model) free(key, how string) {
	l := m.locks[key]
	m.say("grant_ended %s %s token=%d", key, how, l.token)
	if len(l.waiters) == 0 {
		delete(m.locks, key)
		return
	}
	w := l.waiters[0]
	l.waiters = l.waiters[1:]
	m.grant(key, l, w.owner, w.lease)
}

func (m *model) release(key string, token uint64) bool {
	if l := m.locks[key]; l == nil || l.token != token {
		return false
	}
	m.free(key, "released")
	return true
}

func (m *model) leave(party int) {
	for key, l := range m.locks {
		l.waiters = slices.DeleteFunc(l.waiters, func(w modelWaiter) bool {
			if w.party == party {
				m.say("attempt_ended %s dropped owner=%d", key, w.owner)
			}
			return w.party == party
		})
	}
}

// second lets one second pass.
func (m *model) second() {
	m.now++
	for key, l := range m.locks {
		l.waiters = slices.DeleteFunc(l.waiters, func(w modelWaiter) bool {
			if w.deadline == m.now {
				m.say("attempt_ended %s timed_out owner=%d", key, w.owner)
			}
			return w.deadline == m.now
		})
	}
	var due []string
	for key, l := range m.locks {
		if l.until == m.now {
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b string) int { return cmp.Compare(m.locks[a].owner, m.locks[b].owner) })
	for _, key := range due { // the holder that asked first goes first
		m.free(key, "expired")
	}
}

// deaf is a sink that nobody listens to.
type deaf struct{}

func (deaf) answer(outcome, string, uint64, uint64) bool { return true }
func (deaf) complain(string)                             {}
func (deaf) redirect(string)                             {}
func (deaf) hangUp()                                     {}
func (deaf) idle()                                       {}

// move is one operation on the table, and what is drawn for it.
type move struct {
	op, key, party    int
	wait, lease, back int
	late              bool
}

func drawMove(rt *rapid.T) move {
	upTo := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, name) }
	return move{
		op: upTo("op", 0, 9), key: upTo("key", 0, 2), party: upTo("party", 0, 1),
		wait: upTo("wait", 0, 4), lease: upTo("lease", 1, 4), back: upTo("back", 0, 3),
		late: rapid.Bool().Draw(rt, "late"),
	}
}

// rig drives a table and the model with the same operations.
type rig struct {
	*model
	table   *table
	parties [2]*party
	heard   []string
	owner   uint64
}

func newRig(queueLimit, capacity int) *rig {
	g := &rig{parties: [2]*party{{out: deaf{}}, {out: deaf{}}}}
	g.model = &model{queueLimit: queueLimit, capacity: capacity, locks: map[string]*modelLock{}}
	g.table = &table{queueLimit: queueLimit, capacity: capacity, token: 1, locks: map[string]*lock{}}
	g.table.emit = func(e Event) {
		w := string(e.Kind) + " " + e.Key
		if e.How != "" {
			w += " " + e.How
		}
		if e.Token != 0 {
			w += fmt.Sprint(" token=", e.Token)
		}
		if e.Kind != GrantEnded {
			w += fmt.Sprint(" owner=", e.Owner)
		}
		g.heard = append(g.heard, w)
	}
	return g
}

// do makes one move with both and says how they differ.
func (g *rig) do(m move) error {
	key := modelKeys[m.key]
	switch m.op {
	case 0, 1, 2, 3, 4:
		g.owner++
		a := &attempt{
			key: key, owner: g.owner, hasOwner: true, from: g.parties[m.party],
			wait: time.Duration(m.wait) * time.Second, lease: time.Duration(m.lease) * time.Second,
		}
		if m.wait > 0 {
			a.patience = bounded
		}
		g.acquire(m.party, key, g.owner, m.wait, m.lease)
		g.table.acquire(a)
	case 5, 6:
		token := g.token - min(g.token, uint64(m.back))
		want := g.release(key, token)
		if got := g.table.release(nil, key, token, true); got != want {
			return fmt.Errorf("release %s %d: %v, want %v", key, token, got, want)
		}
	case 7:
		g.leave(m.party)
		g.table.leave(g.parties[m.party])
		g.parties[m.party] = &party{out: deaf{}}
	default:
		g.second()
		if m.late && g.table.timer != nil {
			g.table.timer.Stop()
			g.table.armed = time.Time{}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		g.table.snapshot()
	}
	return g.compare()
}

// compare holds what the table told against the model: the same in each step,
// and in the same order for one key.
func (g *rig) compare() error {
	slices.SortStableFunc(g.said, byKey)
	slices.SortStableFunc(g.heard, byKey)
	if !slices.Equal(g.said, g.heard) {
		return fmt.Errorf("second %d: the table told\n%q\nthe model\n%q", g.now, g.heard, g.said)
	}
	g.said, g.heard = nil, nil
	if g.table.used != g.used() {
		return fmt.Errorf("second %d: %d attempts used, want %d", g.now, g.table.used, g.used())
	}
	states := g.table.snapshot()
	if len(states) != len(g.locks) {
		return fmt.Errorf("second %d: %d keys held, want %d", g.now, len(states), len(g.locks))
	}
	for _, s := range states {
		l := g.locks[s.Key]
		if l == nil || l.token != s.Holder.Token || len(l.waiters) != len(s.Queue) {
			return fmt.Errorf("second %d: state %+v, want %+v", g.now, s, l)
		}
	}
	return nil
}

func byKey(a, b string) int {
	key := func(s string) byte {
		for i := range s {
			if s[i] == ' ' {
				return s[i+1]
			}
		}
		return 0
	}
	return int(key(a)) - int(key(b))
}

func TestTableAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		queueLimit, capacity := rapid.IntRange(1, 3).Draw(rt, "queue limit"), rapid.IntRange(1, 8).Draw(rt, "capacity")
		moves := rapid.SliceOfN(rapid.Custom(drawMove), 1, 60).Draw(rt, "moves")
		var err error // told outside the bubble, where rapid can shrink it
		synctest.Test(t, func(*testing.T) {
			g := newRig(queueLimit, capacity)
			for i := 0; i < len(moves) && err == nil; i++ {
				err = g.do(moves[i])
			}
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}
