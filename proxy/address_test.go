package proxy_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

func TestParseAddress(t *testing.T) {
	long := "/" + strings.Repeat("x", proxy.MaxUnixPath-1)
	for in, want := range map[string]string{
		"127.0.0.1:4100":      "tcp 127.0.0.1:4100",
		"[::1]:0":             "tcp [::1]:0",
		"[fe80::1%eth0]:1":    "tcp [fe80::1%eth0]:1",
		":65535":              "tcp :65535",
		"lock-1.example:4100": "tcp lock-1.example:4100",
		"unix:/run/lock.sock": "unix /run/lock.sock",
		"unix:lock.sock":      "unix lock.sock",
		"unix:./@x":           "unix ./@x",
		"unix:" + long:        "unix " + long,
	} {
		network, address, err := proxy.ParseAddress(in)
		if got := network + " " + address; err != nil || got != want {
			t.Errorf("%q is %s, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"":                   "missing port in address; it is host:port or unix:/path",
		"localhost":          "missing port",
		"::1:4100":           "too many colons",
		"[::1]":              "missing port",
		"localhost:http":     `port "http" is not a number from 0 to 65535`,
		"localhost:":         `port ""`,
		"localhost:65536":    `port "65536"`,
		"localhost:-1":       `port "-1"`,
		"localhost:+1":       `port "+1"`,
		"localhost:01":       `port "01"`,
		"a b:1":              `"a b" is no host`,
		"http://localhost:1": "too many colons",
		"user@localhost:1":   "is no host",
		"/run/x:1":           "is no host",
		"unix:":              "no path",
		"unix:///run/x":      "unix:/path, not unix://",
		"unix:@x":            "that of a file",
		"unix:/a\x00b":       "that of a file",
		"unix:" + long + "x": "bytes, over ",
	} {
		network, address, err := proxy.ParseAddress(in)
		if err == nil || network+address != "" || !strings.HasPrefix(err.Error(), "address ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %s %s, %v; wanted %q", in, network, address, err, want)
		}
	}
}

// TestListenUnix: a socket that nobody serves is replaced, whatever else is there
// is not; the file goes with the listener.
func TestListenUnix(t *testing.T) {
	dir, err := os.MkdirTemp("", "tornwire")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := proxy.Listen("unix", path)
	must(t, err)
	l2, err := proxy.Listen("unix", path)
	if err == nil || !strings.Contains(err.Error(), "listen on unix:"+path+": somebody listens there") {
		t.Errorf("a living one: %v, %v", l2, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if its process had died
	must(t, l.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	l, err = proxy.Listen("unix", path)
	must(t, err)
	c, err := net.Dial("unix", path)
	must(t, err)
	must(t, c.Close())
	must(t, l.Close())
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	must(t, os.Symlink(path, path+"link"))
	must(t, os.Mkdir(path+"dir", 0o700))
	for _, p := range []string{path, path + "link", path + "dir"} {
		if _, err := proxy.Listen("unix", p); err == nil || !strings.Contains(err.Error(), "a file that is no socket") {
			t.Errorf("%s: %v", p, err)
		}
	}
	if data, err := os.ReadFile(path); string(data) != "precious" {
		t.Errorf("the file has %q, %v", data, err)
	}
	datagrams, err := net.ListenPacket("unixgram", path+"d")
	must(t, err)
	defer datagrams.Close()
	if _, err := proxy.Listen("unix", path+"d"); err == nil || !strings.Contains(err.Error(), "somebody may listen there") {
		t.Errorf("datagrams: %v", err)
	}
	if _, err := proxy.Listen("unix", filepath.Join(dir, "nowhere", "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestUnixReset: what the peers of unix sockets see of resets.
func TestUnixReset(t *testing.T) {
	t.Run("the server leaves something unread", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("only Linux tells")
		}
		up, err := overUnix(t).listen()
		must(t, err)
		cfg := decoded()
		cfg.Upstream = "unix:" + up.Addr().String()
		b := newBed(t, tcp, cfg)
		b.up = up
		cl := b.dial(b.addr)
		s, err := up.Accept()
		must(t, err)
		_, err = io.WriteString(s, greeting)
		must(t, err)
		cl.send(auth)
		b.waitKind(history.WriteAccepted)
		b.waitFor(2, "accepted write", func(e history.Event) bool { return e.Kind == history.WriteAccepted })
		must(t, s.Close())
		cl.wantAll("client", greeting, history.RST)
		wantEnds(t, b.stop(), "server rst seen", "client rst sent by forwarded")
		must(t, up.Close())
	})
	t.Run("the client is reset", func(t *testing.T) {
		b := newBed(t, overUnix(t), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
			ID: "cut", Fault: fault(t, "truncate-rst"), At: 3, Trigger: faults.Trigger{Dir: s2c, Op: "A"},
		})})
		cl, sv := b.connect()
		play(cl, sv, exchange[:2])
		sv.send(acquired)
		cl.wantAll("client", greeting+acquired[:3], history.FIN)
		if _, err := cl.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the client writes: %v", err)
		}
		b.stop()
	})
	t.Run("with something unread", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("only Linux tells")
		}
		rule := onOpen(t, "slow-accept", faults.Trigger{})
		rule.Args = faults.Args{"pause": time.Minute}
		b := newBed(t, overUnix(t), proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
		cl := b.dial(b.addr)
		cl.send(auth)
		b.waitKind(history.Fired)
		b.stop()
		cl.wantAll("client", "", history.RST)
	})
}

// TestUnixAcked: what a unix socket took is with the peer.
func TestUnixAcked(t *testing.T) {
	b := newBed(t, overUnix(t), decoded())
	cl := b.dial(b.addr)
	s, err := b.up.Accept() // reads nothing
	must(t, err)
	cl.send(auth)
	b.waitKind(history.WriteAccepted)
	b.acknowledged(len(auth))
	must(t, s.Close())
	b.stop()
}

// TestUpstreamMisspelt: an address that cannot be is a server that cannot be reached.
func TestUpstreamMisspelt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Upstream: "unix://x"})
		b.dial(b.addr).wantAll("client", "", history.RST)
		ev := b.stop()
		wantEnds(t, ev, "client rst sent by dial")
		if d := ofKind(ev, history.ServerDialed); !strings.Contains(d[0].Detail, "not unix://") {
			t.Errorf("dialled: %+v", d)
		}
	})
}
