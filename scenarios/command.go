package scenarios

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"tornwire/verify"
)

// Variables of a command's environment.
const (
	EnvAddr  = "TORNWIRE_ADDR"  // the first address of its client
	EnvAddrs = "TORNWIRE_ADDRS" // all of them, with commas
)

// start starts the programs of command clients. The function returned waits for their ends;
// when the case is over before, it ends them.
func (t *teller) start() (wait func(), ok bool) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ends []func()
	for _, c := range t.s.Clients {
		if c.Kind != Command {
			continue
		}
		argv := c.Command
		if len(argv) == 0 {
			argv = t.o.Command
		}
		cmd, err := t.command(argv, t.list(c))
		if err != nil {
			t.st.Fail(fmt.Errorf("%s: client %s: %w", t.s.place(c.Line), c.Name, err))
			break
		}
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			// What we have ended ourselves has not failed: the run proves nothing then.
			if err := cmd.Wait(); err != nil && !t.over() {
				mu.Lock()
				defer mu.Unlock()
				t.failed = fmt.Sprintf("%s: %v", argv[0], err)
			}
		})
		ends = append(ends, func() {
			t.st.Wait(done)
			end(cmd, done)
		})
	}
	return func() {
		for _, end := range ends {
			end()
		}
		wg.Wait()
	}, !t.over()
}

// command starts a program in a process group of its own.
func (t *teller) command(argv, addrs []string) (*exec.Cmd, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	verify.OwnGroup(cmd)
	out := t.o.Output
	if out == nil {
		out = io.Discard
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second // a grandchild may keep them open
	cmd.Env = append(append(os.Environ(), t.o.Env...), EnvAddr+"="+addrs[0], EnvAddrs+"="+strings.Join(addrs, ","))
	return cmd, cmd.Start()
}

// end ends a program that has not ended: politely, and after patience with all that it
// started.
func end(cmd *exec.Cmd, done <-chan struct{}) {
	select {
	case <-done:
		verify.KillGroup(cmd)
		return
	default:
	}
	_ = cmd.Process.Signal(os.Interrupt) // it may be gone
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
	verify.KillGroup(cmd)
	<-done
}
