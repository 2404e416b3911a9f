package verify

import (
	"slices"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// idleFrom is the time without a step from which on the story of a case had a pause
// there; its length is rounded up to idleStep.
const (
	idleFrom = 120 * time.Millisecond
	idleStep = 50 * time.Millisecond
)

// derive reads the story of a case from its record: what the application asked for, and
// what had happened before it did.
func derive(c Case, events []history.Event) story {
	d := &deriver{
		c: c, number: map[int]int{}, client: map[int]string{}, held: map[string]uint64{}, at: map[string]int{},
		queue: map[string]int{}, peak: map[string]int{}, fired: map[int]time.Duration{}, last: -1,
	}
	for i := range events {
		if events[i].Kind == history.CaseEnding {
			break
		}
		d.event(&events[i])
	}
	return d.out
}

type deriver struct {
	c      Case
	out    story
	last   time.Duration         // when the step before was done; -1: there is none
	number map[int]int           // of a call, by its number in the record
	unsent []step                // calls without a request
	client map[int]string        // by session
	held   map[string]uint64     // by key: the token of the tool's own holder
	at     map[string]int        // by key: where it was acquired
	queue  map[string]int        // by key: attempts that wait
	peak   map[string]int        // by key: the most that did
	fired  map[int]time.Duration // by session: when the fault began to hold
}

// add adds a step that was done at a time; one that the application does by itself has
// a pause before it.
func (d *deriver) add(at time.Duration, s step, acts bool) {
	if idle := at - d.last; acts && d.last >= 0 && idle > idleFrom {
		d.out = append(d.out, step{kind: stepPause, wait: min((idle + idleStep - 1).Truncate(idleStep), maxStoryPause)})
	}
	if len(d.out) < MaxStorySteps {
		d.out = append(d.out, s)
	}
	d.last = at
}

func (d *deriver) event(e *history.Event) {
	n := d.number[e.Call]
	switch e.Kind {
	case history.SessionOpened:
		d.client[e.Session] = e.Client
	case history.CallAsked:
		n = len(d.number) + 1
		d.number[e.Call] = n
		s := step{kind: stepAcquire, call: n, client: e.Client, key: e.Key, wait: e.Wait, lease: e.Lease}
		d.add(e.At, s, true)
		d.unsent = append(d.unsent, s)
	case history.Received, history.WriteBegun, history.Fired:
		d.wire(e)
	case history.CallResult, history.CallOverdue:
		d.add(e.At, step{kind: stepSettle, call: n}, false)
	case history.Entered:
		if at, ok := d.at[e.Key]; e.Call == 0 && ok && d.held[e.Key] == e.Token {
			d.out[at].kind = stepTake
		} else if n > 0 {
			d.add(e.At, step{kind: stepEnter, call: n}, true)
		}
	case history.Left:
		if n > 0 {
			d.add(e.At, step{kind: stepLeave, call: n}, true)
		}
	case history.ReleaseAsked:
		d.add(e.At, step{kind: stepRelease, call: n}, true)
	case history.ReleaseResult:
		d.add(e.At, step{kind: stepReleased, call: n}, false)
	case history.CancelAsked:
		d.add(e.At, step{kind: stepCancel, call: n}, true)
	default:
		d.table(e)
	}
}

// wire takes what tells when a request was there, and what the workload's own fault did.
func (d *deriver) wire(e *history.Event) {
	own := d.c.Workload.Own
	switch {
	case e.Kind == history.Received && e.Dir == frames.ClientToServer && e.Last && e.Frame.Op == "A":
		i := slices.IndexFunc(d.unsent, func(s step) bool { return s.client == d.client[e.Session] })
		if i >= 0 {
			d.add(e.At, step{kind: stepSent, call: d.unsent[i].call}, false)
			d.unsent = slices.Delete(d.unsent, i, i+1)
		}
	case own == nil || d.c.ID.Fault == NoFault:
	case e.Kind == history.Fired && own.Payload != nil:
		for _, s := range slices.Backward(d.out) {
			if s.kind == stepAcquire && s.client == d.client[e.Session] {
				d.add(e.At, step{kind: stepInterject, call: s.call}, true)
				return
			}
		}
	case e.Kind == history.Fired && own.Fault == "hold":
		d.fired[e.Session] = e.At
	case e.Kind == history.WriteBegun && e.Dir == own.Frame.Dir:
		at, ok := d.fired[e.Session]
		most := own.Args["most"]
		if each, has := own.Each[d.client[e.Session]]; has {
			most = each["most"]
		}
		if ok && e.At-at < most-idleFrom && !slices.ContainsFunc(d.out, func(s step) bool { return s.kind == stepLetGo }) {
			d.add(e.At, step{kind: stepLetGo}, true)
		}
		delete(d.fired, e.Session)
	}
}

// table takes what the tool's own holder did, and which leases and waits were over
// before the next step.
func (d *deriver) table(e *history.Event) {
	switch {
	case e.Kind == history.Queued:
		d.queue[e.Key]++
		d.peak[e.Key] = max(d.peak[e.Key], d.queue[e.Key])
		return
	case e.Kind == history.AttemptEnded && e.How != history.Refused, e.Kind == history.Granted && e.Peer != "":
		if d.queue[e.Key] > 0 {
			d.queue[e.Key]--
		}
		d.last = max(d.last, e.At)
	}
	switch {
	case e.Kind == history.Granted && e.Peer == "":
		d.add(e.At, step{kind: stepHold, key: e.Key}, true)
		d.held[e.Key], d.at[e.Key] = e.Token, len(d.out)-1
	case e.Kind == history.GrantEnded && e.How == history.Expired:
		d.add(e.At, step{kind: stepExpired, key: e.Key}, false)
	case e.Kind == history.GrantEnded && e.Peer == "" && d.held[e.Key] == e.Token && e.Token != 0:
		if n := d.queue[e.Key]; n < d.peak[e.Key] {
			d.out = append(d.out, step{kind: stepUnqueued, key: e.Key, n: n})
		}
		d.add(e.At, step{kind: stepFree, key: e.Key}, true)
	}
}
