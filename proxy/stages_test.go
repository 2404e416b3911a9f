package proxy_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
)

// pipeRoom is how many bytes a plain pipe holds.
const pipeRoom = 4096

// plainStages are byte stages of one kind: "pass", "slow" (each run of bytes after
// 20 ms), "hold" (for ever), "drop", "fin" and "rst" (after 100 bytes).
type plainStages struct {
	kind string
	dirs [2]bool // for which directions; both if none
}

func (s plainStages) Len(dir frames.Direction) int {
	if s.kind == "" || s.dirs != [2]bool{} && !s.dirs[dir] {
		return 0
	}
	return 1
}

func (s plainStages) Open(_ int, dir frames.Direction) faults.Pipe {
	p := &plainPipe{dir: dir, changed: make(chan struct{})}
	p.Change(s)
	return p
}

type plainPipe struct {
	dir frames.Direction

	mu      sync.Mutex
	kind    string
	runs    [][]byte
	size    int
	passed  int
	ended   bool
	over    bool
	outcome faults.End
	changed chan struct{} // closed at the next change
}

// change does something under the mutex and wakes all.
func (p *plainPipe) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plainPipe) Send(b []byte, quiet <-chan struct{}) bool {
	for {
		p.mu.Lock()
		room, over, changed := p.size == 0 || p.size+len(b) <= pipeRoom, p.over || p.ended, p.changed
		p.mu.Unlock()
		switch {
		case over:
			return false
		case room:
			p.change(func() { p.runs, p.size = append(p.runs, bytes.Clone(b)), p.size+len(b) })
			return true
		}
		select {
		case <-changed:
		case <-quiet:
			return false
		}
	}
}

func (p *plainPipe) End()     { p.change(func() { p.ended = true }) }
func (p *plainPipe) Abandon() { p.change(func() { p.over = true }) }

func (p *plainPipe) Outcome() faults.End {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outcome
}

func (p *plainPipe) Change(s faults.Stages) {
	kind := ""
	if s.Len(p.dir) > 0 {
		kind = s.(plainStages).kind
	}
	p.change(func() { p.kind = kind })
}

func (p *plainPipe) Next() ([]byte, bool) {
	for {
		p.mu.Lock()
		kind, changed := p.kind, p.changed
		switch {
		case p.over:
			p.mu.Unlock()
			return nil, false
		case kind == "hold" || len(p.runs) == 0 && !p.ended:
			p.mu.Unlock()
			<-changed
			continue
		case len(p.runs) == 0:
			p.over = true
			p.mu.Unlock()
			return nil, false
		}
		b := p.runs[0]
		p.mu.Unlock()
		if kind == "slow" {
			p.sleep(20 * ms)
		}
		if b, ok := p.pass(b, kind); ok {
			return b, true
		}
	}
}

// sleep waits, or until the stage is no longer slow.
func (p *plainPipe) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		p.mu.Lock()
		changed, slow := p.changed, p.kind == "slow" && !p.over
		p.mu.Unlock()
		if !slow {
			return
		}
		select {
		case <-t.C:
			return
		case <-changed:
		}
	}
}

// pass takes the first run out.
func (p *plainPipe) pass(b []byte, kind string) (out []byte, ok bool) {
	p.change(func() {
		p.runs, p.size = p.runs[1:], p.size-len(b)
		out, ok = b, kind != "drop"
		if kind != "fin" && kind != "rst" {
			return
		}
		out = b[:min(len(b), 100-p.passed)]
		if p.passed += len(out); p.passed == 100 {
			p.over, p.outcome = true, faults.End(kind)
		}
		ok = len(out) > 0
	})
	return out, ok
}

// leave is stop without a check of the record: which frames bytes belong to is not
// recorded behind stages.
func (b *bed) leave() []history.Event {
	b.t.Helper()
	b.end()
	must(b.t, <-b.served)
	ev, _ := b.rec.Events(0)
	return ev
}

// stream is n bytes in which no two places look alike.
func stream(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.Bytes()[:n]
}

// TestStagesCarry: through stages all bytes come in order, the sender's end behind
// them, and a half-close stays one.
func TestStagesCarry(t *testing.T) {
	for _, kind := range []string{"pass", "slow"} {
		for _, how := range []string{history.FIN, history.RST} {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
				b.px.SetStages(plainStages{kind: kind})
				cl, sv := b.connect()
				cl.send(auth, acquire, release)
				if sv.send(greeting); how == history.FIN {
					cl.closeWrite()
				} else {
					synctest.Wait()
					cl.reset()
				}
				sv.wantAll("server, "+kind, auth+acquire+release, how)
				if how == history.FIN {
					sv.send(acquired)
					sv.closeWrite()
					cl.wantAll("client, "+kind, greeting+acquired, history.FIN)
				}
				b.leave()
			})
		}
	}
}

// TestStagesOneWay: stages for one direction leave the other as it is, and what they
// drop is gone while the end passes.
func TestStagesOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		b.px.SetStages(plainStages{kind: "drop", dirs: [2]bool{c2s: true}})
		cl, sv := b.connect()
		cl.send(auth)
		sv.send(greeting)
		cl.closeWrite()
		sv.wantAll("server", "", history.FIN)
		sv.closeWrite()
		cl.wantAll("client", greeting, history.FIN)
		b.leave()
	})
}

