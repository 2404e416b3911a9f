//go:build linux

package main

import (
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

// swapping changes rules while busy sessions are compared byte by byte.
func (r *run) swapping() error {
	if r.swap <= 0 || r.d == nil {
		return nil
	}
	path := func(i int) string { return "/proxies/" + proxyName(i) + "/rules" }
	status, answer, err := r.d.call(http.MethodPost, path(0), delayRule("probe", "c2s", "1ms", true))
	if err != nil {
		return err
	}
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		r.skipped = append(r.skipped, fmt.Sprintf("rules under load are skipped: POST %s has status %d", path(0), status))
		return nil
	}
	if !fine(status) {
		r.hold("a rule is armed", fmt.Errorf("status %d: %s", status, answer))
		return nil
	}
	if r.baseline.when == "" {
		if err := r.warm(1); err != nil {
			return err
		}
	}
	stop, swapped := make(chan struct{}), make(chan swapResult, 1)
	go func() { swapped <- r.swapUntil(stop, path) }()
	rep, _, err := r.ask(order{Do: "traffic", For: r.swap})
	close(stop)
	res := <-swapped
	if err != nil {
		return err
	}
	var pace error
	if least := int(paceFloor * r.swap.Seconds() * float64(r.swaps)); res.done < least {
		pace = fmt.Errorf("%d changes, under %d", res.done, least)
	}
	r.judge("changes of rules", res.problems, res.done, res.done)
	r.hold("pace of the changes", pace)
	r.say("rules: %d changes, %s", res.done, spreadText(spreadOf(res.spread)))
	return r.finished("rules under load", rep, trafficSessions)
}

func fine(status int) bool { return status >= 200 && status < 300 }

// swapResult is what came of changing rules.
type swapResult struct {
	done     int
	spread   []time.Duration // of the calls
	problems problemCount
}

// swapUntil arms, changes and removes rules in turn at the rate of the soak: one
// that never matches and one that delays, in both directions, on every proxy. In
// the end no rule is left.
func (r *run) swapUntil(stop <-chan struct{}, path func(int) string) swapResult {
	var res swapResult
	do := func(method, path string, body any) {
		began := time.Now()
		status, answer, err := r.d.call(method, path, body)
		if err == nil && !fine(status) {
			err = fmt.Errorf("%s %s has status %d: %s", method, path, status, answer)
		}
		if err != nil {
			res.problems.add(err)
		}
		res.spread = append(res.spread, time.Since(began))
	}
	do(http.MethodDelete, path(0)+"/probe", nil)
	tick := time.NewTicker(time.Second / time.Duration(r.swaps))
	defer tick.Stop()
	armed := map[string]bool{}
	for n := 0; ; n++ {
		proxy, dir := n%r.proxies, []string{"c2s", "s2c"}[n/r.proxies%2]
		step, never := n/(2*r.proxies)%3, n/(6*r.proxies)%2 == 0
		id := fmt.Sprintf("%s-%t", dir, never)
		at := path(proxy) + "/" + id
		select {
		case <-stop:
			for at := range armed {
				do(http.MethodDelete, at, nil)
			}
			return res
		case <-tick.C:
		}
		switch step {
		case 0:
			do(http.MethodPost, path(proxy), delayRule(id, dir, "1ms", never))
			armed[at] = true
		case 1: // changed
			do(http.MethodPost, path(proxy), delayRule(id, dir, "2ms", never))
		default:
			do(http.MethodDelete, at, nil)
			delete(armed, at)
		}
		res.done++
	}
}
