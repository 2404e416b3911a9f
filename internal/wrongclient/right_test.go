package wrongclient

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
)

var (
	bothDialects = []string{dialectCurrent, dialectV0}
	allEnds      = []string{"FIN", "RST", "silence"}
)

func TestTearEveryByte(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, f := range exchange0(t, dialect) {
			for at := 0; at <= f.size; at++ {
				for _, how := range allEnds {
					for _, wait := range []time.Duration{0, 5 * time.Second} {
						tear(t, dialect, cut{f.dir, f.op, at, how}, f.size, wait)
					}
				}
			}
		}
	}
}

type sized struct {
	dir  frames.Direction
	op   string
	size int
}

// exchange0 is the fault-free exchange: every frame of it, and that it works.
func exchange0(t *testing.T, dialect string) []sized {
	g := frames.MustBuiltin(dialect)
	var fs []sized
	stage(t, dialect, "", func(p *peer, c adapter.Client) {
		r := c.Acquire(p.t.Context(), testKey, 5*time.Second, 30*time.Second)
		if r.Outcome != acquired || r.Token != 7 || !r.HasToken || r.Raw == "" {
			t.Fatalf("%s: got %+v", dialect, r)
		}
		for i, want := range []string{released, notHeld} {
			if dialect == dialectV0 && i == 1 {
				want = indeterminate // R goes out once
			}
			if got := r.Ticket.Release(p.t.Context()); got.Outcome != want {
				t.Errorf("%s: release %d gave %+v, not %s", dialect, i, got, want)
			}
		}
		as := p.requests("A")
		if len(as) != 1 || as[0].uint("wait") != 5 || as[0].uint("lease") != 30 || as[0].key() != testKey {
			t.Errorf("%s: requests %+v", dialect, as)
		}
		if r.HasOwner != (dialect == dialectCurrent) || r.Owner != as[0].uint("owner") {
			t.Errorf("%s: owner told %d, sent %d", dialect, r.Owner, as[0].uint("owner"))
		}
		if n := len(p.dials()); n != 1 {
			t.Errorf("%s: %d connections for one call and its releases", dialect, n)
		}
		for _, dir := range []frames.Direction{frames.ClientToServer, frames.ServerToClient} {
			for _, op := range []string{"A", "R"} {
				fs = append(fs, sized{dir, op, g.MustShape(dir, op).Size(len(testKey))})
			}
		}
		auth := p.requests("auth")[0]
		fs = append(fs, sized{frames.ClientToServer, "auth", len(auth.raw)}, sized{frames.ServerToClient, "greeting", len(greetLine)})
	}, nil)
	return fs
}

// tear plays one torn exchange with the right client and allows only what the
// contract allows.
func tear(t *testing.T, dialect string, at cut, size int, wait time.Duration) {
	name := fmt.Sprintf("%s/%s.%s@%d of %d:%s wait %v", dialect, at.dir, at.op, at.at, size, at.end, wait)
	whole := at.at == size
	var acquire []string
	switch {
	case at.op == "R", at.op == "A" && at.dir == frames.ServerToClient && whole:
		acquire = []string{acquired}
	case at.op == "A":
		acquire = []string{indeterminate}
	case at.op == "greeting" && !whole && at.end == "silence":
		acquire = []string{unsent}
	case at.op == "greeting" && !whole:
		acquire = []string{acquired} // on another connection
	case at.end == "silence":
		acquire = []string{indeterminate}
	default:
		acquire = []string{indeterminate, acquired} // whether the request was behind the preface
	}
	limit := wait
	if wait == 0 {
		limit = zeroLimit
	}
	stage(t, dialect, "", func(p *peer, c adapter.Client) {
		start := time.Now()
		r := c.Acquire(p.t.Context(), testKey, wait, 30*time.Second)
		if !slices.Contains(acquire, r.Outcome) {
			t.Errorf("%s: outcome %s (%s), not %v", name, r.Outcome, r.Raw, acquire)
		}
		if took := time.Since(start); took > limit {
			t.Errorf("%s: ended after %v", name, took)
		}
		if r.Outcome == acquired {
			tearRelease(t, p, r, at, name, whole)
		}
		if n := len(p.requests("A")); n > 1 {
			t.Errorf("%s: %d attempts", name, n)
		}
		for _, q := range p.requests("R") {
			if dialect == dialectCurrent && q.whole && q.uint("token") != r.Token {
				t.Errorf("%s: released token %d, not %d", name, q.uint("token"), r.Token)
			}
		}
	}, func(p *peer) { p.cut = &at })
}

