package server

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// MaxNodes is the most nodes of a Cluster.
const MaxNodes = 64

// Cluster is a number of nodes that share one lock table: one sequence of tokens,
// one history. At most one of them leads, and only through that one attempts are
// made and grants released. The others answer A and R with M and the leader's
// address, with E no_leader where there is none, or with E not_active where they are
// told not to serve, and never with N (spec/ticketing.md §2). They leave the
// connection open, as it is the client's to close.
//
// A node that stops leading drops the attempts that are queued on it, because
// nothing may be granted through a node that does not lead, and tells each
// connection that had some once what it would answer to an A. Nothing else happens
// to its connections: they hear of it with their next request. What was granted
// stays granted, whichever node leads. Direct use of the table (Server.Acquire and
// the like) asks for no leader.
//
// All methods are safe for concurrent use, but may not be called from
// Config.OnEvent.
type Cluster struct {
	table *table
	nodes []*Server
	rule  *leadership
}

// leadership says who leads. It is guarded by the table's lock.
type leadership struct {
	leader  *seat  // nil if none of the nodes does
	known   bool   // there is a leader, here or elsewhere
	address string // where, for those who do not lead
}

// seat is a node's place in its cluster; a server that is alone has none. It is
// guarded by the table's lock.
type seat struct {
	rule     *leadership
	inactive bool
}

// NewCluster returns a cluster of 1 to MaxNodes nodes, all with this configuration;
// ConnLimit is for each of them. All are active, and none leads.
func NewCluster(cfg Config, nodes int) (*Cluster, error) {
	if nodes < 1 || nodes > MaxNodes {
		return nil, fmt.Errorf("%d nodes, not 1 to %d", nodes, MaxNodes)
	}
	first, err := New(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cluster{table: first.table, rule: &leadership{}}
	for range nodes {
		c.nodes = append(c.nodes, &Server{cfg: first.cfg, dialect: first.dialect, table: first.table, seat: &seat{rule: c.rule}})
	}
	return c, nil
}

// Size is the number of nodes.
func (c *Cluster) Size() int { return len(c.nodes) }

// Node returns a node, from 0. It panics where there is none.
func (c *Cluster) Node(i int) *Server { return c.nodes[i] }

// Lead has a node lead; the others name address for it. A node that was not active
// becomes so. It fails, and changes nothing, if there is no such node or the address
// could not be in a frame (spec/ticketing.md §1.4).
func (c *Cluster) Lead(i int, address string) error {
	if i < 0 || i >= len(c.nodes) {
		return fmt.Errorf("there is no node %d; there are %d, from 0", i, len(c.nodes))
	}
	return c.name(c.nodes[i].seat, address)
}

// LeadElsewhere has all nodes name an address at which none of them is.
func (c *Cluster) LeadElsewhere(address string) error { return c.name(nil, address) }

func (c *Cluster) name(leader *seat, address string) error {
	if _, err := c.nodes[0].dialect.moved.Append(nil, []byte(address)); err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	c.change(func() {
		*c.rule = leadership{leader: leader, known: true, address: address}
		if leader != nil {
			leader.inactive = false
		}
	})
	return nil
}

// NoLeader has no node lead.
func (c *Cluster) NoLeader() { c.change(func() { *c.rule = leadership{} }) }

// SetActive has a node serve, or not: it is a standby or about to stop then. Who
// leads stops leading with it, and nobody does until Lead. It panics where there is
// no such node.
func (c *Cluster) SetActive(i int, active bool) {
	s := c.nodes[i].seat
	c.change(func() {
		s.inactive = !active
		if !active && c.rule.leader == s {
			*c.rule = leadership{}
		}
	})
}

// change makes a change, and ends what is queued on a node that led before and does
// not any more.
func (c *Cluster) change(do func()) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.settle()
	defer t.arm()
	was := c.rule.leader
	do()
	if was != nil && was != c.rule.leader {
		t.unseat(was, now)
	}
}

// unseat drops what is queued on a node, the oldest first.
func (t *table) unseat(s *seat, now time.Time) {
	var queued []*attempt
	for _, l := range t.locks {
		for e := l.queue.Front(); e != nil; e = e.Next() {
			if a := e.Value.(*attempt); a.from != nil && a.from.seat == s {
				queued = append(queued, a)
			}
		}
	}
	slices.SortFunc(queued, func(a, b *attempt) int { return cmp.Compare(a.seq, b.seq) })
	for _, a := range queued {
		t.unqueue(a)
		t.used--
		t.attemptEvent(a, AttemptEnded, Dropped, now)
		if a.from.queued.Len() == 0 { // the last of its connection
			t.turnsAway(a.from)
			t.tellIdle(a.from)
		}
	}
}

// turnsAway answers a request on a node that does not lead. It is false on one that
// does, and on a server that is alone.
func (t *table) turnsAway(p *party) bool {
	s := p.seat
	switch {
	case s == nil || !s.inactive && s.rule.leader == s:
		return false
	case s.inactive:
		p.out.complain(reasonNotActive)
	case s.rule.known:
		p.out.redirect(s.rule.address)
	default:
		p.out.complain(reasonNoLeader)
	}
	return true
}

// redirect implements sink.
func (c *conn) redirect(address string) {
	c.out.put(func(b []byte) ([]byte, bool) {
		b, err := c.s.dialect.moved.Append(b, []byte(address))
		return b, err == nil
	})
}

// Notice sends L with an address on every live connection of this node whose client
// has passed the preface (spec/ticketing.md §1.2, §2), as KeepAlive sends its
// newline, and returns on how many. There is none in a dialect without L, and none
// with an address that could not be in a frame.
func (s *Server) Notice(address string) int {
	shape := s.dialect.notice
	if shape == nil {
		return 0
	}
	return s.live.count(func(c *conn) bool { return c.greeted.Load() && c.out.offer(shape, []byte(address)) })
}
