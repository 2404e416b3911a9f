package proxy_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// TestMutedUntilDisarmed: a session that a rule has left without an end lives as long
// as the rule, whether its peers are still there or not.
func TestMutedUntilDisarmed(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		for _, id := range []string{"truncate-silence", "stall", "truncate-rst-client"} {
			for _, left := range []bool{false, id == "truncate-silence"} {
				b := newBed(t, tr, proxy.Config{Grammar: grammar})
				must(t, b.px.Arm(onAcquire(t, id, 3, nil)))
				cl, sv := b.connect()
				cl.send(auth, acquire)
				sv.wait(len(auth) + 3)
				b.waitKind(history.Fired)
				if left {
					cl.closeWrite()
					sv.closeWrite()
					b.waitEndSeen(history.ClientSide, history.FIN)
					b.waitEndSeen(history.ServerSide, history.FIN)
				}
				b.px.DisarmAll()
				sv.wantAll("server", auth+acquire[:3], tr.rst())
				cl.wantAll("client", "", tr.rst())
				b.leave()
			}
		}
	})
}

// TestMutedForTTL: so it is when the rule's time to live is over.
func TestMutedForTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		r := onAcquire(t, "truncate-silence", 0, nil)
		r.TTL = time.Minute
		must(t, b.px.Arm(r))
		cl, _ := b.connect()
		cl.send(auth, acquire)
		cl.wantAll("client", "", history.RST)
		if took := time.Since(b.began); took != time.Minute {
			t.Errorf("muted for %v", took)
		}
		b.leave()
	})
}

// TestTimesAreOfWhatActed: a frame that has no place for the fault costs a rule none of
// its times.
func TestTimesAreOfWhatActed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		short := frame(c2s, "A", "k", 5, 30, 7)
		r := onAcquire(t, "split", len(short)+2, nil)
		r.Times = 1
		must(t, b.px.Arm(r))
		cl, sv := b.connect()
		cl.send(auth, short, short)
		long := frame(c2s, "A", strings.Repeat("k", 40), 5, 30, 7)
		cl.send(long, long)
		sv.wait(len(auth + short + short + long + long))
		if s, _ := b.px.Rule("the rule"); s.Fired != 1 || s.Matched != 3 {
			t.Errorf("fired %d times of %d", s.Fired, s.Matched)
		}
		b.stop()
	})
}

// TestFrameEnd: a fault can act behind a frame whatever its length, however it is cut
// into reads.
func TestFrameEnd(t *testing.T) {
	a, c := frame(c2s, "A", "k", 5, 30, 7), frame(c2s, "A", "kkkkkkk", 5, 30, 7)
	for id, want := range map[string]string{
		"duplicate":     auth + a + a + c + c,
		"inject-notice": auth + a + notice + c + notice,
		"truncate-rst":  auth + a,
		"split":         "",
	} {
		for k := 1; k < len(a+c); k++ {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
				r := onAcquire(t, id, faults.FrameEnd, nil)
				if r.Fault.Injects != "" {
					r.Inject = []byte(notice)
				}
				err := b.px.Arm(r)
				if want == "" {
					if err == nil {
						t.Error("nothing lies behind the end of a frame that is split there")
					}
					b.leave()
					return
				}
				must(t, err)
				cl, sv := b.connect()
				cl.send(auth)
				_, _ = cl.Write([]byte((a + c)[:k]))
				synctest.Wait()
				_, _ = cl.Write([]byte((a + c)[k:]))
				sv.wait(len(want))
				synctest.Wait()
				if got, _, _ := sv.now(); got != want {
					t.Errorf("%s, cut at %d: server got %q, wanted %q", id, k, got, want)
				}
				b.leave()
			})
		}
	}
}
