// Package api is the REST API of the daemon, and the set of proxies that it
// manages. It translates and decides nothing: what a rule, a fault or a proxy does is
// the business of packages faults and proxy.
//
// The routes /version, /reset and /proxies are those of toxiproxy 2.12.0, with its
// codes, bodies and error texts, so that its clients can be used. Bodies are read
// strictly: unknown fields, wrong types and units, members that are there twice and
// data behind the object are refused, with all problems at once.
package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Limits of the API's server.
const (
	HeaderTimeout = 5 * time.Second  // for the header of a request
	ReadTimeout   = 15 * time.Second // for a whole request
	WriteTimeout  = 30 * time.Second // from there to the end of the answer
	IdleTimeout   = time.Minute      // between two requests of a connection
	DrainTimeout  = 2 * time.Second  // for requests under way when the server ends
	MaxHeader     = 16 << 10         // bytes of a header; net/http grants it up to 8 KiB more
	MaxConns      = 256              // connections at once; for one more, that which was idle the longest is closed
)

// Serve answers the API on l until ctx is done, then ends all proxies and their
// sessions. It closes l, and returns when all goroutines have ended.
func Serve(ctx context.Context, l net.Listener, m *Manager) error {
	defer m.Close()
	base, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	open := newConns(MaxConns)
	s := &http.Server{
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       open.context,
		ConnState:         open.changed,
		Handler:           open.handler(NewHandler(m)),
		ReadHeaderTimeout: HeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeader,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), DrainTimeout)
		defer cancel()
		if s.Shutdown(drain) != nil {
			_ = s.Close() // it has no more to tell
		}
	})
	err := s.Serve(l)
	if stop() {
		return errors.Join(err, s.Close())
	}
	<-ended
	return nil
}
