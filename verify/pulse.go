package verify

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// LateLimit is the lateness of the tool's ticker or of a pong from which a case
// is discarded and repeated (spec/rules.md P11).
const LateLimit = 200 * time.Millisecond

const (
	beatEvery = 20 * time.Millisecond
	// strainLimit is the lateness from which no further case is started.
	strainLimit = 60 * time.Millisecond
	// easyLimit is the lateness up to which more cases are started.
	easyLimit = 5 * time.Millisecond
	firstPace = 2
	maxPace   = 14
	// paceBeats is how many beats bring news of the processor time used and of the
	// adapter, and pass from one change of the pace to the next.
	paceBeats = 5
	// Under calmLoad of the processor time that there is, more is started; over
	// fullLoad less is.
	calmLoad = 0.60
	fullLoad = 0.80
	// shrinkFor is how long it takes to see what having less in flight brings.
	shrinkFor = time.Second
	leastRoom = 8
	slowBeats = 4
	// A discarded case is tried again when nothing was strained for restFor, or
	// after restLimit.
	restFor = time.Second
)

// restLimit is a variable for the tests: a machine does not become calmer for an
// adapter that never answers a ping.
var restLimit = 15 * time.Second

// pulse watches whether this process runs when it should, and lets cases start
// so that they do not make each other late: a case costs a few milliseconds of
// processor time, and hundreds at once would cost half a second. How many start
// follows the processor time used, and falls when something was late. A case that
// waits costs nothing, so what is in flight is bounded only after something was.
type pulse struct {
	strain func() time.Duration // of the adapter

	mu       sync.Mutex
	last     time.Time // beat
	lastLate time.Time // when a beat was over LateLimit
	strained time.Time // when a beat or the adapter was last over strainLimit
	pace     int       // starts allowed a beat
	left     int       // of them until the next beat
	room     int       // cases allowed in flight
	maxRoom  int
	enough   int // room up to which it grows fast
	beats    int // that the room was all used
	count    int // beats in all
	used     bool
	cpu      time.Duration // of this process, at wall
	wall     time.Time
	shrunk   time.Time
	inFlight int
	peak     int           // most in flight
	next     chan struct{} // closed at the next beat
}

func newPulse(parallel int, strain func() time.Duration) *pulse {
	return &pulse{
		strain: strain, last: time.Now(), pace: firstPace, left: firstPace,
		room: parallel, maxRoom: parallel, enough: parallel, next: make(chan struct{}),
	}
}

// run beats until ctx is done.
func (p *pulse) run(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.beat(time.Now(), p.strain())
		case <-ctx.Done():
			return
		}
	}
}

func (p *pulse) beat(now time.Time, strain time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := max(now.Sub(p.last)-beatEvery, 0)
	p.last = now
	if late > LateLimit {
		p.lastLate = now
	}
	worst := max(late, strain)
	if worst > strainLimit {
		p.strained = now
	}
	p.used = p.used || p.left == 0
	switch {
	case worst > LateLimit:
		p.pace = 1
		p.shrink(now)
	case worst > strainLimit:
		p.pace = max(p.pace/2, 1)
	default:
		p.grow(worst <= easyLimit)
	}
	if p.count++; p.count%paceBeats == 0 {
		p.steer(p.load(now), worst)
	}
	p.left = p.pace
	if worst > strainLimit {
		p.left = 0
	}
	close(p.next)
	p.next = make(chan struct{})
}

// load is which part of the processor time that there was this process has used
// since it was asked last.
func (p *pulse) load(now time.Time) float64 {
	cpu, ok := processorTime()
	wall := now.Sub(p.wall)
	used := cpu - p.cpu
	p.cpu, p.wall = cpu, now
	if !ok || wall <= 0 {
		return 0
	}
	return used.Seconds() / (wall.Seconds() * float64(runtime.GOMAXPROCS(0)))
}

// steer sets how many cases may start a beat by the processor time used: a case
// costs as much at its end as at its beginning, so that what is started at full
// speed would come due all at once.
func (p *pulse) steer(load float64, worst time.Duration) {
	switch {
	case load > fullLoad:
		p.pace = max(p.pace*3/4, 1)
	case load < calmLoad && worst <= easyLimit && p.used:
		p.pace = min(p.pace+1, maxPace)
	}
	p.used = false
}

// shrink takes half of the room away, and remembers that more was too much.
func (p *pulse) shrink(now time.Time) {
	if now.Sub(p.shrunk) < shrinkFor {
		return
	}
	p.shrunk = now
	p.room = max(min(p.room, p.inFlight)/2, min(leastRoom, p.maxRoom))
	p.enough = p.room
}

// grow gives more room where it is used: fast up to what was enough when
// something was late, slowly from there on.
func (p *pulse) grow(easy bool) {
	if p.inFlight < p.room || !easy {
		return
	}
	p.beats++
	switch {
	case p.room < p.enough:
		p.room = min(p.room+4, p.maxRoom)
	case p.beats%slowBeats == 0:
		p.room = min(p.room+2, p.maxRoom)
	}
}

// lateSince tells whether a beat was late, or is now, since a case began.
func (p *pulse) lateSince(begin time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastLate.After(begin) || time.Since(p.last) > LateLimit+beatEvery
}

// enter waits until a case may start. It is false if ctx is done first; else
// leave must follow.
func (p *pulse) enter(ctx context.Context) bool {
	for {
		p.mu.Lock()
		next := p.next
		if p.inFlight == 0 || p.left > 0 && p.inFlight < p.room {
			p.left--
			p.inFlight++
			p.peak = max(p.peak, p.inFlight)
			p.mu.Unlock()
			return ctx.Err() == nil || p.leave()
		}
		p.mu.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return false
		}
	}
}

// rest waits until the machine has been calm for a while, so that the tries of a
// case are not all spent in one busy moment.
func (p *pulse) rest(ctx context.Context) {
	begin := time.Now()
	for {
		p.mu.Lock()
		next, now := p.next, p.last
		calm := now.Sub(p.strained) >= restFor || now.Sub(begin) >= restLimit
		p.mu.Unlock()
		if calm {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// leave makes room for another case; it returns false.
func (p *pulse) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	return false
}
