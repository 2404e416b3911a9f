package cli

import (
	"sync/atomic"

	"github.com/rs/zerolog"
)

// loggedEventLimit is how many events wait to be logged; more are counted, not
// logged.
const loggedEventLimit = 4096

// eventLog logs events without ever holding up who puts them, nor making lines of
// them there.
type eventLog[E any] struct {
	log   zerolog.Logger
	write func(zerolog.Logger, E)
	queue chan E
	lost  atomic.Uint64
}

func newEventLog[E any](log zerolog.Logger, write func(zerolog.Logger, E)) *eventLog[E] {
	return &eventLog[E]{log: log, write: write, queue: make(chan E, loggedEventLimit)}
}

func (l *eventLog[E]) put(e E) {
	select {
	case l.queue <- e:
	default:
		l.lost.Add(1)
	}
}

// start logs until the function that it returns is called; that one logs what is
// left.
func (l *eventLog[E]) start() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case e := <-l.queue:
				l.one(e)
				continue
			case <-done:
			}
			for len(l.queue) > 0 {
				l.one(<-l.queue)
			}
			l.tellLost()
			return
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

func (l *eventLog[E]) one(e E) {
	l.tellLost()
	l.write(l.log, e)
}

func (l *eventLog[E]) tellLost() {
	if n := l.lost.Swap(0); n > 0 {
		l.log.Warn().Uint64("events", n).Msg("the log could not keep up; events are missing")
	}
}