// TestStagesEnd: an end that a stage makes comes behind exactly the bytes it let
// pass, goes to both peers, and nothing hangs.
func TestStagesEnd(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		for _, how := range []string{history.FIN, history.RST} {
			if how == history.RST && tr.unix { // a unix socket has none
				continue
			}
			b := newBed(t, tr, proxy.Config{Grammar: grammar})
			b.px.SetStages(plainStages{kind: how, dirs: [2]bool{c2s: true}})
			cl, sv := b.connect()
			data := auth + strings.Repeat(acquire, 20)
			_, _ = cl.Write([]byte(data))
			gets := strings.Replace(how, history.RST, tr.rst(), 1)
			sv.wantAll("server", data[:100], gets)
			cl.wantAll("client", "", gets)
			if how == history.FIN { // both have ended; what they send still is read
				_, _ = cl.Write([]byte(acquire))
				cl.closeWrite()
				sv.closeWrite()
			}
			wantFaultEnds(t, b.leave(), how)
		}
	})
}

// wantFaultEnds wants one end to each peer from a fault, and no other but FINs seen.
func wantFaultEnds(t *testing.T, ev []history.Event, how string) {
	t.Helper()
	sides := map[history.Side]int{}
	for _, e := range ofKind(ev, history.EndSent) {
		if e.Cause == history.CauseFault && e.How == how {
			sides[e.Side]++
		}
	}
	if sides[history.ClientSide] != 1 || sides[history.ServerSide] != 1 {
		t.Errorf("ends sent: %+v", ofKind(ev, history.EndSent))
	}
}

// TestStagesHold: what stages hold for ever does not hold up the teardown, nor a
// session whose peers have both been reset; taking the stages away lets it pass.
func TestStagesHold(t *testing.T) {
	big := string(stream(10 * pipeRoom))
	for _, c := range []string{"teardown", "resets", "taken away"} {
		onEach(t, func(t *testing.T, tr transport) {
			b := newBed(t, tr, proxy.Config{})
			b.px.SetStages(plainStages{kind: "hold"})
			cl, sv := b.connect()
			sends := make(chan struct{})
			go func() {
				defer close(sends)
				_, _ = cl.Write([]byte(big))
				_ = cl.Conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
			sv.send(greeting)
			b.waitFor(1, "receipt", func(e history.Event) bool { return e.Kind == history.Received && e.Dir == c2s })
			b.waitFor(1, "receipt", func(e history.Event) bool { return e.Kind == history.Received && e.Dir == s2c })
			switch c {
			case "taken away":
				b.px.SetStages(plainStages{})
				sv.wait(len(big))
				cl.wait(len(greeting))
				cl.wantGot("client", greeting, "")
				sv.closeWrite()
				sv.wantAll("server", big, history.FIN)
				cl.wantAll("client", greeting, history.FIN)
			case "resets":
				cl.reset()
				sv.reset()
			}
			b.leave()
			<-sends
		})
	}
}

// TestStagesAndCuts: a frame's fault acts before the stages: exactly its k bytes come
// out, then the end.
func TestStagesAndCuts(t *testing.T) {
	for id, how := range map[string]string{"truncate-fin": history.FIN, "truncate-rst": history.RST} {
		for _, kind := range []string{"pass", "slow"} {
			for _, k := range []int{0, 1, 10, len(acquire)} {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
					b.px.SetStages(plainStages{kind: kind})
					must(t, b.px.Arm(onAcquire(t, id, k, map[string]string{"key": "*"})))
					cl, sv := b.connect()
					sv.send(greeting)
					cl.wait(len(greeting))
					cl.send(auth + release + acquire + release)
					sv.wantAll(fmt.Sprintf("server, %s@%d, %s", id, k, kind), auth+release+acquire[:k], how)
					cl.wantAll("client", greeting, how)
					time.Sleep(time.Second)
					if fired := ofKind(b.leave(), history.Fired); len(fired) != 1 || fired[0].Off != k {
						t.Errorf("fired %+v", fired)
					}
				})
			}
		}
	}
}

// TestStagesUnderLoad: stages that come, change and go on live sessions, also while
// the peers read slowly, lose no byte and move none.
func TestStagesUnderLoad(t *testing.T) {
	for name, tr := range map[string]transport{"memory": inMemory(1000), "tcp": tcp} {
		t.Run(name, func(t *testing.T) {
			ld, end := newLoad(t, tr)
			done := make(chan struct{})
			var wg sync.WaitGroup
			ld.churns.Add(1)
			wg.Go(func() {
				sets := []plainStages{
					{kind: "pass"},
					{},
					{kind: "hold"},
					{kind: "pass", dirs: [2]bool{s2c: true}},
					{kind: "slow"},
					{kind: "slow", dirs: [2]bool{c2s: true}},
					{kind: "hold", dirs: [2]bool{s2c: true}},
				}
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					ld.px.SetStages(sets[i%len(sets)])
					ld.changes.Add(1)
					runtime.Gosched()
				}
			})
			wg.Go(func() { ld.churn(done, "rule") })
			ld.run(6)
			close(done)
			wg.Wait()
			end()
		})
	}
}
