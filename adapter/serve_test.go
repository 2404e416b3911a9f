package adapter

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDialogue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		s := startRaw(t, lib)
		s.expect(`{"type":"init","id":0,"version":1,"dialect":"ticketing","new":[1]}`,
			`{"type":"init_ok","id":0,"client":"fake 1","dialects":["ticketing"],"features":["cancel","close","owner"]}`)
		s.expect(`{"type":"open","id":1,"client":"c1","addresses":["h:1","h:2"],"secret":"s"}`, `{"type":"open_ok","id":1}`)
		s.expect(`{"type":"acquire","id":2,"client":"c1","key":"grant","wait":0.5,"lease":30}`,
			`{"type":"started","id":2}`, `{"type":"result","id":2,"outcome":"acquired","token":"9223372036854775809","owner":"1"}`)
		s.expect(`{"type":"release","id":4,"client":"c1","call":2}`, `{"type":"result","id":4,"outcome":"released"}`)
		s.expect(`{"type":"release","id":5,"client":"c1","call":2}`, `{"type":"result","id":5,"outcome":"not_held"}`)
		s.expect(`{"type":"ping","id":6}`, `{"type":"pong","id":6}`)
		s.expect(`{"type":"close","id":7,"client":"c1"}`, `{"type":"close_ok","id":7}`)
		s.expect("")
		if err := s.end(0); err != nil {
			t.Error(err)
		}
		if want := []string{"ticketing[h:1 h:2]s"}; !slices.Equal(lib.opens, want) {
			t.Errorf("opens %q, want %q", lib.opens, want)
		}
		if want := []string{"grant 500ms 30s"}; !slices.Equal(lib.acquires, want) {
			t.Errorf("acquires %q, want %q", lib.acquires, want)
		}
		if lib.closes != 1 || s.log.Len() != 0 {
			t.Errorf("%d closes, complaints %q", lib.closes, s.log.String())
		}
	})
}

func TestInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startRaw(t, newFake())
		s.expect(`{"type":"open","id":1,"client":"c1","addresses":["h:1"]}`, `{"type":"error","id":1,"detail":"open before init"}`)
		s.expect(`{"type":"init","id":2,"version":2,"dialect":"ticketing"}`,
			`{"type":"error","id":2,"detail":"protocol version 2, this adapter speaks 1"}`)
		s.expect(`{"type":"init","id":3,"version":1}`, `{"type":"error","id":3,"detail":"init without a dialect"}`)
		// A dialect that it lacks is no error: the tool sees it in dialects.
		s.expect(`{"type":"init","id":4,"version":1,"dialect":"x"}`,
			`{"type":"init_ok","id":4,"client":"fake 1","dialects":["ticketing"],"features":["cancel","close","owner"]}`)
		s.expect(`{"type":"open","id":5,"client":"c1","addresses":["h:1"]}`,
			`{"type":"error","id":5,"detail":"the library does not speak the dialect of init"}`)
		s.expect(`{"type":"init","id":6,"version":1,"dialect":"ticketing"}`,
			`{"type":"init_ok","id":6,"client":"fake 1","dialects":["ticketing"],"features":["cancel","close","owner"]}`)
		s.open("c1")
		s.expect(`{"type":"init","id":7,"version":1,"dialect":"ticketing"}`,
			`{"type":"error","id":7,"detail":"init while clients are open"}`)
		_ = s.end(0)
	})
}

func TestOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		s := start(t, lib)
		s.expect(`{"type":"open","id":1,"addresses":["h:1"]}`, `{"type":"error","id":1,"detail":"open without a client name"}`)
		for _, addresses := range []string{`[]`, `[""]`, `null`} {
			s.expect(`{"type":"open","id":2,"client":"c","addresses":`+addresses+`}`,
				`{"type":"error","id":2,"detail":"open without addresses, or with an empty one"}`)
		}
		lib.look(func() { lib.openErr = errors.New("no luck") })
		s.expect(`{"type":"open","id":3,"client":"c","addresses":["h:1"]}`, `{"type":"error","id":3,"detail":"no luck"}`)
		lib.look(func() { lib.openErr = nil })
		s.open("c") // the failed open did not keep the name
		s.expect(`{"type":"open","id":4,"client":"c","addresses":["h:1"]}`, `{"type":"error","id":4,"detail":"client \"c\" is already open"}`)
		_ = s.end(0)
	})
}

