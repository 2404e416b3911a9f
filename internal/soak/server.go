//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	serverID    = "soak"
	readSize    = 2048    // bytes that the server reads at once
	ledgerLimit = 1 << 20 // sessions in the ledger; of more only the number is known
	prefaceTime = 10 * time.Second
)

// How an end looks to the one who reads.
const (
	endFin = "fin"
	endRst = "rst"
)

// entry is what one side knows of a session that is over.
type entry struct {
	ID    uint64 `json:"i"`
	Bytes int    `json:"n"` // of requests: received by the server, sent by the client
	Sum   uint64 `json:"s"` // their checksum
	End   string `json:"e"` // how the client ended, to the server
	Least int    `json:"l"` // bytes that the server must have received, as the client knows
}

// responder is the server: it answers every request at once, out of nothing but
// the bytes that it received.
type responder struct {
	mu       sync.Mutex
	live     int
	accepted int
	ledger   []entry
	problems problems
}

// listen accepts on count loopback addresses until ctx is done.
func (s *responder) listen(ctx context.Context, count int) (addrs []string, wait func(), err error) {
	var wg sync.WaitGroup
	for i := range count {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.65.%d:0", 1+i))
		if err != nil {
			return nil, nil, err
		}
		addrs = append(addrs, l.Addr().String())
		context.AfterFunc(ctx, func() { _ = l.Close() })
		wg.Go(func() { s.accept(ctx, l, &wg) })
	}
	return addrs, wg.Wait, nil
}

func (s *responder) accept(ctx context.Context, l net.Listener, wg *sync.WaitGroup) {
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				s.problems.add(fmt.Errorf("accepting: %w", err))
			}
			return
		}
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			s.serve(c.(*net.TCPConn))
		})
	}
}

// serve answers one connection and closes it.
func (s *responder) serve(c *net.TCPConn) {
	defer c.Close()
	s.count(1)
	defer s.count(-1)
	rest, err := greet(c)
	if err != nil {
		s.problems.add(fmt.Errorf("preface: %w", err))
		return
	}
	a := &answering{c: c, in: rest}
	a.run()
	if a.err != nil {
		s.problems.add(fmt.Errorf("session %d, byte %d: %w", a.entry.ID, a.entry.Bytes, a.err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.entry.ID != 0 && len(s.ledger) < ledgerLimit {
		s.ledger = append(s.ledger, a.entry)
	}
}

func (s *responder) count(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live += d
	s.accepted += max(d, 0)
}

// greet does the preface and returns what came behind it.
func greet(c net.Conn) (rest []byte, err error) {
	_ = c.SetDeadline(time.Now().Add(prefaceTime))
	nonce := fmt.Appendf(nil, "%016x", rand.Uint64())
	if _, err := fmt.Fprintf(c, "%s %s\n", serverID, nonce); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(c, readSize)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if want := digest(nonce); !bytes.Equal(line, want) {
		_, _ = io.WriteString(c, "Eauth_failed\n")
		return nil, wrongf("%q answers the nonce %s, wanted %q", line, nonce, want)
	}
	rest, _ = r.Peek(r.Buffered())
	return bytes.Clone(rest), c.SetDeadline(time.Time{})
}

// answering is one connection behind its preface.
type answering struct {
	c     *net.TCPConn
	in    []byte // received, not yet answered
	out   []byte
	mute  bool // our direction has ended
	over  bool // we have reset
	entry entry
	err   error
}

// run answers until either side ends. The entry then has all that was received,
// a part of a request too.
func (a *answering) run() {
	buf := make([]byte, readSize)
	for a.entry.End == "" {
		if a.step(); a.err != nil || a.over || a.entry.End != "" {
			break
		}
		n, err := a.c.Read(buf)
		a.in = append(a.in, buf[:n]...)
		if err != nil {
			a.step()
			a.ended(err)
		}
	}
	a.took(len(a.in))
}

func (a *answering) ended(err error) {
	switch {
	case a.entry.End != "": // a write was told of it
	case err == io.EOF:
		a.entry.End = endFin
	case isReset(err):
		a.entry.End = endRst
	default:
		a.err = err
	}
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// step answers all whole requests in one write, and does what they command.
func (a *answering) step() {
	a.out = a.out[:0]
	var command byte
	for command == 0 {
		r, err := cutRequest(a.in)
		if err != nil {
			a.err = wrongError{err.Error()}
			return
		}
		if r.bytes == 0 {
			break
		}
		a.took(r.bytes)
		if a.entry.ID == 0 {
			a.entry.ID = r.id
		}
		if !a.mute {
			a.out = r.answer(a.out, a.entry.Sum)
		}
		if kind := r.key[0]; kind == keyFin || kind == keyRst {
			command = kind
		}
		a.in = a.in[r.bytes:]
	}
	if len(a.out) > 0 {
		if _, err := a.c.Write(a.out); err != nil {
			a.ended(err)
			return
		}
	}
	switch command {
	case keyFin:
		a.mute = true
		_ = a.c.CloseWrite() // fails only where the connection is gone
		a.step()
	case keyRst:
		a.over = true
		_ = a.c.SetLinger(0)
	}
}

// took counts the first n bytes of the input.
func (a *answering) took(n int) {
	a.entry.Sum = crc64.Update(a.entry.Sum, crcTable, a.in[:n])
	a.entry.Bytes += n
}

// state tells and forgets what has happened since it was last asked.
func (s *responder) state() report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := report{Live: s.live, Done: s.accepted, Ledger: s.ledger, Problems: s.problems.take()}
	s.accepted, s.ledger = 0, nil
	return r
}

// liveNow tells how many connections are served.
func (s *responder) liveNow() report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return report{Live: s.live}
}
