package proxy_test

import (
	"io"
	"testing"
	"testing/synctest"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// FuzzTransparent: whatever both peers send, cut into writes anywhere, arrives
// identical, whether it is decoded, awaited by a rule that never fires, or just
// passes; each end comes behind its bytes, and ends one direction only.
func FuzzTransparent(f *testing.F) {
	f.Add([]byte(auth+acquire+release), []byte(greeting+acquired+"\n"+released), []byte{1, 7, 200, 0, 30}, uint8(1))
	f.Add([]byte(auth+"?garbage\n"+acquire), []byte(greeting+acquired[:9]), []byte{3}, uint8(6))
	f.Add([]byte{}, []byte("\n\n\x00\xff"), []byte{}, uint8(0))
	f.Add([]byte(auth+acquire[:5]), []byte{'A'}, []byte{255, 255}, uint8(11))
	f.Fuzz(func(t *testing.T, up, down, cuts []byte, mode uint8) {
		if len(up)+len(down) > 8<<10 {
			t.Skip("longer input is only slower")
		}
		synctest.Test(t, func(t *testing.T) { wantTransparent(t, string(up), string(down), cuts, mode) })
	})
}

// wantTransparent has both peers send. Of mode bit 0 has it decoded, bit 1 has the
// server end first, bit 2 arms a rule, bit 3 leaves little room in the network.
func wantTransparent(t *testing.T, up, down string, cuts []byte, mode uint8) {
	var cfg proxy.Config
	if mode&1 != 0 {
		cfg.Grammar = grammar
	}
	if mode&4 != 0 {
		cfg.Rules = rules(t, faults.Rule{
			ID: "never", Fault: fault(t, "drop"), Trigger: faults.Trigger{Dir: s2c, Op: "A", Nth: 1 << 30},
		})
	}
	size := 0
	if mode&8 != 0 {
		size = 5
	}
	b := newBed(t, inMemory(size), cfg)
	cl, sv := b.connect()
	turn := 0
	next := func(p *peer, rest string) string {
		n := len(rest)
		if len(cuts) > 0 {
			n = min(n, int(cuts[turn%len(cuts)]))
			turn++
		}
		if n == 0 {
			n = min(1, len(rest))
		}
		_, err := io.WriteString(p, rest[:n])
		must(t, err)
		return rest[n:]
	}
	for u, d := up, down; u != "" || d != ""; {
		u, d = next(cl, u), next(sv, d)
	}
	first, second, one, two := cl, sv, up, down
	if mode&2 != 0 {
		first, second, one, two = sv, cl, down, up
	}
	first.closeWrite()
	second.wantAll("the second", one, history.FIN)
	synctest.Wait()
	first.wantGot("the first", two, "")
	second.send("late") // there is still a way back
	second.closeWrite()
	first.wantAll("the first", two+"late", history.FIN)
	ev := b.stop()
	if f := ofKind(ev, history.Fired); len(f) > 0 {
		t.Errorf("fired: %+v", f)
	}
	w := checkRecord(t, ev)
	for k, want := range map[wireKey]string{{1, c2s}: up, {1, s2c}: down} {
		if mode&2 == 0 && k.dir == s2c || mode&2 != 0 && k.dir == c2s {
			want += "late"
		}
		if got := w[k]; got != nil && (string(got.received) != want || string(got.delivered) != want) || got == nil && want != "" {
			t.Errorf("%s: recorded as %+v, wanted %q", k.dir, got, clip(want))
		}
	}
}
