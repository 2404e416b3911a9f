package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/internal/wrongclient"
)

// childWord makes the test binary an adapter: childWord HOW [ARG...].
const childWord = "broken-adapter"

// child is an adapter around a right client, with one way to misbehave. Most
// ways strike at calls for singleKey, which the sanity run does not ask for.
type child struct {
	how  string
	args []string
	out  *os.File
	part []byte // of the line being written
}

// command is the adapter as a child process.
func command(t *testing.T, how string, args ...string) Starter {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command(append([]string{self, childWord, how}, args...)...)
}

func childMain(how string, args []string) int {
	c := &child{how: how, args: args, out: os.Stdout}
	c.begin()
	defect := ""
	if how == "unsupported-ping" && len(args) > 0 {
		defect = args[0]
	}
	lib, err := wrongclient.Library(defect)
	if err != nil {
		panic(err)
	}
	requests, w := io.Pipe()
	go c.requests(w)
	if err := adapter.Serve(context.Background(), requests, c, restricted{lib, c.info}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if how == "stuck" {
		<-time.After(time.Hour)
	}
	return 0
}

// begin misbehaves before anything was read.
func (c *child) begin() {
	switch c.how {
	case "exit":
		for i := range 9 {
			fmt.Fprintln(os.Stderr, "word", i)
		}
		os.Exit(3)
	case "log-first":
		fmt.Fprintln(c.out, "starting up…")
	case "mute":
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "long-first":
		fmt.Fprintln(c.out, strings.Repeat("x", adapter.MaxLine))
	case "grandchild", "grandchild-exit", "stuck":
		c.grandchild()
	}
}

// grandchild starts a process that outlives its parent, has its stdout and
// stderr open, and tells through the pipe in args[0] that it lives.
func (c *child) grandchild() {
	pipe, err := os.OpenFile(c.args[0], os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("sh", "-c", "echo alive >&3; exec sleep 600")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{pipe}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

func (c *child) info(i *adapter.Info) {
	switch c.how {
	case "current-only":
		i.Dialects = []string{dialectCurrent}
	case "nameless":
		i.Client = ""
	case "wordy":
		i.Outcomes = []string{"acquired", "timeuot"}
	}
}

// requests passes the tool's lines on, without those that the adapter ignores.
func (c *child) requests(w *io.PipeWriter) {
	sc := bufio.NewScanner(os.Stdin)
	sc.Buffer(nil, adapter.MaxLine)
	for sc.Scan() {
		var r adapter.Request
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			panic(err)
		}
		if c.request(r) {
			continue
		}
		if _, err := w.Write(append(sc.Bytes(), '\n')); err != nil {
			break
		}
	}
	_ = w.CloseWithError(io.EOF)
}

// request tells whether a request is taken away from the adapter.
func (c *child) request(r adapter.Request) bool {
	victim := r.Type == adapter.TypeAcquire && r.Key == singleKey
	switch {
	case victim && (c.how == "exit-later" || c.how == "grandchild-exit"), victim && c.how == "exit-once" && c.first():
		fmt.Fprintln(os.Stderr, "the library has crashed")
		os.Exit(3)
	case c.how == "refuse" && r.Type == adapter.TypeInit:
		c.say(`{"type":"error","id":%d,"detail":"no library here"}`, r.ID)
		return true
	case c.how == "unsupported-"+r.Type:
		c.say(`{"type":"unsupported","id":%d,"detail":"there is no way"}`, r.ID)
		return true
	}
	return c.how == "never-"+r.Type || victim && c.how == "never-victim"
}

// first tells whether this is the first of several adapters to get here.
func (c *child) first() bool {
	f, err := os.OpenFile(c.args[0], os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return false
	}
	if err != nil {
		panic(err)
	}
	return f.Close() == nil
}

func (c *child) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

// Write gets the adapter's answers.
func (c *child) Write(p []byte) (int, error) {
	c.part = append(c.part, p...)
	for {
		line, rest, ok := bytes.Cut(c.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		var r adapter.Response
		if err := json.Unmarshal(line, &r); err != nil {
			panic(err)
		}
		if _, err := c.out.Write(append(c.answer(r, string(line)), '\n')); err != nil {
			return 0, err
		}
		c.part = append([]byte(nil), rest...)
	}
}

// answer is what is printed instead of a right line.
func (c *child) answer(r adapter.Response, line string) []byte {
	acquired := r.Type == adapter.TypeResult && r.Token == strconv.FormatUint(single.FirstToken, 10)
	switch {
	case !acquired:
		if c.how == "wrong-type" && r.Type == adapter.TypeOpenOK {
			line = strings.Replace(line, adapter.TypeOpenOK, adapter.TypeCloseOK, 1)
		}
	case c.how == "log-later":
		line = "DEBUG order-42 is mine\n" + line
	case c.how == "twice":
		line += "\n" + line
	case c.how == "unknown-id":
		line = fmt.Sprintf(`{"type":"pong","id":%d}`, uint64(1)<<40) + "\n" + line
	case c.how == "new-word":
		line = strings.Replace(line, `"acquired"`, `"granted"`, 1)
	case c.how == "no-token":
		line = fmt.Sprintf(`{"type":"result","id":%d,"outcome":"acquired"}`, *r.ID)
	case c.how == "hex-token":
		line = fmt.Sprintf(`{"type":"result","id":%d,"outcome":"acquired","token":"0x0A"}`, *r.ID)
	case c.how == "wide":
		n, err := strconv.Atoi(c.args[0])
		if err != nil {
			panic(err)
		}
		r.Raw = strings.Repeat("x", n)
		long, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		r.Raw = strings.Repeat("x", n-(len(long)+1-n)) // a line of n bytes
		if long, err = json.Marshal(r); err != nil {
			panic(err)
		}
		return long
	}
	return []byte(line)
}
