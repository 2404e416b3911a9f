package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"tornwire/verify"
)

// progress shows how far a run has come: one line that is rewritten on a
// terminal, a line every ten seconds elsewhere.
type progress struct {
	w     io.Writer
	tty   bool
	begin time.Time

	mu    sync.Mutex
	last  time.Time
	shown bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, begin: time.Now(), last: time.Now()}
	if f, ok := w.(*os.File); ok {
		p.tty = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// step is told of every finished case.
func (p *progress) step(s verify.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	every := quietEvery
	if p.tty {
		every = 100 * time.Millisecond
	}
	if time.Since(p.last) < every && (s.Done < s.Total || !p.tty) {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf("%d of %d cases, %d failed, %.0f s", s.Done, s.Total, s.Failed, time.Since(p.begin).Seconds())
	if p.tty {
		p.shown = true
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.w, line)
}

// done clears the line on a terminal.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
