package server

import (
	"strings"
	"testing"
	"time"
)

// row is one cell of the table of spec/ticketing.md §2.
type row struct {
	name  string
	state string // free, held, full, capacity
	do    func(p *peer)
	reply string // what p reads, joined with "; "
	token uint64 // who holds "k" afterwards
}

// stage brings a server with room for one waiter per key and three attempts in
// all into a state. The holder of "k" has token 1.
func stage(h *harness, state string) {
	h.t.Helper()
	if state == "free" {
		return
	}
	q := h.dial()
	q.acquire("k", boolInt(h.cfg.Dialect == v0), 200, 900)
	q.next()
	if state == "held" {
		return
	}
	w := h.dial()
	w.acquire("k", 100, 200, 901)
	if state == "capacity" {
		w.acquire("other", 100, 200, 902)
		w.next()
	}
	h.told()
	want := map[string]int{"full": 2, "capacity": 3}[state]
	if h.table.used != want {
		h.t.Fatalf("%d attempts held or queued, want %d", h.table.used, want)
	}
}

func boolInt(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func runRows(t *testing.T, dialect string, rows []row) {
	for _, r := range rows {
		t.Run(strings.ReplaceAll(r.name+" "+r.state, " ", "_"), func(t *testing.T) {
			inBubble(t, Config{Dialect: dialect, QueueLimit: 1, Capacity: 3}, func(h *harness) {
				stage(h, r.state)
				p := h.dial()
				start := time.Now()
				r.do(p)
				_ = p.nc.SetReadDeadline(start.Add(50 * time.Second))
				var got []string
				for len(got) < 2 {
					w := p.next()
					got = append(got, w)
					if w == "nothing" || w == "FIN" {
						break
					}
				}
				if g := strings.Join(got, "; "); g != r.reply {
					t.Errorf("got %q, want %q", g, r.reply)
				}
				h.wantHolder("k", r.token)
			})
		})
	}
}

func TestRowsOfTheCurrentDialect(t *testing.T) {
	now := func(p *peer) { p.acquire("k", 0, 200, 5) }
	wait := func(p *peer) { p.acquire("k", 40, 200, 5) }
	exact := func(p *peer) { p.release("k", 1) }
	wrong := func(p *peer) { p.release("k", 2) }
	runRows(t, current, []row{
		{"wait 0", "free", now, "A owner=5 token=1 k; nothing", 1},
		{"wait 0", "held", now, "T owner=5 k; nothing", 1},
		{"wait 0", "full", now, "T owner=5 k; nothing", 1},
		{"wait 0", "capacity", now, "B owner=5 k; nothing", 1},
		{"wait", "free", wait, "A owner=5 token=1 k; nothing", 1},
		{"wait", "held", wait, "T owner=5 k; nothing", 1},
		{"wait", "full", wait, "B owner=5 k; nothing", 1},
		{"wait", "capacity", wait, "B owner=5 k; nothing", 1},
		{"exact token", "free", exact, "N token=1 k; nothing", 0},
		{"exact token", "held", exact, "R token=1 k; nothing", 0},
		{"exact token", "full", exact, "R token=1 k; nothing", 2},
		{"exact token", "capacity", exact, "R token=1 k; nothing", 3},
		{"wrong token", "free", wrong, "N token=2 k; nothing", 0},
		{"wrong token", "held", wrong, "N token=2 k; nothing", 1},
		{"wrong token", "full", wrong, "N token=2 k; nothing", 1},
		{"wrong token", "capacity", wrong, "N token=2 k; nothing", 1},
	})
}

func TestCapacityIsCheckedBeforeTheKey(t *testing.T) {
	inBubble(t, Config{Capacity: 1}, func(h *harness) {
		p := h.dial()
		p.acquire("a", 0, 100, 1)
		p.acquire("b", 0, 100, 2) // free, and still busy
		p.acquire("a", 9, 100, 3)
		p.release("b", 1)
		p.want("A owner=1 token=1 a", "B owner=2 b", "B owner=3 a", "N token=1 b")
		h.wantTold("granted a token=1 owner=1", "attempt_ended b refused owner=2", "attempt_ended a refused owner=3")
	})
}

func TestRowsOfVersion0(t *testing.T) {
	wait := func(p *peer) { p.acquire("k", 40, 200, 0) }
	ever := func(p *peer) { p.acquire("k", 0, 200, 0) }
	release := func(p *peer) { p.release("k", 0) }
	runRows(t, v0, []row{
		{"wait", "free", wait, "A token=1 k; nothing", 1},
		{"wait", "held", wait, "T k; nothing", 1},
		{"wait", "full", wait, "FIN", 1},
		{"wait", "capacity", wait, "FIN", 1},
		{"wait for ever", "free", ever, "A token=1 k; nothing", 1},
		{"wait for ever", "held", ever, "nothing", 1},
		{"wait for ever", "full", ever, "FIN", 1},
		{"wait for ever", "capacity", ever, "FIN", 1},
		{"release", "free", release, "N k; nothing", 0},
		{"release", "held", release, "R k; nothing", 0},
		{"release", "full", release, "R k; nothing", 2},
		{"release", "capacity", release, "R k; nothing", 3},
	})
}

func TestVersion0WaitsForEverAndSixteenBits(t *testing.T) {
	inBubble(t, Config{Dialect: v0}, func(h *harness) {
		p, q, r := h.dial(), h.dial(), h.dial()
		p.acquire("k", 1, 65535, 0)
		p.want("A token=1 k")
		start := time.Now()
		q.acquire("k", 0, 300, 0)
		h.told()
		r.acquire("k", 65535, 300, 0)
		q.want("A token=2 k")
		if ms := since(start); ms != 65_535_000 {
			t.Errorf("granted after %d ms, want the 65535 s of the lease", ms)
		}
		r.want("T k") // at its own deadline, at that very instant
	})
}

func TestVersion0ReleaseEndsAnyonesGrant(t *testing.T) {
	inBubble(t, Config{Dialect: v0}, func(h *harness) {
		p, q := h.dial(), h.dial()
		p.acquire("k", 1, 2, 0)
		p.want("A token=1 k")
		time.Sleep(2 * time.Second)
		q.acquire("k", 1, 60, 0)
		q.want("A token=2 k")
		p.release("k", 0) // its lease has passed; this is q's grant
		p.want("R k")
		h.wantHolder("k", 0)
		g := h.History("k")
		if len(g) != 2 || g[0].How != Expired || g[1].How != Released || g[1].EndedBy != p.nc.LocalAddr().String() {
			t.Errorf("history %+v", g)
		}
	})
}
