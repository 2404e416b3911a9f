package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/history"
	"tornwire/proxy"
)

var errBroken = errors.New("broken")

// failingListener accepts once for every nil that it is given, and fails with every
// error.
type failingListener struct {
	net.Listener
	next chan error
	shut sync.Once
}

func (l *failingListener) Accept() (net.Conn, error) {
	if err := <-l.next; err != nil {
		return nil, err
	}
	return l.Listener.Accept()
}

func (l *failingListener) Close() error {
	l.shut.Do(func() { close(l.next) })
	return l.Listener.Close()
}

// TestAcceptFails: accepts that fail are tried again after growing pauses and told
// once; sessions live on.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), decoded())
		l := &failingListener{Listener: b.listen(), next: make(chan error, 100)}
		fail := func(n int) {
			for range n {
				l.next <- errBroken
			}
			l.next <- nil
		}
		end := b.serve(l, "c2")
		l.next <- nil
		cl, sv := b.connectTo(l.Addr().String())
		wantAfter := func(what string, pause time.Duration) {
			t.Helper()
			began := time.Now()
			b.wantTalk(l.Addr().String())
			if took := time.Since(began); took != pause {
				t.Errorf("%s: accepted after %v, wanted %v", what, took, pause)
			}
		}
		all := time.Duration(0)
		for pause, i := proxy.AcceptFirst, 0; i < 11; i++ {
			all += pause
			pause = min(2*pause, proxy.AcceptMost)
		}
		fail(11)
		wantAfter("11 failures", all)
		fail(1)
		wantAfter("one more", proxy.AcceptFirst)
		if told := b.events(history.AcceptFailed); len(told) != 1 || told[0].Client != "c2" || told[0].Detail != errBroken.Error() {
			t.Errorf("told: %+v", told)
		}
		time.Sleep(proxy.AcceptTold + 1)
		fail(1)
		wantAfter("later", proxy.AcceptFirst)
		if told := b.events(history.AcceptFailed); len(told) != 2 {
			t.Errorf("told %d times", len(told))
		}
		play(cl, sv, exchange)
		cl.wantGot("client", greeting+acquired+released, "")

		fail(1) // the end does not wait for the pause
		synctest.Wait()
		began := time.Now()
		end()
		must(t, <-b.served)
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		b.stop()
	})
}

// TestListenerClosed: Serve ends without an error when its listener is closed.
func TestListenerClosed(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		l := b.listen()
		b.serve(l, "c2")
		cl, sv := b.connectTo(l.Addr().String())
		must(t, l.Close())
		must(t, <-b.served)
		cl.wantAll("client", "", tr.rst())
		sv.wantAll("server", "", tr.rst())
		b.stop()
	})
}

// childUpstream names the server to a process that TestDescriptorsOut starts.
const childUpstream = "TORNWIRE_TEST_UPSTREAM"

// TestDescriptorsOut: a proxy that has no descriptors left goes on when it has some
// again.
func TestDescriptorsOut(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems count descriptors in other ways")
	}
	if up := os.Getenv(childUpstream); up != "" {
		fewDescriptors(t, up)
		return
	}
	up, err := tcp.listen()
	must(t, err)
	defer up.Close()
	go func() { // sends back what it gets
		for {
			c, err := up.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	child := exec.Command(os.Args[0], "-test.run=^TestDescriptorsOut$")
	child.Env = append(os.Environ(), childUpstream+"="+up.Addr().String())
	stdin, err := child.StdinPipe()
	must(t, err)
	stdout, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	defer child.Wait()
	defer stdin.Close()
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	addr := lines.Text()

	var conns []net.Conn
	for range 60 {
		c, err := net.Dial("tcp", addr)
		must(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	if lines.Scan(); !strings.Contains(lines.Text(), "too many open files") {
		t.Fatalf("the child says %q", lines.Text())
	}
	for _, c := range conns {
		_ = c.Close()
	}
	for began := time.Now(); ; {
		err := echoed(addr)
		if err == nil {
			break
		}
		if time.Since(began) > patience {
			t.Fatal(err)
		}
	}
	must(t, stdin.Close())
	if lines.Scan(); lines.Text() != "told 1 times: <nil>" {
		t.Errorf("the child says %q", lines.Text())
	}
}

// echoed has a byte go there and back.
func echoed(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "x"); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// fewDescriptors serves with 40 descriptors until its input ends.
func fewDescriptors(t *testing.T, upstream string) {
	l, err := tcp.listen()
	must(t, err)
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}))
	fmt.Println(l.Addr())
	told := 0
	p := proxy.New(proxy.Config{Upstream: upstream, Observe: func(e history.Event) {
		if e.Kind == history.AcceptFailed {
			if told++; told == 1 {
				fmt.Println(e.Detail)
			}
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err = p.Serve(ctx, l, "")
	fmt.Printf("told %d times: %v\n", told, err)
}
