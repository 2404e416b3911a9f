package verify

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// adapterPool keeps one adapter running: one that failed is started again.
type adapterPool struct {
	start   Starter
	dialect string

	mu     sync.Mutex // held while an adapter starts: the others wait for it
	conn   *adapterConn
	starts int
	broken error // why no adapter can be had any more
}

// get returns a live adapter.
func (p *adapterPool) get(ctx context.Context) (*adapterConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return nil, p.broken
	}
	if p.conn != nil {
		select {
		case <-p.conn.gone:
		default:
			return p.conn, nil
		}
		p.conn.stop()
	}
	if p.starts > maxRestarts {
		p.broken = fmt.Errorf("the adapter failed %d times, the last time so: %w", p.starts, p.conn.explain(p.conn.reason()))
		return nil, p.broken
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
	return p.conn, nil
}

// restarts counts how often the adapter was started again.
func (p *adapterPool) restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.starts-1, 0)
}

// strain returns how late the adapter's answers are; while it starts, not at all.
func (p *adapterPool) strain() time.Duration {
	if !p.mu.TryLock() {
		return 0
	}
	defer p.mu.Unlock()
	if p.conn == nil {
		return 0
	}
	return p.conn.strain()
}

// close ends the adapter.
func (p *adapterPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.stop()
	}
}