func tearRelease(t *testing.T, p *peer, r adapter.Result, at cut, name string, whole bool) {
	p.mu.Lock()
	held := p.held[testKey]
	p.mu.Unlock()
	if r.Token != held {
		t.Errorf("%s: token told is %d, granted was %d", name, r.Token, held)
	}
	start := time.Now()
	rel := r.Ticket.Release(p.t.Context())
	if time.Since(start) > releaseLimit {
		t.Errorf("%s: release took %v", name, time.Since(start))
	}
	var want []string
	exact := p.g.Name == dialectCurrent
	switch {
	case at.op == "A" && at.end == "silence": // the release meets the silent session
		want = []string{indeterminate}
	case at.op == "A" && !exact: // or it meets the session just before its end shows
		want = []string{released, indeterminate}
	case at.op != "R", at.dir == frames.ServerToClient && whole:
		want = []string{released}
	case !exact, at.end == "silence":
		want = []string{indeterminate}
	default:
		want = []string{released, notHeld} // sent again
	}
	if !slices.Contains(want, rel.Outcome) {
		t.Errorf("%s: release gave %s (%s), not %v", name, rel.Outcome, rel.Raw, want)
	}
	if n := len(p.requests("R")); !exact && n > 1 {
		t.Errorf("%s: %d releases by key", name, n)
	}
}

// play runs one acquire of the right client against a script and returns how it
// ended and after how long.
func play(t *testing.T, dialect, defect string, wait, lease time.Duration, setup func(*peer), then func(*peer, adapter.Client, adapter.Result, time.Duration)) {
	t.Helper()
	stage(t, dialect, defect, func(p *peer, c adapter.Client) {
		start := time.Now()
		r := c.Acquire(p.t.Context(), testKey, wait, lease)
		then(p, c, r, time.Since(start))
	}, setup)
}

// onAcquire scripts the answer to acquires, and serves the rest.
func onAcquire(do func(k *link, r request)) func(*peer) {
	return func(p *peer) {
		p.script = func(k *link, r request) {
			if r.op != "A" {
				k.serve(r)
				return
			}
			do(k, r)
		}
	}
}

// after runs do later without holding the session up.
func after(d time.Duration, do func()) { time.AfterFunc(d, do) }

func owner(r request) map[string]uint64 { return map[string]uint64{"owner": r.uint("owner")} }

func TestFinalAnswers(t *testing.T) {
	for _, c := range []struct{ dialect, op, outcome string }{
		{dialectCurrent, "T", timeout}, {dialectCurrent, "B", busy}, {dialectV0, "T", timeout},
	} {
		play(t, c.dialect, "", 2*time.Second, 5*time.Second,
			onAcquire(func(k *link, r request) { k.reply(c.op, r.key(), owner(r)) }),
			func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
				if r.Outcome != c.outcome || took != 0 || len(p.requests("A")) != 1 {
					t.Errorf("%s %s: %+v after %v", c.dialect, c.op, r, took)
				}
				if !p.endedAt(1).IsZero() {
					t.Errorf("%s %s ended the session", c.dialect, c.op)
				}
			})
	}
}

