//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// rule is the body of POST /proxies/{name}/rules.
type rule struct {
	ID    string            `json:"id"`
	Dir   string            `json:"dir"`
	Op    string            `json:"op"`
	Where map[string]string `json:"where,omitempty"`
	Fault ruleFault         `json:"fault"`
}

type ruleFault struct {
	Type string            `json:"type"`
	Args map[string]string `json:"args"`
}

// delayRule delays the acquires of a direction, or those of a key that no client
// has.
func delayRule(id, dir, by string, never bool) rule {
	r := rule{ID: id, Dir: dir, Op: "A", Fault: ruleFault{Type: "delay", Args: map[string]string{"by": by}}}
	if never {
		r.Where = map[string]string{"key": "never"}
	}
	return r
}

func rulesPath(proxy int) string { return "/proxies/" + proxyName(proxy) + "/rules" }

// swapping changes rules while busy sessions are compared byte by byte.
func (r *run) swapping() error {
	if r.swap <= 0 || r.d == nil {
		return nil
	}
	path := rulesPath(0)
	status, answer, err := r.d.call(http.MethodPost, path, delayRule("probe", "c2s", "1ms", true))
	if err != nil {
		return err
	}
	if !fine(status) {
		r.hold("a rule is armed", fmt.Errorf("status %d: %s", status, answer))
		return nil
	}
	if err := r.warm(); err != nil {
		return err
	}
	s := &swapper{run: r, armed: map[string]bool{path + "/probe": false}}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		s.disarm(path + "/probe")
		s.until(stop)
	}()
	rep, _, err := r.ask(order{Do: "traffic", For: r.swap})
	close(stop)
	<-stopped
	if err != nil {
		return err
	}
	s.judgeSwaps()
	return r.finished("rules under load", rep, trafficSessions)
}

func (s *swapper) judgeSwaps() {
	s.judge("changes of rules", s.problems, s.done, s.done)
	var pace, acted error
	if least := int(s.pace * s.took.Seconds() * float64(s.swaps)); s.done < least {
		pace = fmt.Errorf("%d changes in %s, under %d", s.done, s.took.Round(time.Millisecond), least)
	}
	if s.fired == 0 {
		acted = errors.New("not once")
	}
	s.hold("pace of the changes", pace)
	s.hold("rules that delay have acted", acted)
	s.say("rules: %d changes, rules that delay acted %d times; a call took %s", s.done, s.fired, spreadText(spreadOf(s.spread)))
}

func fine(status int) bool { return status >= 200 && status < 300 }

// swapper changes the rules of a run's proxies.
type swapper struct {
	*run
	armed    map[string]bool // by path; true for those that delay
	done     int
	took     time.Duration   // as long as there was traffic
	fired    int             // times that a rule has acted
	spread   []time.Duration // of the calls that changed something
	problems problemCount
}

// until arms, changes and removes rules in turn at the rate of the soak: one that
// never matches and one that delays, in both directions, on every proxy. In the
// end no rule is left.
func (s *swapper) until(stop <-chan struct{}) {
	began := time.Now()
	for n := 0; ; n++ {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(s.swaps))
		select {
		case <-stop:
			s.took = time.Since(began)
			for at := range s.armed {
				s.disarm(at)
			}
			return
		case <-time.After(time.Until(due)):
		}
		dir, step, never := [2]string{"c2s", "s2c"}[n/s.proxies%2], n/(2*s.proxies)%3, n/(6*s.proxies)%2 == 0
		id, all := fmt.Sprintf("%s-%t", dir, never), rulesPath(n%s.proxies)
		switch at := all + "/" + id; step {
		case 0:
			s.change(http.MethodPost, all, delayRule(id, dir, "1ms", never))
			s.armed[at] = !never
		case 1:
			s.change(http.MethodPut, at, delayRule(id, dir, "2ms", never))
		default:
			s.disarm(at)
		}
		s.done++
	}
}

func (s *swapper) change(method, path string, body any) {
	began := time.Now()
	status, answer, err := s.d.call(method, path, body)
	if err == nil && !fine(status) {
		err = fmt.Errorf("%s %s has status %d: %s", method, path, status, answer)
	}
	if err != nil {
		s.problems.add(err)
	}
	s.spread = append(s.spread, time.Since(began))
}

// disarm removes a rule, and counts how often it acted if it delays.
func (s *swapper) disarm(at string) {
	if s.armed[at] {
		status, answer, err := s.d.call(http.MethodGet, at, nil)
		var state struct {
			Fired int `json:"fired"`
		}
		if err == nil && fine(status) {
			err = json.Unmarshal(answer, &state)
		} else if err == nil {
			err = fmt.Errorf("GET %s has status %d: %s", at, status, answer)
		}
		if err != nil {
			s.problems.add(err)
		}
		s.fired += state.Fired
	}
	s.change(http.MethodDelete, at, nil)
	delete(s.armed, at)
}
