package adapter

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answers are those of a library, by the id.
type answers struct {
	mu  sync.Mutex
	all map[uint64][]Response
}

func (a *answers) got(r Response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[*r.ID] = append(a.all[*r.ID], r)
}

func (a *answers) of(id uint64) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := ""
	for _, r := range a.all[id] {
		s += r.Type + " " + r.Outcome + r.Token + ";"
	}
	return s
}

func ptr[T any](v T) *T { return &v }

// TestAttach: by calls the answers are those that Serve writes.
func TestAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		got := &answers{all: map[uint64][]Response{}}
		a := Attach(lib, got.got)
		for i, req := range []Request{
			{Type: TypeOpen, Client: "c1", Addresses: []string{"a:1"}}, // before init
			{Type: TypeInit, Version: Version, Dialect: "ticketing"},
			{Type: TypeOpen, Client: "c1", Addresses: []string{"a:1"}},
			{Type: TypeAcquire, Client: "c1", Key: "grant-1", Wait: ptr(1.0), Lease: ptr(5.0)},
			{Type: TypeRelease, Client: "c1", Call: ptr(uint64(3))},
			{Type: TypeAcquire, Client: "c1", Key: "block-1", Wait: ptr(1.0), Lease: ptr(5.0)},
			{Type: TypeCancel, Call: ptr(uint64(5))},
			{Type: TypeAcquire, Client: "c1", Key: "block-2", Wait: ptr(1.0), Lease: ptr(5.0)},
			{Type: TypePing},
			{Type: TypeClose, Client: "c1"},
			{Type: "dance"},
		} {
			req.ID = uint64(i)
			a.Do(req)
			synctest.Wait()
		}
		for id, want := range []string{
			"error ;", "init_ok ;", "open_ok ;", "started ;result acquired9223372036854775809;", "result released;",
			"started ;result indeterminate;", "cancel_ok ;", "started ;result indeterminate;", "pong ;", "close_ok ;", "unsupported ;",
		} {
			if s := got.of(uint64(id)); s != want {
				t.Errorf("request %d is answered %q, not %q", id, s, want)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAttachedEnds: Close ends calls and clients, and tells of a call that does not end.
func TestAttachedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		lib.opening = make(chan struct{})
		got := &answers{all: map[uint64][]Response{}}
		a := Attach(lib, got.got)
		a.Do(Request{Type: TypeInit, ID: 1, Version: Version, Dialect: "ticketing"})
		a.Do(Request{Type: TypeOpen, ID: 2, Client: "c1", Addresses: []string{"a:1"}})
		lib.opening <- struct{}{} // Open may return
		synctest.Wait()
		a.Do(Request{Type: TypeAcquire, ID: 3, Client: "c1", Key: "block-1", Wait: ptr(1.0), Lease: ptr(5.0)})
		a.Do(Request{Type: TypeAcquire, ID: 4, Client: "c1", Key: "stuck-1", Wait: ptr(1.0), Lease: ptr(5.0)})
		synctest.Wait()
		began := time.Now()
		if err := a.Close(); err == nil || time.Since(began) != endCallsLimit {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		closes := 0
		lib.look(func() { closes = lib.closes })
		if closes != 1 || got.of(3) != "started ;result indeterminate;" || got.of(4) != "started ;" {
			t.Errorf("%d closed, %q, %q", lib.closes, got.of(3), got.of(4))
		}
		close(lib.opening)
	})
}