func TestBadRequests(t *testing.T) {
	result := func(raw string) string {
		return fmt.Sprintf(`{"type":"result","id":9,"outcome":"error","raw":%q}`, "adapter: "+raw)
	}
	failed := func(detail string) string { return fmt.Sprintf(`{"type":"error","id":9,"detail":%q}`, detail) }
	for _, c := range []struct{ request, want string }{
		{`{"type":"acquire","id":9,"client":"c","key":"grant","lease":1}`, result("acquire without a wait")},
		{`{"type":"acquire","id":9,"client":"c","key":"grant","wait":1}`, result("acquire without a lease")},
		{`{"type":"acquire","id":9,"client":"c","key":"grant","wait":-0.5,"lease":1}`, result("a wait of -0.5 s, must not be negative")},
		{`{"type":"acquire","id":9,"client":"c","key":"grant","wait":1,"lease":-1}`, result("a lease of -1 s, must not be negative")},
		{`{"type":"acquire","id":9,"client":"c","key":"grant","wait":1.1e9,"lease":1}`, result("a wait of 1.1e+09 s, limit 1e+09 s")},
		{`{"type":"acquire","id":9,"client":"c","key":"grant","wait":1,"lease":1e300}`, result("a lease of 1e+300 s, limit 1e+09 s")},
		{`{"type":"acquire","id":9,"client":"d","key":"grant","wait":1,"lease":1}`, result(`client "d" is not open`)},
		{`{"type":"release","id":9,"client":"c"}`, result("release without a call")},
		{`{"type":"release","id":9,"client":"c","call":77}`, result("call 77 holds no ticket")},
		{`{"type":"release","id":9,"client":"d","call":1}`, result(`call 1 is not one of client "d"`)},
		{`{"type":"acquire","id":1,"client":"c","key":"grant","wait":1,"lease":1}`, `{"type":"result","id":1,"outcome":"error","raw":"adapter: id 1 is a call already"}`},
		{`{"type":"cancel","id":9}`, failed("cancel without a call")},
		{`{"type":"cancel","id":9,"call":77}`, `{"type":"cancel_ok","id":9}`},
		{`{"type":"cancel","id":9,"call":1}`, `{"type":"cancel_ok","id":9}`},
		{`{"type":"close","id":9,"client":"d"}`, failed(`client "d" is not open`)},
		{`{"type":"dance","id":9}`, `{"type":"unsupported","id":9,"detail":"unknown request type \"dance\""}`},
		{`{"id":9}`, `{"type":"unsupported","id":9,"detail":"unknown request type \"\""}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			lib := newFake()
			s := start(t, lib)
			s.open("c")
			s.send(`{"type":"acquire","id":1,"client":"c","key":"grant","wait":0,"lease":0}`)
			s.answers()
			s.expect(c.request, c.want)
			if len(lib.acquires) != 1 || len(lib.releases) != 0 {
				t.Errorf("%s reached the library", c.request)
			}
			if err := s.end(0); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMalformedLines(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for _, c := range []struct{ line, want string }{
		{`{"type":"ping","id":9,"wait":"x"}`, `a line that is not a request`},
		{`{"type":"ping","id":9,"wait":1e999}`, `a line that is not a request`},
		{`{"type":"ping","id":9,`, `a line that is not a request`},
		{`{"type":"ping","id":9} {}`, `a line that is not a request`},
		{"{\"type\":\"ping\",\"id\":9,\"key\":\"\xff\"}", `a line that is not UTF-8`},
		{`{"id":9,"type":"ping","key":"` + long + `"}`, `a line of more than 65536 bytes`},
		{`{"type":"ping","key":"` + long + `","id":9}`, ``},
		{`{"type":"ping"}`, ``},
		{`{"type":"ping","id":-1}`, ``},
		{`{"type":"ping","id":"9"}`, ``},
		{`{"type":"ping","id":null}`, ``},
		{`{"type":"ping","id":18446744073709551616}`, ``},
		{`ping`, ``},
		{`null`, ``},
		{`[{"id":9}]`, ``},
		{`{`, ``},
		{`{"a":{"id":9}`, ``},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, newFake())
			s.send(c.line)
			got := s.answers()
			name := clip(c.line, 60)
			if c.want == "" {
				if len(got) != 0 || strings.Count(s.log.String(), "\n") != 1 || s.log.Len() > 2000 {
					t.Errorf("%s: answered %q, complaints %q", name, got, s.log.String())
				}
			} else if len(got) != 1 || !strings.HasPrefix(got[0], `{"type":"error","id":9,"detail":"`+c.want) || s.log.Len() > 0 {
				t.Errorf("%s: answered %q, complaints %q", name, got, s.log.String())
			}
			s.expect(`{"type":"ping","id":10}`, `{"type":"pong","id":10}`)
			_ = s.end(0)
		})
	}
}

func TestComplaintsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFake())
		for range 3 * maxComplaints {
			s.send("x")
		}
		s.answers()
		if n := strings.Count(s.log.String(), "\n"); n != maxComplaints {
			t.Errorf("%d complaints, want %d", n, maxComplaints)
		}
		_ = s.end(0)
	})
}

func TestLineLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFake())
		line := `{"type":"ping","id":9,"key":""}`
		fill := strings.Repeat("x", MaxLine-len(line)-1)
		s.expect(`{"type":"ping","id":9,"key":"`+fill+`"}`, `{"type":"pong","id":9}`)
		s.expect(`{"type":"ping","id":9,"key":"x`+fill+`"}`, `{"type":"error","id":9,"detail":"a line of more than 65536 bytes"}`)
		_ = s.end(0)
	})
}

func TestLastLineWithoutNewline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFake())
		_, _ = io.WriteString(s.in, "\r\n\n"+`{"type":"ping","id":1}`)
		if err := s.end(0); err != nil {
			t.Error(err)
		}
		if got := s.answers(); !slices.Equal(got, []string{`{"type":"pong","id":1}`}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestCallsAreConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFake())
		s.open("c", "d")
		began := time.Now()
		const n = 500
		for i := range n {
			s.send(fmt.Sprintf(`{"type":"acquire","id":%d,"client":"c","key":"timeout","wait":%d,"lease":1}`, 1000+i, 10+i%5))
		}
		if got := s.answers(); len(got) != n || time.Since(began) != 0 {
			t.Fatalf("%d started", len(got))
		}
		s.expect(`{"type":"ping","id":1}`, `{"type":"pong","id":1}`)
		s.send(`{"type":"acquire","id":2,"client":"d","key":"grant","wait":1,"lease":1}`)
		if got := s.answers(); len(got) != 2 {
			t.Errorf("a call behind others that wait: %q", got)
		}
		time.Sleep(14 * time.Second)
		seen := map[uint64]bool{}
		for _, text := range s.answers() {
			r := decode(t, text)
			if r.Outcome != "timeout" || seen[*r.ID] {
				t.Errorf("answer %s", text)
			}
			seen[*r.ID] = true
		}
		if len(seen) != n {
			t.Errorf("%d of %d results", len(seen), n)
		}
		_ = s.end(0)
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		lib.opening = make(chan struct{})
		close(lib.opening)
		s := start(t, lib)
		s.open("c")
		acquire := func(id int, key string) {
			s.expect(fmt.Sprintf(`{"type":"acquire","id":%d,"client":"c","key":%q,"wait":60,"lease":1}`, id, key),
				fmt.Sprintf(`{"type":"started","id":%d}`, id))
		}
		acquire(1, "block")
		acquire(2, "block")
		acquire(3, "race")
		s.send(`{"type":"cancel","id":10,"call":1}`)
		if got := s.answers(); !sameSet(got, `{"type":"cancel_ok","id":10}`, `{"type":"result","id":1,"outcome":"indeterminate","raw":"cancelled"}`) {
			t.Errorf("cancel: %q", got) // and call 2 goes on
		}
		s.expect(`{"type":"cancel","id":11,"call":1}`, `{"type":"cancel_ok","id":11}`)
		s.send(`{"type":"cancel","id":12,"call":3}`)
		if got := s.answers(); !sameSet(got, `{"type":"cancel_ok","id":12}`, `{"type":"result","id":3,"outcome":"acquired","token":"3"}`) {
			t.Errorf("cancel that loses the race: %q", got)
		}
		s.expect(`{"type":"release","id":13,"client":"c","call":3}`, `{"type":"result","id":13,"outcome":"released"}`)
		s.expect(`{"type":"release","id":14,"client":"c","call":2}`,
			`{"type":"result","id":14,"outcome":"error","raw":"adapter: call 2 holds no ticket"}`)
		_ = s.end(0)
	})
}

