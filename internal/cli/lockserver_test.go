package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// lockserver runs the command and returns the address that it printed, and what
// ends it and returns its error and log.
func lockserver(t *testing.T, args ...string) (addr string, stop func() (string, error)) {
	t.Helper()
	return running(t, lockserverCommand(), append([]string{"--listen", "127.0.0.1:0"}, args...))
}

// running runs a command that serves.
func running(t *testing.T, cmd *cobra.Command, args []string) (addr string, stop func() (string, error)) {
	t.Helper()
	addrs, stop := runningOn(t, cmd, args, 1)
	return addrs[0], stop
}

// runningOn runs a command that serves on n addresses.
func runningOn(t *testing.T, cmd *cobra.Command, args []string, n int) (addrs []string, stop func() (string, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	stdout, w := io.Pipe()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(w)
	cmd.SetErr(&log)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = w.CloseWithError(err)
		ended <- err
	}()
	r := bufio.NewReader(stdout)
	for range n {
		line, err := r.ReadString('\n')
		if err != nil {
			cancel()
			t.Fatalf("no address: %v", err)
		}
		addr, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "listening on ")
		if !ok {
			t.Errorf("line %q", line)
		}
		addrs = append(addrs, addr)
	}
	return addrs, func() (string, error) {
		cancel()
		err := <-ended
		return log.String(), err
	}
}

// talk goes through the preface, sends a request and returns the first bytes of
// the reply.
func talk(t *testing.T, addr, secret, request string, n int) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	r := bufio.NewReader(nc)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, nonce, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	sum := sha256.Sum256([]byte(secret + nonce))
	if _, err := io.WriteString(nc, base64.RawURLEncoding.EncodeToString(sum[:])+"\n"+request); err != nil {
		t.Fatal(err)
	}
	if n < 0 { // to the end
		reply, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(reply)
	}
	reply := make([]byte, n)
	if _, err := io.ReadFull(r, reply); err != nil {
		t.Fatal(err)
	}
	return string(reply)
}

func TestLockserverServes(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr, stop := lockserver(t, "--dialect", "ticketing-v0", "--secret-file", secret, "--first-token", "258", "--verbose")
	want := "A\x00\x00\x00\x00\x00\x00\x01\x02k\n"
	if got := talk(t, addr, "s3", "A\x00\x00\x00\x09k\n", len(want)); got != want {
		t.Errorf("reply %q, want %q", got, want)
	}
	if got := talk(t, addr, "wrong", "", 5); got != "Eauth" {
		t.Errorf("reply %q to a wrong secret", got)
	}
	log, err := stop()
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
	var granted bool
	for _, line := range strings.Split(strings.TrimSpace(log), "\n") {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("log line %q: %v", line, err)
		}
		granted = granted || e["message"] == "granted" && e["key"] == "k" && e["token"] == 258.0 && e["lease"] == "9s" && e["level"] == "debug"
	}
	if !granted {
		t.Errorf("the grant is not in the log:\n%s", log)
	}
	if strings.Contains(log, "s3") {
		t.Errorf("the secret is in the log:\n%s", log)
	}
}

func TestLockserverIsQuietUnlessAsked(t *testing.T) {
	addr, stop := lockserver(t)
	want := "A\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01k\n"
	if got := talk(t, addr, "", "A\x00\x09\x00\x00\x00\x00\x00\x00\x00\x07k\n", len(want)); got != want {
		t.Errorf("reply %q, want %q", got, want)
	}
	if log, err := stop(); err != nil || strings.Contains(log, "granted") || strings.Count(log, "\n") != 2 {
		t.Errorf("error %v, log:\n%s", err, log)
	}
}

func TestLockserverRefusesBadFlags(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, secretFileLimit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string]string{
		`"tiketing"`:               "--dialect tiketing",
		"--dialect is empty":       "--dialect=",
		"--queue is empty or 0":    "--queue 0",
		"capacity is -1":           "--capacity -1",
		"--first-token is":         "--first-token 0",
		"preface timeout is -1s":   "--preface-timeout -1s",
		"not HOST:PORT":            "--listen nowhere",
		"no such file":             "--secret-file does-not-exist",
		"over 4096 bytes":          "--secret-file " + big,
		"lockserver takes no argu": "extra",
		"capacity is -2":           "--queue -1 --capacity -2",
		"--nodes is empty or 0":    "--nodes 0",
		"-1 nodes, not 1 to 64":    "--nodes -1",
		"65 nodes, not 1 to 64":    "--nodes 65",
		"would be 65536, over":     "--nodes 3 --listen 127.0.0.1:65534",
		"no address to name":       "--nodes 2 --listen :0",
	} {
		cmd := lockserverCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(context.Background())
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want a usage error with %q", args, err, want)
		}
	}
}

// The nodes of a cluster have one table; those that do not lead name the first.
func TestLockserverNodes(t *testing.T) {
	addrs, stop := runningOn(t, lockserverCommand(), []string{"--listen", "127.0.0.1:0", "--nodes", "3"}, 3)
	moved := "M" + addrs[0] + "\n"
	request := "A\x00\x09\x00\x00\x00\x00\x00\x00\x00\x07k\n"
	for _, other := range addrs[1:] {
		if got := talk(t, other, "", request, len(moved)); got != moved {
			t.Errorf("%s answers %q, want %q", other, got, moved)
		}
	}
	if got := talk(t, addrs[0], "", request, 1); got != "A" {
		t.Errorf("the first node answers %q", got)
	}
	if log, err := stop(); err != nil || !strings.Contains(log, `"nodes":3`) {
		t.Errorf("error %v, log:\n%s", err, log)
	}
}

func TestLockserverNodesTakeThePortsBehind(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr)
	cmd := lockserverCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--nodes", "2", "--listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(taken.Port-1))})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	// The port before may be taken as well; either way it ends with an error.
	if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("error %v", err)
	}
}

func TestLockserverTellsWhoHasTheAddress(t *testing.T) {
	addr, stop := lockserver(t)
	cmd := lockserverCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--listen", addr})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("error %v", err)
	}
	if _, err := stop(); err != nil {
		t.Error(err)
	}
}
