//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
)

// The wire is Ticketing (spec/ticketing.md §1), laid out here by hand: what
// checks the proxy must not share its decoder.
const (
	acquireHeader = 11  // op, wait, lease, owner
	releaseHeader = 9   // op, token
	tailLimit     = 128 // bytes of a key
	lineLimit     = 256 // bytes of a preface line
	keyMost       = 48  // bytes of the keys made here, for frames of the usual size
)

// A key begins with what the server does once it has answered.
const (
	keyPlain = 'k' // nothing
	keyFin   = 'f' // it ends its own direction and reads on
	keyRst   = 'r' // it resets the connection
)

var crcTable = crc64.MakeTable(crc64.ECMA)

// digest answers a greeting for an empty secret, with the newline.
func digest(nonce []byte) []byte {
	sum := sha256.Sum256(nonce)
	return append([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), '\n')
}

// digestOf answers a whole greeting line without its newline.
func digestOf(greeting []byte) ([]byte, error) {
	id, nonce, ok := bytes.Cut(greeting, []byte(" "))
	if !ok || string(id) != serverID {
		return nil, wrongf("the greeting is %q", greeting)
	}
	return digest(nonce), nil
}

// request is one frame of a client.
type request struct {
	op    byte
	id    uint64 // owner or token
	key   []byte
	bytes int
}

var errBadRequest = errors.New("a request breaks the grammar")

// cutRequest takes the first whole request off the bytes of a client; it has 0
// bytes if there is none yet.
func cutRequest(b []byte) (request, error) {
	if len(b) == 0 {
		return request{}, nil
	}
	r, header := request{op: b[0]}, 0
	switch r.op {
	case 'A':
		header = acquireHeader
	case 'R':
		header = releaseHeader
	default:
		return r, fmt.Errorf("%w: op %q", errBadRequest, r.op)
	}
	if len(b) < header {
		return request{}, nil
	}
	r.id = binary.BigEndian.Uint64(b[header-8:])
	end := bytes.IndexByte(b[header:], '\n')
	switch {
	case end > tailLimit || end < 0 && len(b)-header > tailLimit || end == 0:
		return r, fmt.Errorf("%w: a key of %d bytes", errBadRequest, max(end, 0))
	case end < 0:
		return request{}, nil
	}
	r.key, r.bytes = b[header:header+end], header+end+1
	return r, nil
}

// answer appends what the server says to a request. The token of a grant is the
// checksum of all bytes of the client up to here, so that one right answer
// vouches for all of them.
func (r request) answer(dst []byte, sum uint64) []byte {
	dst = append(dst, r.op)
	dst = binary.BigEndian.AppendUint64(dst, r.id)
	if r.op == 'A' {
		dst = binary.BigEndian.AppendUint64(dst, sum)
	}
	return append(append(dst, r.key...), '\n')
}

// ending is how a session ends.
type ending int

const (
	clientFin ending = iota // the client ends its direction and reads the answers to the end
	bothFin                 // the client closes when it has every answer
	clientRst               // the client resets, with answers under way
	serverFin               // the server ends its direction, and the client talks on
	serverRst               // the server resets
	endings                 // how many there are
)

var endingNames = [endings]string{"client-fin", "close", "client-rst", "server-fin", "server-rst"}

func (e ending) String() string { return endingNames[e] }

// plan is what a session of the churn does.
type plan struct {
	id     uint64
	end    ending
	first  int // requests whose answers are read
	behind int // requests behind them: answers under way at a reset, or behind the server's FIN
}

// newPlan draws a session; the same for the same seed and id.
func newPlan(seed, id uint64) plan {
	rng := rand.New(rand.NewPCG(seed, id))
	p := plan{id: id, end: ending(rng.IntN(int(endings))), first: 1 + rng.IntN(20)}
	if p.end == clientRst || p.end == serverFin {
		p.behind = rng.IntN(10)
	}
	return p
}

// stream is what the client of a session sends, and what it has to be answered;
// the same for the same seed and plan. Nobody but its own goroutine may use it.
type stream struct {
	plan plan
	rng  *rand.Rand
	made int    // requests so far
	n    int    // bytes of them
	sum  uint64 // checksum of those
}

func newStream(seed uint64, p plan) *stream {
	return &stream{plan: p, rng: rand.New(rand.NewPCG(seed^0x9e3779b97f4a7c15, p.id))}
}

// next appends the next request to req and its answer to ans.
func (s *stream) next(req, ans []byte) (request, answer []byte) {
	s.made++
	r := requestOf(s.rng, s.keyKind())
	if s.made == 1 {
		r.op, r.id = 'A', s.plan.id // the server's ledger goes by it
	}
	from := len(req)
	req = append(req, r.op)
	if r.op == 'A' {
		req = append(req, byte(s.rng.Uint32()), 1+byte(s.rng.UintN(255)))
	}
	req = append(append(binary.BigEndian.AppendUint64(req, r.id), r.key...), '\n')
	s.n += len(req) - from
	s.sum = crc64.Update(s.sum, crcTable, req[from:])
	return req, r.answer(ans, s.sum)
}

// keyKind is a command behind whose answer the server acts, in the last request
// that is answered.
func (s *stream) keyKind() byte {
	switch {
	case s.made != s.plan.first:
	case s.plan.end == serverFin:
		return keyFin
	case s.plan.end == serverRst:
		return keyRst
	}
	return keyPlain
}

// requestOf draws a request. Its numbers hold every byte, newlines too.
func requestOf(rng *rand.Rand, kind byte) request {
	r := request{op: 'A', id: rng.Uint64(), key: []byte{kind}}
	if rng.IntN(5) == 0 && kind == keyPlain {
		r.op = 'R'
	}
	if rng.IntN(4) == 0 {
		r.id = 0x0a0a0a0a0a0a0a0a
	}
	for range rng.IntN(keyMost) {
		r.key = append(r.key, "0123456789abcdefghijklmnopqrstuvwxyz"[rng.IntN(36)])
	}
	return r
}

// wrongError says that bytes arrived which nobody sent like that.
type wrongError struct{ text string }

func (e wrongError) Error() string { return e.text }

func wrongf(format string, args ...any) error { return wrongError{fmt.Sprintf(format, args...)} }
