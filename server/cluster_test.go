package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/internal/memnet"
)

// nodes is a cluster in a bubble; the harness is that of its first node.
type nodes struct {
	*harness
	c *Cluster
}

func nodeAddress(i int) string { return fmt.Sprintf("10.0.0.%d:7070", i+1) }

func inCluster(t *testing.T, cfg Config, n int, f func(h *nodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, net: memnet.New(memnet.Options{})}
		cfg.OnEvent = func(e Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		}
		c, err := NewCluster(cfg, n)
		if err != nil {
			t.Fatal(err)
		}
		h.Server = c.Node(0)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range c.Size() {
			l, err := h.net.Listen("tcp", nodeAddress(i))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := c.Node(i).Serve(ctx, l); err != nil {
					t.Error(err)
				}
			})
		}
		f(&nodes{h, c})
		cancel()
		wg.Wait()
	})
}

// at connects to a node and goes through the preface.
func (h *nodes) at(i int) *peer {
	h.t.Helper()
	nc, err := h.net.Dial(context.Background(), "tcp", nodeAddress(i))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = nc.Close() })
	p := newPeer(h.t, nc, h.cfg.Dialect)
	p.login(h.cfg.Secret)
	return p
}

func (h *nodes) lead(i int) {
	h.t.Helper()
	if err := h.c.Lead(i, nodeAddress(i)); err != nil {
		h.t.Fatal(err)
	}
}

// What a node that does not lead says to A and R, for each reason, and that none of
// it touches the table: no N for a token that is held, no attempt for a free key.
func TestANodeThatDoesNotLeadTurnsRequestsAway(t *testing.T) {
	for _, dialect := range []string{current, v0} {
		for want, change := range map[string]func(c *Cluster) error{
			"M 10.0.0.2:7070": func(c *Cluster) error { return c.Lead(1, nodeAddress(1)) },
			"M ":              func(c *Cluster) error { return c.LeadElsewhere("") },
			"M elsewhere:1":   func(c *Cluster) error { return c.LeadElsewhere("elsewhere:1") },
			"E no_leader":     func(c *Cluster) error { c.NoLeader(); return nil },
			"E not_active":    func(c *Cluster) error { c.SetActive(0, false); return nil },
		} {
			inCluster(t, Config{Dialect: dialect}, 2, func(h *nodes) {
				h.lead(0)
				p := h.at(0)
				p.acquire("k", 5, 30, 1)
				p.next()
				h.wantHolder("k", 1)
				if err := change(h.c); err != nil {
					t.Fatal(err)
				}
				p.quiet(time.Second) // what it has heard is nothing yet
				h.told()
				p.release("k", 1)
				p.acquire("free", 0, 30, 2)
				p.acquire("k", 60, 30, 3)
				p.want(want, want, want)
				p.quiet(time.Second) // and the connection is the client's to close
				h.wantTold()
				h.wantHolder("k", 1)
				h.lead(0)
				p.release("k", 1)
				if got := p.next(); !strings.HasPrefix(got, "R ") {
					t.Errorf("%s %s: then %q", dialect, want, got)
				}
			})
		}
	}
}

func TestNodesShareOneTable(t *testing.T) {
	inCluster(t, Config{}, 3, func(h *nodes) {
		h.lead(0)
		p, q := h.at(0), h.at(2)
		p.acquire("k", 5, 30, 1)
		p.want("A owner=1 token=1 k")
		h.lead(2)
		q.acquire("k", 20, 30, 2)
		h.wantTold("granted k token=1 owner=1", "queued k owner=2")
		q.release("k", 1) // it is the token that counts, not the node
		q.want("R token=1 k", "A owner=2 token=2 k")
		if n := len(h.c.Node(1).History("k")); n != 2 {
			t.Errorf("%d grants in the history of another node", n)
		}
	})
}

