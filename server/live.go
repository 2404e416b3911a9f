package server

import "sync"

// liveConns are the connections that are being served. The zero value has none.
type liveConns struct {
	mu  sync.Mutex
	all map[*conn]struct{}
}

func (l *liveConns) add(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*conn]struct{}{}
	}
	l.all[c] = struct{}{}
}

func (l *liveConns) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, c)
}

// count calls do for every connection, with no lock held, and counts those for
// which it is true.
func (l *liveConns) count(do func(c *conn) bool) int {
	l.mu.Lock()
	all := make([]*conn, 0, len(l.all))
	for c := range l.all {
		all = append(all, c)
	}
	l.mu.Unlock()
	n := 0
	for _, c := range all {
		if do(c) {
			n++
		}
	}
	return n
}

// KeepAlive sends a lone newline (spec/ticketing.md §1.2) on every live connection
// whose client has passed the preface, behind what is queued to be written and
// never inside a frame. It returns on how many; a connection whose answers pile up
// to OutboxLimit, or that is about to end, gets none.
func (s *Server) KeepAlive() int {
	return s.live.count(func(c *conn) bool { return c.greeted.Load() && c.out.offer(s.dialect.alive, nil) })
}

// HalfClose sends FIN on every live connection, behind what is queued to be
// written, and returns on how many. The server goes on reading them: requests have
// their effect on the table, but no answer. Such a connection is over when its
// client ends it, be it with a FIN alone, and its queued attempts are dropped then.
// A connection that is about to end, or whose transport has no half-close, is left
// alone.
func (s *Server) HalfClose() int {
	return s.live.count(func(c *conn) bool {
		_, ok := c.nc.(halfCloser)
		return ok && c.out.finish(true)
	})
}