// Frames that end a session leave its acquire indeterminate, and the session
// closed.
func TestFatalFrames(t *testing.T) {
	long := make([]byte, 600)
	for i := range long {
		long[i] = 'x'
	}
	for name, raw := range map[string]string{
		"M":             "M10.0.0.2:7000\n",
		"M unlisted":    "M10.9.9.9:7000\n",
		"E listed":      "Eno_leader\n",
		"E other":       "Ewhatever\n",
		"unknown op":    "Zxx\n",
		"bad UTF-8":     "L\xff\n",
		"overlong":      "E" + string(long) + "\n",
		"foreign T":     "T12345678" + testKey + "\n",
		"stray release": "N12345678" + testKey + "\n",
	} {
		play(t, dialectCurrent, "", 2*time.Second, 5*time.Second,
			onAcquire(func(k *link, r request) {
				if k.n > 1 {
					k.serve(r)
					return
				}
				_ = k.send("raw", []byte(raw))
				k.serve(r) // a right answer behind it comes too late
			}),
			func(p *peer, c adapter.Client, r adapter.Result, took time.Duration) {
				if r.Outcome != indeterminate || took != 0 {
					t.Errorf("%s: %+v after %v", name, r, took)
				}
				if p.endedAt(1).IsZero() {
					t.Errorf("%s: session still open", name)
				}
				if r := c.Acquire(p.t.Context(), "other", time.Second, 5*time.Second); r.Outcome != acquired {
					t.Errorf("%s: next call %+v", name, r)
				}
				if d := p.dials(); len(d) != 2 || d[1] != "10.0.0.2:7000" {
					t.Errorf("%s: dialled %v", name, d)
				}
			})
	}
}

// A correct answer but for one of identifier, op and key answers nothing.
func TestMatchTriple(t *testing.T) {
	for _, c := range []struct {
		request, answer, key string
		off                  uint64 // added to the identifier
	}{
		{"A", "A", testKey, 1},
		{"A", "A", "other", 0},
		{"A", "R", testKey, 0},
		{"A", "N", testKey, 0},
		{"A", "T", "other", 0},
		{"A", "B", testKey, 1},
		{"R", "R", testKey, 1},
		{"R", "R", "other", 0},
		{"R", "T", testKey, 0},
		{"R", "B", testKey, 0},
		{"R", "N", "other", 0},
	} {
		play(t, dialectCurrent, "", 2*time.Second, 5*time.Second, func(p *peer) {
			p.script = func(k *link, r request) {
				if k.n > 1 || r.op != c.request {
					k.serve(r)
					return
				}
				id := r.uint(idField(r.op)) + c.off
				k.reply(c.answer, c.key, map[string]uint64{"owner": id, "token": id})
			}
		}, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			got, want := r.Outcome, indeterminate
			if c.request == "R" {
				got, want = r.Ticket.Release(p.t.Context()).Outcome, released // on another session
			}
			if got != want || p.endedAt(1).IsZero() {
				t.Errorf("%+v: %s, session ended at %v", c, got, p.endedAt(1))
			}
		})
	}
}

// Without an answer a call ends at its deadline, and its session with it.
func TestDeadline(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, c := range []struct{ wait, ends time.Duration }{{0, zeroLimit}, {1500 * time.Millisecond, 1500 * time.Millisecond}, {999 * time.Second, maxWait}} {
			play(t, dialect, "", c.wait, 255*time.Second, onAcquire(func(*link, request) {}),
				func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
					wire := p.requests("A")[0].uint("wait")
					if r.Outcome != indeterminate || took != c.ends || wire != min(uint64((c.wait+999*time.Millisecond)/time.Second), 255) {
						t.Errorf("%s wait %v: %+v after %v, wire wait %d", dialect, c.wait, r, took, wire)
					}
					if p.endedAt(1).IsZero() {
						t.Errorf("%s wait %v: session open after the deadline", dialect, c.wait)
					}
				})
		}
	}
}

