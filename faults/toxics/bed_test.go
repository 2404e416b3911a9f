package toxics

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tornwire/faults"
	"tornwire/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	c2s = frames.ClientToServer
	s2c = frames.ServerToClient
)

// toxic is a spec that always acts, with its attributes as name, value, name, …
func toxic(kind string, attributes ...any) Spec {
	s := Spec{Type: kind, Toxicity: 1, Attributes: Attributes{}}
	for i := 0; i < len(attributes); i += 2 {
		s.Attributes[attributes[i].(string)] = int64(attributes[i+1].(int))
	}
	return s
}

func named(name string, s Spec) Spec {
	s.Name = name
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// taker takes what comes out of a pipe, and writes down when.
type taker struct {
	mu    sync.Mutex
	began time.Time
	log   []string
	data  strings.Builder
	done  chan struct{}
}

func take(p faults.Pipe) *taker {
	tk := &taker{began: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(tk.done)
		for {
			b, ok := p.Next()
			if !ok {
				tk.note("end" + string(p.Outcome()))
				return
			}
			tk.data.Write(b)
			tk.note(string(b))
		}
	}()
	return tk
}

func (tk *taker) note(what string) {
	tk.mu.Lock()
	defer tk.mu.Unlock()
	if len(what) > 20 {
		what = fmt.Sprintf("%d bytes", len(what))
	}
	tk.log = append(tk.log, fmt.Sprintf("%v:%s", time.Since(tk.began), what))
}

func (tk *taker) text() string {
	tk.mu.Lock()
	defer tk.mu.Unlock()
	return strings.Join(tk.log, " ")
}

// step is something that is done to a pipe at a time.
type step struct {
	at     time.Duration
	send   string
	end    bool
	change *List
}

// play does steps, in order, and returns what came out when.
func play(p faults.Pipe, steps ...step) string {
	tk := take(p)
	for _, s := range steps {
		time.Sleep(s.at - time.Since(tk.began))
		synctest.Wait()
		switch {
		case s.end:
			p.End()
		case s.change != nil:
			p.Change(s.change)
		default:
			p.Send([]byte(s.send), nil)
		}
	}
	time.Sleep(time.Hour)
	defer p.Abandon()
	return tk.text()
}

// inBubble runs each test in a bubble of its own.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
