//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The defects of the relay that the soak must find.
const (
	defectNone     = "none"
	defectFlip     = "flip"      // a byte of every 50th key is another
	defectHarsh    = "harsh"     // a FIN arrives as a reset
	defectHalf     = "half"      // one FIN closes both directions
	defectRst      = "rst"       // a reset arrives as a FIN
	defectKeep     = "keep"      // connections to the server stay open
	defectHush     = "hush"      // a FIN is not passed on
	defectIdle     = "idle"      // a session ends by itself after a second
	defectLeak     = "leak"      // every session costs 1 MiB for good
	defectFat      = "fat"       // every session holds 1 MiB while it lasts
	defectRule     = "rule"      // a change of rules loses a byte
	defectDeaf     = "deaf"      // rules never act
	defectSlowRule = "slow-rule" // a change of rules takes 200 ms
)

// relay is a proxy with toxiproxy's API, and rules that only count; right, or
// with one defect.
type relay struct {
	defect string
	reads  atomic.Int64
	ends   atomic.Int64 // reads that end with a frame
	torn   atomic.Bool  // a byte is to be lost

	mu    sync.Mutex
	held  [][]byte
	conns []*leg
}

func serveRelay(api, defect string) error {
	r, mux := &relay{defect: defect}, http.NewServeMux()
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if r.defect == defectSlowRule && status != http.StatusOK {
				<-time.After(200 * time.Millisecond)
			}
			r.torn.Store(r.defect == defectRule)
			w.WriteHeader(status)
		}
	}
	nothing := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }
	mux.HandleFunc("GET /version", nothing)
	mux.HandleFunc("GET /proxies", nothing)
	mux.HandleFunc("POST /proxies", r.create)
	mux.HandleFunc("POST /proxies/{proxy}/rules", answer(http.StatusCreated))
	mux.HandleFunc("PUT /proxies/{proxy}/rules/{id}", answer(http.StatusOK))
	mux.HandleFunc("DELETE /proxies/{proxy}/rules/{id}", answer(http.StatusNoContent))
	mux.HandleFunc("GET /proxies/{proxy}/rules/{id}", func(w http.ResponseWriter, _ *http.Request) {
		fired := r.reads.Load()
		if r.defect == defectDeaf {
			fired = 0
		}
		fmt.Fprintf(w, `{"fired":%d}`, fired)
	})
	return http.ListenAndServe(api, mux)
}

func (r *relay) create(w http.ResponseWriter, req *http.Request) {
	var p proxySpec
	if err := json.NewDecoder(req.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l, err := net.Listen("tcp", p.Listen)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	p.Listen = l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.session(c, p.Upstream)
		}
	}()
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(p)
}

// leg is one connection of a session.
type leg struct {
	*net.TCPConn
	ended atomic.Bool // by us, with a FIN
	gone  atomic.Bool // by us, with a reset
}

func (l *leg) finish() {
	l.ended.Store(true)
	_ = l.CloseWrite()
}

func (l *leg) reset() {
	l.gone.Store(true)
	_ = l.SetLinger(0)
	_ = l.Close()
}

// wasReset tells whether a connection that reads as ended was reset: the kernel
// tells that once, and may have told it to a write. Both FINs look like it too.
func (l *leg) wasReset() bool {
	raw, err := l.SyscallConn()
	if err != nil || l.ended.Load() {
		return l.gone.Load()
	}
	dead := false
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		dead = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return dead || l.gone.Load() // a write was told of the reset, and closed it before it could be asked
}

func (r *relay) session(client net.Conn, upstream string) {
	up, err := net.Dial("tcp", upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	c, s := &leg{TCPConn: client.(*net.TCPConn)}, &leg{TCPConn: up.(*net.TCPConn)}
	defer c.Close()
	var held []byte
	switch r.defect {
	case defectLeak, defectFat:
		held = bytes.Repeat([]byte{1}, 1<<20)
	case defectIdle:
		defer time.AfterFunc(time.Second, func() { _ = c.Close() }).Stop()
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.copy(s, c) })
	wg.Go(func() { r.copy(c, s) })
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.defect {
	case defectLeak:
		r.held = append(r.held, held)
	case defectKeep:
		r.conns = append(r.conns, s)
		return
	}
	_ = s.Close()
	runtime.KeepAlive(held)
}

// copy carries one direction and then its end.
func (r *relay) copy(dst, src *leg) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if b := r.spoil(buf[:n]); len(b) > 0 {
			if _, werr := dst.Write(b); isReset(werr) {
				err = werr
			}
		}
		if err != nil {
			r.end(dst, src, err)
			return
		}
	}
}

func (r *relay) end(dst, src *leg, err error) {
	fin := err == io.EOF && !src.wasReset()
	switch {
	case fin && r.defect == defectHush:
	case fin && r.defect == defectHalf:
		_ = dst.Close()
	case fin && r.defect != defectHarsh, !fin && r.defect == defectRst:
		dst.finish()
	default:
		dst.reset()
		src.reset()
	}
}

// spoil does to bytes what the defect does.
func (r *relay) spoil(b []byte) []byte {
	r.reads.Add(1)
	switch last := len(b) - 1; {
	case last < 1:
	case r.defect == defectFlip && b[last] == '\n' && b[last-1] != '\n' && r.ends.Add(1)%50 == 0:
		b[last-1] ^= 1
	case r.torn.CompareAndSwap(true, false):
		return b[1:]
	}
	return b
}
