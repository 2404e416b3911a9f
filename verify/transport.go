package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"tornwire/adapter"
)

// stderrKept is how much of an adapter's stderr is kept, from its end.
const stderrKept = 16 << 10

// crash is how runtimes begin to tell of their own end.
var crash = regexp.MustCompile(`^(panic: |fatal error: |Traceback |(\w+\.)*\w*(Error|Exception)\b)`)

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - stderrKept; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// last returns the last lines, joined by " | "; where a crash was told, the lines
// from there on.
func (t *tail) last(lines int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := strings.Split(strings.TrimSpace(string(t.buf)), "\n")
	for i := len(all) - 1; i >= 0; i-- {
		if crash.MatchString(all[i]) {
			all = all[i:min(i+lines, len(all))]
			break
		}
	}
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, " | ")
}

// process is an adapter that runs as a child, in a process group of its own.
type process struct {
	io.WriteCloser
	cmd    *exec.Cmd
	out    *os.File
	stderr tail
	exited chan struct{}
}

// startProcess runs a command as an adapter.
func startProcess(argv []string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), exited: make(chan struct{})}
	OwnGroup(p.cmd)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = time.Second // a grandchild may keep stderr open
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.out = w, r
	if p.WriteCloser, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is of no interest: it should not have
		KillGroup(p.cmd) // what it started must not outlive it, nor keep stdout open
	}()
	return p, nil
}

func (p *process) Lines() io.Reader { return p.out }

// LastWords waits a moment for a process that is ending, so that its stderr is
// complete.
func (p *process) LastWords() string {
	select {
	case <-p.exited:
	case <-time.After(500 * time.Millisecond):
	}
	return p.stderr.last(5)
}

// ending adds how the process ended to a text, if it has.
func (p *process) ending(text string) string {
	select {
	case <-p.exited:
		return fmt.Sprintf("%s (%s)", text, p.cmd.ProcessState)
	default:
		return text
	}
}

// Stop closes stdin, gives the adapter its time to exit, then kills the group.
func (p *process) Stop() error {
	p.WriteCloser.Close()
	t := time.NewTimer(exitLimit)
	defer t.Stop()
	select {
	case <-p.exited:
	case <-t.C:
		KillGroup(p.cmd)
		<-p.exited
	}
	return p.out.Close()
}

// inProcess is a Go library in this process, spoken to by the same protocol.
type inProcess struct {
	*io.PipeWriter
	out    *io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

// startLibrary serves a library in this process.
func startLibrary(lib adapter.Library) *inProcess {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	p := &inProcess{PipeWriter: inW, out: outR, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = adapter.Serve(ctx, inR, outW, lib)
		inR.Close()
		outW.Close()
	}()
	return p
}

func (p *inProcess) Lines() io.Reader { return p.out }

func (p *inProcess) LastWords() string {
	select {
	case <-p.ended:
		if p.err != nil {
			return p.err.Error()
		}
	default:
	}
	return ""
}

// Stop ends the library's clients.
func (p *inProcess) Stop() error {
	p.PipeWriter.Close()
	t := time.NewTimer(exitLimit)
	defer t.Stop()
	select {
	case <-p.ended:
	case <-t.C:
		p.cancel()
		p.out.Close()
		<-p.ended
	}
	p.cancel()
	return nil
}

// attached is a Go library in this process that is asked by calls: in a bubble, where lines
// and those who read them are a good part of what a case costs.
type attached struct {
	*adapter.Attached // once it is in use
	lib               adapter.Library
}

func (*attached) Write([]byte) (int, error) {
	return 0, errors.New("a library that is asked by calls reads no lines")
}
func (*attached) Lines() io.Reader  { return strings.NewReader("") }
func (*attached) LastWords() string { return "" }
func (a *attached) Stop() error     { return a.Close() }

// Starter makes a new adapter each time it is called.
type Starter func() (transport, error)

// Command starts a child process as the adapter.
func Command(argv ...string) Starter {
	return func() (transport, error) {
		if len(argv) == 0 || argv[0] == "" {
			return nil, errors.New("the adapter's command is empty")
		}
		p, err := startProcess(argv)
		if err != nil {
			return nil, fmt.Errorf("cannot start the adapter: %w", err)
		}
		return p, nil
	}
}

// Library serves a Go library in this process.
func Library(lib adapter.Library) Starter {
	return func() (transport, error) { return startLibrary(lib), nil }
}
