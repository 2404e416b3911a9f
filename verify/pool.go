package verify

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// opensPerAdapter is how many clients are opened in an adapter whose library
// cannot close them; then a new adapter takes over. Their connections are kept
// until the adapter ends, since a library that reconnects for ever to addresses
// that are gone soon does nothing else.
const opensPerAdapter = 300

// adapterPool keeps one adapter running: one that failed is started again, one
// that is full of clients it cannot close is replaced.
type adapterPool struct {
	start   Starter
	dialect string
	place   int // among the run's pools

	mu      sync.Mutex // held while an adapter starts: the others wait for it
	conn    *adapterConn
	starts  int
	retired int
	broken  error // why no adapter can be had any more
	wg      sync.WaitGroup

	liveMu sync.Mutex
	live   []*adapterConn // those whose lateness counts
}

// get returns a live adapter, and counts a case in.
func (p *adapterPool) get(ctx context.Context) (*adapterConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return nil, p.broken
	}
	if p.conn != nil && !p.conn.isGone() {
		if !p.conn.full() {
			p.conn.use(1)
			return p.conn, nil
		}
		p.retire()
	}
	if p.starts-p.retired > maxRestarts {
		p.broken = fmt.Errorf("the adapter failed %d times, the last time so: %w", p.starts-p.retired, p.conn.explain(p.conn.reason()))
		return nil, p.broken
	}
	if p.conn != nil {
		p.conn.stop()
	}
	p.starts++
	t, err := p.start()
	if err == nil {
		p.conn, err = dialAdapter(ctx, t, p.dialect)
	}
	if err != nil {
		if ctx.Err() == nil {
			p.broken = err
		}
		return nil, err
	}
	p.conn.pool = p.place
	p.liveMu.Lock()
	p.live = append(p.live, p.conn)
	p.liveMu.Unlock()
	p.conn.use(1)
	return p.conn, nil
}

// retire lets the cases in flight finish with the adapter, then stops it.
func (p *adapterPool) retire() {
	c := p.conn
	p.conn = nil
	p.retired++
	p.wg.Go(func() {
		c.drained()
		c.stop()
	})
}

// restarts counts how often the adapter was started again after it failed.
func (p *adapterPool) restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.starts-p.retired-1, 0)
}

// strain returns how late the slowest adapter's answers are.
func (p *adapterPool) strain() time.Duration {
	p.liveMu.Lock()
	p.live = slices.DeleteFunc(p.live, (*adapterConn).isGone)
	live := slices.Clone(p.live)
	p.liveMu.Unlock()
	var worst time.Duration
	for _, c := range live {
		worst = max(worst, c.strain())
	}
	return worst
}

// close ends all adapters.
func (p *adapterPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.stop()
	}
	p.wg.Wait()
}

// usage counts the cases that use an adapter and the clients opened in it.
type usage struct {
	cases int
	opens int
	idle  chan struct{} // closed when cases is 0, if somebody waits
	kept  []net.Conn    // connections of clients that cannot be closed
	ended bool          // nothing is kept any more
}

// use adds cases that use the adapter.
func (c *adapterConn) use(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used.cases += n
	if c.used.cases == 0 && c.used.idle != nil {
		close(c.used.idle)
		c.used.idle = nil
	}
}

// drained returns when no case uses the adapter.
func (c *adapterConn) drained() {
	c.mu.Lock()
	idle := make(chan struct{})
	if c.used.cases == 0 {
		close(idle)
	} else {
		c.used.idle = idle
	}
	c.mu.Unlock()
	<-idle
}

// opened counts a client that was opened.
func (c *adapterConn) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used.opens++
}

// full tells whether the adapter should be replaced.
func (c *adapterConn) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used.opens >= opensPerAdapter && !c.closes()
}

// closes tells whether the library can close a client.
func (c *adapterConn) closes() bool { return slices.Contains(c.info.Features, "close") }

// keep keeps a connection until the adapter ends, which it may have already:
// another case has taken its successor while this one cleared up.
func (c *adapterConn) keep(conn net.Conn) {
	c.mu.Lock()
	ended := c.used.ended
	if !ended {
		c.used.kept = append(c.used.kept, conn)
	}
	c.mu.Unlock()
	if ended {
		conn.Close()
	}
}

// letGo closes the kept connections.
func (c *adapterConn) letGo() {
	c.mu.Lock()
	kept := c.used.kept
	c.used.kept, c.used.ended = nil, true
	c.mu.Unlock()
	for _, conn := range kept {
		conn.Close()
	}
}

func (c *adapterConn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}