// A library that does not react to its cancel must not look like an adapter
// that does not answer.
func TestCancelOfAStuckCallIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		s := start(t, lib)
		s.open("c")
		lib.opening = make(chan struct{})
		s.expect(`{"type":"acquire","id":1,"client":"c","key":"stuck","wait":60,"lease":1}`, `{"type":"started","id":1}`)
		s.expect(`{"type":"cancel","id":2,"call":1}`, `{"type":"cancel_ok","id":2}`)
		close(lib.opening)
		_ = s.end(0)
	})
}

func TestCancelAndCloseUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		lib.info.Features = nil
		s := startRaw(t, lib)
		s.expect(`{"type":"init","id":0,"version":1,"dialect":"ticketing"}`,
			`{"type":"init_ok","id":0,"client":"fake 1","dialects":["ticketing"]}`)
		s.open("c")
		s.expect(`{"type":"cancel","id":1,"call":7}`, `{"type":"unsupported","id":1,"detail":"the library has no cancel"}`)
		s.expect(`{"type":"close","id":2,"client":"c"}`, `{"type":"unsupported","id":2,"detail":"the library has no close"}`)
		_ = s.end(0)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		s := start(t, lib)
		s.open("c", "d")
		s.send(`{"type":"acquire","id":1,"client":"c","key":"grant","wait":1,"lease":1}`,
			`{"type":"acquire","id":2,"client":"c","key":"block","wait":1,"lease":1}`,
			`{"type":"acquire","id":3,"client":"d","key":"block","wait":1,"lease":1}`)
		s.answers()
		s.send(`{"type":"close","id":4,"client":"c"}`)
		if got := s.answers(); !sameSet(got, `{"type":"close_ok","id":4}`, `{"type":"result","id":2,"outcome":"indeterminate","raw":"closed"}`) {
			t.Errorf("close: %q", got)
		}
		if len(lib.releases) != 0 {
			t.Error("close released a held ticket")
		}
		s.expect(`{"type":"release","id":5,"client":"c","call":1}`, `{"type":"result","id":5,"outcome":"released"}`)
		s.expect(`{"type":"release","id":6,"client":"c","call":1}`, `{"type":"result","id":6,"outcome":"not_held"}`)
		s.expect(`{"type":"acquire","id":7,"client":"c","key":"grant","wait":1,"lease":1}`,
			`{"type":"result","id":7,"outcome":"error","raw":"adapter: client \"c\" is not open"}`)
		s.expect(`{"type":"close","id":8,"client":"c"}`, `{"type":"error","id":8,"detail":"client \"c\" is not open"}`)
		lib.clients[1].once.Do(func() { close(lib.clients[1].gone) })
		s.answers()
		s.expect(`{"type":"close","id":9,"client":"d"}`, `{"type":"error","id":9,"detail":"closed twice"}`)
		_ = s.end(0)
	})
}

func TestUnknownOutcomeAndLongRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFake())
		s.open("c")
		s.send(`{"type":"acquire","id":1,"client":"c","key":"fine","wait":1,"lease":1}`)
		if got := s.answers(); len(got) != 2 || got[1] != `{"type":"result","id":1,"outcome":"error","raw":"adapter: outcome \"fine\": fine"}` {
			t.Errorf("got %q", got)
		}
		long := strings.Repeat("\u00e9\\u0001", 6000)
		s.send(`{"type":"acquire","id":2,"client":"c","key":"error-` + long + `","wait":1,"lease":1}`)
		got := s.answers()
		if len(got) != 2 {
			t.Fatalf("%d answers", len(got))
		}
		r := decode(t, got[1])
		if len(r.Raw) > maxText || len(r.Raw) < maxText-4 || strings.Contains(r.Raw, "\uFFFD") {
			t.Errorf("raw of %d bytes", len(r.Raw))
		}
		_ = s.end(0)
	})
}

func sameSet(got []string, want ...string) bool {
	got = slices.Sorted(slices.Values(got))
	slices.Sort(want)
	return slices.Equal(got, want)
}
