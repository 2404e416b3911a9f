package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// conns are the API's connections. One more than there may be takes the place of
// the one that has kept us waiting the longest: for a request, or for the rest of its
// header. Only where all have a request that is being answered is the new one
// turned away.
type conns struct {
	limit int

	mu   sync.Mutex
	list map[net.Conn]*connState
}

// connState is what is known of a connection.
type connState struct {
	since time.Time // of its last change
	busy  bool      // a request is being answered
}

func newConns(limit int) *conns {
	return &conns{limit: limit, list: map[net.Conn]*connState{}}
}

// turnedAway is what a connection gets for which there is no place.
const turnedAway = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 71\r\nConnection: close\r\n\r\n" +
	`{"error":"there are too many requests at once; try again","status":503}`

// changed is http.Server.ConnState.
func (c *conns) changed(nc net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if victim := c.add(nc); victim == nc {
			// The connection's buffers are empty, so that this does not wait.
			_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(nc, turnedAway)
			_ = nc.Close()
		} else if victim != nil {
			_ = victim.Close()
		}
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		delete(c.list, nc)
		c.mu.Unlock()
	default:
		c.mu.Lock()
		if s := c.list[nc]; s != nil {
			s.since = time.Now()
		}
		c.mu.Unlock()
	}
}

// add lists a connection, and returns the one that has to go for it.
func (c *conns) add(nc net.Conn) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= c.limit {
		victim = nc
		var longest time.Time
		for o, s := range c.list {
			if !s.busy && (victim == nc || s.since.Before(longest)) {
				victim, longest = o, s.since
			}
		}
		delete(c.list, victim)
	}
	if victim != nc {
		c.list[nc] = &connState{since: time.Now()}
	}
	return victim
}

// connKey is where a request's context has its connection.
type connKey struct{}

// context is http.Server.ConnContext.
func (c *conns) context(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, nc)
}

// handler marks the connections whose requests are being answered.
func (c *conns) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, _ := r.Context().Value(connKey{}).(net.Conn)
		c.busy(nc, true)
		defer c.busy(nc, false)
		next.ServeHTTP(w, r)
	})
}

func (c *conns) busy(nc net.Conn, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.list[nc]; s != nil {
		s.busy, s.since = is, time.Now()
	}
}