// Nothing is granted through a node that does not lead any more: what is queued on
// it is dropped, and told once to each connection.
func TestQueuedAttemptsEndWithTheLead(t *testing.T) {
	for want, change := range map[string]func(c *Cluster){
		"M 10.0.0.2:7070": func(c *Cluster) { _ = c.Lead(1, nodeAddress(1)) },
		"E no_leader":     (*Cluster).NoLeader,
		"E not_active":    func(c *Cluster) { c.SetActive(0, false) },
	} {
		inCluster(t, Config{}, 2, func(h *nodes) {
			h.lead(0)
			token, _ := h.Acquire("k", time.Hour)
			p, q, r := h.at(0), h.at(0), h.at(0)
			p.acquire("k", 20, 30, 1)
			h.told()
			q.acquire("k", 20, 30, 2)
			h.told()
			p.acquire("k", 20, 30, 3)
			h.told()
			h.Wait("k", time.Hour, time.Second)
			h.told()
			change(h.c)
			h.wantTold("attempt_ended k dropped owner=1", "attempt_ended k dropped owner=2", "attempt_ended k dropped owner=3")
			p.want(want)
			q.want(want)
			for _, x := range []*peer{p, q, r} {
				x.quiet(time.Minute) // no T either
			}
			h.Release("k", token)
			h.wantTold("grant_ended k released token=1", "granted k token=2")
			time.Sleep(2 * time.Second)
			h.wantTold("grant_ended k expired token=2")
			if h.table.used != 0 || len(h.table.agenda) != 0 {
				t.Errorf("%d attempts, %d times left", h.table.used, len(h.table.agenda))
			}
		})
	}
}

func TestTheSameLeaderKeepsItsQueue(t *testing.T) {
	inCluster(t, Config{}, 2, func(h *nodes) {
		h.lead(0)
		token, _ := h.Acquire("k", time.Hour)
		p, q := h.at(0), h.at(1)
		p.acquire("k", 20, 30, 1)
		h.told()
		if err := h.c.Lead(0, "other:1"); err != nil {
			t.Fatal(err)
		}
		h.c.SetActive(1, false)
		h.Release("k", token)
		p.want("A owner=1 token=2 k")
		q.acquire("k", 20, 30, 2)
		q.want("E not_active")
		h.c.SetActive(1, true)
		q.acquire("k", 20, 30, 3)
		q.want("M other:1")
	})
}

// A client that has sent FIN is told, and then its connection is over.
func TestHalfClosedQueueEndsWithTheLead(t *testing.T) {
	inCluster(t, Config{}, 1, func(h *nodes) {
		h.lead(0)
		h.Acquire("k", time.Hour)
		p := h.at(0)
		p.acquire("k", 20, 30, 1)
		p.fin()
		h.told()
		h.c.NoLeader()
		p.want("E no_leader", "FIN")
	})
}

func TestLeadingMakesANodeActive(t *testing.T) {
	inCluster(t, Config{}, 2, func(h *nodes) {
		p := h.at(1)
		p.acquire("k", 0, 30, 1)
		p.want("E no_leader") // none leads from the start
		h.c.SetActive(1, false)
		h.lead(1)
		p.acquire("k", 0, 30, 2)
		p.want("A owner=2 token=1 k")
		h.c.SetActive(1, false)
		h.c.SetActive(1, true)
		p.acquire("k", 0, 30, 3)
		p.want("E no_leader") // it does not lead again by itself
	})
}

func TestNotice(t *testing.T) {
	inCluster(t, Config{}, 2, func(h *nodes) {
		h.lead(0)
		p, q := h.at(0), h.at(1)
		synctest.Wait()
		if n := h.c.Node(0).Notice("there:1"); n != 1 {
			t.Errorf("sent to %d, want 1", n)
		}
		p.want("L there:1")
		q.quiet(time.Second)
		if n := h.c.Node(0).Notice("two\nlines") + h.c.Node(0).Notice(strings.Repeat("a", 193)); n != 0 {
			t.Errorf("what is no frame was sent to %d", n)
		}
		if n := h.c.Node(1).Notice(""); n != 1 {
			t.Errorf("an empty one was sent to %d, want 1", n)
		}
		q.want("L ")
		p.acquire("k", 0, 30, 1)
		p.want("A owner=1 token=1 k")
	})
	inBubble(t, Config{Dialect: v0}, func(h *harness) {
		h.dial()
		synctest.Wait()
		if n := h.Notice("there:1"); n != 0 {
			t.Errorf("sent to %d in a dialect without it", n)
		}
	})
}

func TestClusterIsRefused(t *testing.T) {
	for want, n := range map[string]int{"0 nodes, not 1 to 64": 0, "65 nodes, not 1 to 64": 65} {
		if _, err := NewCluster(Config{}, n); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := NewCluster(Config{Dialect: "none"}, 2); err == nil {
		t.Error("an unknown dialect is taken")
	}
	c, err := NewCluster(Config{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.Lead(2, "a:1"), c.Lead(-1, "a:1"), c.Lead(0, "two\nlines"), c.LeadElsewhere(strings.Repeat("a", 193))} {
		if err == nil {
			t.Error("it is taken")
		}
	}
	if c.rule.known || c.rule.leader != nil {
		t.Errorf("%+v", c.rule)
	}
}
