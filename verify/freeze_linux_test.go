package verify

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tornwire/checker"
)

// asleep starts a shell with a child of its own, in one process group.
func asleep(t *testing.T) *process {
	t.Helper()
	p, err := startProcess([]string{"sh", "-c", "sleep 600 & echo up; wait"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		KillGroup(p.cmd)
		<-p.exited
		_ = p.Stop()
	})
	if _, err := p.out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestFreeze: what a process has started stops with it, and is seen when it goes on.
func TestFreeze(t *testing.T) {
	p := asleep(t)
	if p.frozen() == nil {
		t.Error("it is frozen from the beginning")
	}
	if err := p.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	members, err := groupMembers(p.cmd.Process.Pid)
	if err != nil || len(members) != 2 || p.frozen() != nil {
		t.Errorf("members %v, %v, %v", members, err, p.frozen())
	}
	for _, pid := range members { // one that goes on is enough
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for p.frozen() == nil && t.Context().Err() == nil {
			continue
		}
		if err := p.freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.thaw()
	for p.frozen() == nil && t.Context().Err() == nil {
		continue
	}
	KillGroup(p.cmd)
	<-p.exited
	if err := p.freeze(t.Context()); err == nil {
		t.Error("an adapter that has exited is frozen")
	}
	p.thaw()
}

// TestHolds: a socket is found with the process that has it.
func TestHolds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, network := range []string{"tcp4", "tcp"} {
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		local, remote := c.LocalAddr().String(), c.RemoteAddr().String()
		if err := asleep(t).holds(local, remote); err == nil || !strings.Contains(err.Error(), "no process of the adapter's group") {
			t.Errorf("another process has our socket: %v", err)
		}
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "600")
		cmd.ExtraFiles = []*os.File{f}
		OwnGroup(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := (&process{cmd: cmd}).holds(local, remote); err != nil {
			t.Error(err)
		}
		if err := (&process{cmd: cmd}).holds(local, "127.0.0.1:1"); err == nil {
			t.Error("a connection to elsewhere from the same port is taken for ours")
		}
		KillGroup(cmd)
		_ = cmd.Wait()
	}
	if err := (&process{}).holds("127.0.0.1:1", l.Addr().String()); err == nil {
		t.Error("a connection that is not there is found")
	}
}

func TestKernelAddr(t *testing.T) {
	for s, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"0000000000000000FFFF00000100007F:1F90": "127.0.0.1:8080",
		"00000000000000000000000001000000:0016": "[::1]:22",
	} {
		if got, ok := kernelAddr(s); !ok || got != netip.MustParseAddrPort(want) {
			t.Errorf("%s: %v, want %s", s, got, want)
		}
	}
	for _, s := range []string{"", "0100007F", "0100007F:", "01007F:1F90", "0100007G:1F90", "0100007F:11F90"} {
		if got, ok := kernelAddr(s); ok {
			t.Errorf("%q is %v", s, got)
		}
	}
}

// TestFrozenElsewhere: a client that does not stop with its adapter is not judged.
func TestFrozenElsewhere(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := runPlan(t, Options{
		Cases: []string{"ticketing/frozen/none"}, Start: Library(referenceLibrary()),
		Alone: Command("setsid", "-w", self, aloneWord, referenceName),
	})
	reasons := []string{"not certain that what was stopped is the client", "the client runs elsewhere"} // whichever is seen first
	if len(r.Results) != 1 || r.Results[0].Verdict != checker.Skipped ||
		!slices.ContainsFunc(reasons, func(why string) bool { return strings.Contains(r.Results[0].Reason, why) }) {
		t.Errorf("%+v", r.Results)
	}
}

// TestFrozenLeavesNothing: a run that is cancelled while its client is stopped leaves
// no process behind.
func TestFrozenLeavesNothing(t *testing.T) {
	t.Parallel()
	for range busyTries {
		if leavesNothing(t) {
			return
		}
	}
	t.Fatal("the machine is too busy")
}

// leavesNothing is false if the run was over before its client had stopped, because the
// machine was too busy.
func leavesNothing(t *testing.T) bool {
	t.Helper()
	made := make(chan *process, 2*(lateTries+adapterTries+1)) // over what one run starts
	alone := func() (transport, error) {
		tr, err := asProcess(referenceName)()
		if err == nil {
			made <- tr.(*process)
		}
		return tr, err
	}
	p := plan(t, Options{Cases: []string{"ticketing/frozen/none"}, Start: Library(referenceLibrary()), Alone: alone})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan *Report, 1)
	go func() { over <- Run(ctx, p, nil) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var client *process
	for client == nil || client.frozen() != nil {
		select {
		case client = <-made:
		case <-tick.C:
		case r := <-over:
			if !wasBusy(r) {
				t.Fatalf("the client never stopped: %+v", r.Results)
			}
			return false
		}
	}
	cancel()
	<-over
	select {
	case <-client.exited:
	default:
		t.Error("its process is still there")
	}
	return true
}
