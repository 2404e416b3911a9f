//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// stuck is a reader of the log that reads nothing until it is let go.
type stuck struct {
	bytes.Buffer
	wait chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.wait
	return s.Buffer.Write(b)
}

// TestLogNeverBlocks: who logs does not wait for who reads, up to both limits; what
// is over them is counted, and the end waits no longer than is said.
func TestLogNeverBlocks(t *testing.T) {
	for _, test := range []struct {
		name string
		pad  int
		kept int // with the one that is being written
	}{
		{"lines", 0, logLineLimit + 1},
		{"bytes", logByteLimit/8 - len(`{"level":"info","time":"2000-01-01T00:00:00Z","message":""}`) - 1, 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &stuck{wait: make(chan struct{})}
			log, flush := newLogger(w, zerolog.InfoLevel)
			log.Info().Msg(strings.Repeat("x", test.pad))
			synctest.Wait() // it is being written
			for range test.kept + 6 {
				log.Info().Msg(strings.Repeat("x", test.pad))
			}
			begun := time.Now()
			flush()
			if took := time.Since(begun); took != logFlushLimit {
				t.Errorf("%s: the end took %s, not %s", test.name, took, logFlushLimit)
			}
			close(w.wait)
			synctest.Wait()
			lines := strings.Split(strings.TrimSpace(w.String()), "\n")
			if len(lines) != test.kept+1 || !strings.Contains(w.String(), `"lines":7,`) || strings.Count(w.String(), "lines are missing") != 1 {
				t.Errorf("%s: %d lines; the second is %.200s, the last %.200s", test.name, len(lines), lines[1], lines[len(lines)-1])
			}
		})
	}
}

// broken is where nothing can be written for a while.
type broken struct {
	bytes.Buffer
	left int
}

func (b *broken) Write(p []byte) (int, error) {
	if b.left--; b.left >= 0 {
		return 0, syscall.EPIPE
	}
	return b.Buffer.Write(p)
}

// TestLogThatFails: what could not be written is counted.
func TestLogThatFails(t *testing.T) {
	w := &broken{left: 3} // the first line, the word of it, the second
	log, flush := newLogger(w, zerolog.InfoLevel)
	for range 3 {
		log.Info().Msg("x")
	}
	flush()
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"lines":2,"time":`) || !strings.Contains(lines[1], `"message":"x"`) {
		t.Errorf("it wrote %q", lines)
	}
}

// TestServeWithoutReaders: a daemon whose log nobody reads, or whose output has no
// reader any longer, answers, and ends when it is told to.
func TestServeWithoutReaders(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, leave := range map[string]bool{"nobody reads": false, "the readers leave": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, stderr, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			cmd := exec.Command(self, programWord, "serve", "--api", "127.0.0.1:0", "--log-level", "debug")
			cmd.Stderr = stderr
			stdout, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			_ = stderr.Close()
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			if leave {
				_ = log.Close()
				_ = stdout.Close()
			}
			addr := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
			for i := range 50 { // 400 KiB of log, over what any pipe takes
				r, err := client.Get("http://" + addr + "/proxies/" + strings.Repeat("x", 8<<10))
				if err != nil {
					t.Errorf("request %d: %v", i+1, err)
					break
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}
			begun := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) {
				t.Errorf("it ended with %v", err)
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("it took %s to end", took)
			}
		})
	}
}