// The preface is held back: the wire wait is what is left, or nothing is sent.
func TestHeldGreeting(t *testing.T) {
	for _, c := range []struct {
		wait, held, took time.Duration
		outcome          string
		wire             uint64
	}{
		{10 * time.Second, 3500 * time.Millisecond, 3500 * time.Millisecond, acquired, 7},
		{0, 3500 * time.Millisecond, 3500 * time.Millisecond, acquired, 0},
		{2 * time.Second, 3 * time.Second, 2 * time.Second, unsent, 0},
		{0, 7 * time.Second, zeroLimit, unsent, 0},
	} {
		play(t, dialectCurrent, "", c.wait, 30*time.Second, func(p *peer) {
			p.greet = func(k *link) {
				time.Sleep(c.held)
				_ = k.send("greeting", []byte(greetLine))
			}
		}, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			time.Sleep(c.held)
			as := p.requests("A")
			if r.Outcome != c.outcome || took != c.took || len(as) > 1 || len(as) == 1 != (c.outcome == acquired) {
				t.Errorf("%+v: %+v after %v, %d attempts", c, r, took, len(as))
			}
			if len(as) == 1 && as[0].uint("wait") != c.wire {
				t.Errorf("%+v: wire wait %d", c, as[0].uint("wait"))
			}
		})
	}
}

// What is refused before anything is dialled.
func TestRefused(t *testing.T) {
	stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
		for _, b := range []struct {
			key         string
			wait, lease time.Duration
		}{{"", 0, time.Second}, {"a b", 0, time.Second}, {"k", 0, 0}, {"k", 0, 256 * time.Second}, {"k", -1, time.Second}, {"k", 0, 1500 * time.Millisecond}} {
			if r := c.Acquire(p.t.Context(), b.key, b.wait, b.lease); r.Outcome != failed {
				t.Errorf("%+v: %+v", b, r)
			}
		}
		if d := p.dials(); len(d) != 0 {
			t.Errorf("dialled %v", d)
		}
	}, nil)
	if _, err := Library("no-such"); err == nil {
		t.Error("an unknown defect was taken")
	}
	lib, _ := Library("")
	if _, err := lib.Open("http", []string{"10.0.0.1:7000"}, ""); err == nil {
		t.Error("an unknown dialect was taken")
	}
	if _, err := lib.Open(dialectV0, nil, ""); err == nil {
		t.Error("no addresses were taken")
	}
}

// The client was paused between a grant's arrival and its delivery.
func TestLateDelivery(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, c := range []struct {
			name           string
			zero           bool
			deadline, sent time.Duration // from now
			outcome        string
			releases       [2]int // current, v0
		}{
			{"in time", false, time.Nanosecond, -9 * time.Second, acquired, [2]int{}},
			{"at the deadline", false, 0, -9 * time.Second, indeterminate, [2]int{1, 1}},
			{"wait 0 in time", true, time.Second, -9 * time.Second, acquired, [2]int{}},
			{"wait 0 at the lease's end", true, time.Second, -10 * time.Second, indeterminate, [2]int{1, 0}},
			{"cancelled", false, time.Second, -9 * time.Second, indeterminate, [2]int{1, 1}},
		} {
			stage(t, dialect, "", func(p *peer, a adapter.Client) {
				cl := a.(*client)
				x := newExchange(acquireAnswers, 5, testKey)
				s, _ := cl.claim(x, nil, nil)
				s.connect(p.t.Context())
				now := time.Now()
				k := &call{
					key: testKey, lease: 10 * time.Second, zero: c.zero, owner: 5,
					deadline: now.Add(c.deadline), stamp: now.Add(c.sent),
				}
				ctx, cancel := context.WithCancel(p.t.Context())
				defer cancel()
				if c.name == "cancelled" {
					cancel()
				}
				r, _ := cl.answer(ctx, s, k, answer{op: 'A', token: 77})
				cl.leave(s, x)
				time.Sleep(20 * time.Second)
				rs := p.requests("R")
				if r.Outcome != c.outcome || len(rs) != c.releases[slices.Index(bothDialects, dialect)] {
					t.Errorf("%s %s: %+v with %d releases", dialect, c.name, r, len(rs))
				}
				if len(rs) == 1 && dialect == dialectCurrent && rs[0].uint("token") != 77 {
					t.Errorf("%s %s: released token %d", dialect, c.name, rs[0].uint("token"))
				}
			}, nil)
		}
	}
}
