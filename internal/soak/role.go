//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// roleVariable makes this program one of the roles instead of the driver.
const roleVariable = "TORNWIRE_SOAK_ROLE"

// order is one line from the driver to a role.
type order struct {
	Do      string        `json:"do"`
	Count   int           `json:"count,omitempty"`
	Rate    int           `json:"rate,omitempty"` // a second
	For     time.Duration `json:"for,omitempty"`
	Seed    uint64        `json:"seed,omitempty"`
	Targets []string      `json:"targets,omitempty"`
	Sources int           `json:"sources,omitempty"`
}

// report is the line that answers it.
type report struct {
	Addrs    []string        `json:"addrs,omitempty"`
	Done     int             `json:"done,omitempty"`
	Live     int             `json:"live,omitempty"`
	Rate     float64         `json:"rate,omitempty"`   // reached
	Bytes    int             `json:"bytes,omitempty"`  // that were checked
	Spread   []time.Duration `json:"spread,omitempty"` // at the quantiles
	Ledger   []entry         `json:"ledger,omitempty"`
	Problems problemCount    `json:"problems"`
}

// problemCount is how much went wrong, with the first few in words.
type problemCount struct {
	Errors int      `json:"errors"`
	Wrong  int      `json:"wrong"` // bytes that nobody sent like that
	First  []string `json:"first,omitempty"`
}

// firstProblems is how many are told in words.
const firstProblems = 8

func (p *problemCount) add(err error) {
	var wrong wrongError
	if errors.As(err, &wrong) {
		p.Wrong++
	} else {
		p.Errors++
	}
	if len(p.First) < firstProblems {
		p.First = append(p.First, err.Error())
	}
}

func (p *problemCount) join(q problemCount) {
	p.Errors, p.Wrong = p.Errors+q.Errors, p.Wrong+q.Wrong
	p.First = append(p.First, q.First[:min(len(q.First), firstProblems-min(len(p.First), firstProblems))]...)
}

// problems is a problemCount that many may add to.
type problems struct {
	mu    sync.Mutex
	count problemCount
}

func (p *problems) add(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.add(err)
}

// take returns what there was and starts anew.
func (p *problems) take() problemCount {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.count
	p.count = problemCount{}
	return was
}

// playRole obeys orders until the driver ends.
func playRole(role string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var do func(order) (report, error)
	switch role {
	case "server":
		s := &responder{}
		wait := func() {}
		defer func() { cancel(); wait() }()
		do = func(o order) (report, error) {
			switch o.Do {
			case "listen":
				addrs, w, err := s.listen(ctx, o.Count)
				if err == nil {
					wait = w
				}
				return report{Addrs: addrs}, err
			case "live":
				return s.liveNow(), nil
			case "state":
				return s.state(), nil
			}
			return report{}, fmt.Errorf("the server cannot %q", o.Do)
		}
	case "client":
		do = (&caller{}).do
	default:
		return fmt.Errorf("there is no role %q", role)
	}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := in.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		r, err := do(o)
		if err != nil {
			return err
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// child is a role in a process of its own.
type child struct {
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
}

func startRole(ctx context.Context, role string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{role: role, cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role)
	c.cmd.Stderr = os.Stderr
	c.cmd.WaitDelay = stopLimit
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	return c, c.cmd.Start()
}

// ask sends an order and waits for its report.
func (c *child) ask(o order) (report, error) {
	var r report
	err := json.NewEncoder(c.in).Encode(o)
	if err == nil {
		err = c.out.Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("the %s, asked to %s: %w", c.role, o.Do, err)
	}
	return r, nil
}

func (c *child) stop() error {
	_ = c.in.Close() // it ends with its input
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the %s: %w", c.role, err)
	}
	return nil
}
