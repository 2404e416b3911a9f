package proxy

import (
	"tornwire/faults"
	"tornwire/history"
)

// flow carries a link's bytes through its byte stages. A goroutine of its own
// delivers what comes out. The session's mutex guards end and over.
type flow struct {
	pipe faults.Pipe
	done chan struct{} // closed when nothing more comes out
	over bool
	end  string // the sender's, to be passed on then
}

// SetStages puts other byte stages in place of those that the proxy has, which at
// first are none, on live sessions too. It does not wait for anything that is held
// or slow. Which frame bytes belong to is not recorded once they went through a
// stage.
func (p *Proxy) SetStages(st faults.Stages) {
	p.stages.Store(&st)
	for _, s := range p.sessionsNow() {
		s.stage()
	}
}

// staged returns the stages if any is meant for a link.
func (l *link) staged() faults.Stages {
	if st := l.p.stages.Load(); st != nil && (*st).Len(l.dir) > 0 {
		return *st
	}
	return nil
}

// stage gives the links of a session the stages that the proxy has now.
func (s *session) stage() {
	st := s.p.stages.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if f := l.flow.Load(); f != nil && st != nil {
			f.pipe.Change(*st)
		} else {
			l.openFlow()
		}
	}
}

// openFlow has the link's bytes pass stages from now on, if there are any. The
// mutex is held.
func (l *link) openFlow() {
	st := l.staged()
	if st == nil || l.flow.Load() != nil || l.silent || l.past {
		return
	}
	f := &flow{pipe: st.Open(l.s.id, l.dir), done: make(chan struct{})}
	l.flow.Store(f)
	l.s.wg.Go(func() { l.deliver(f) })
}

// through sends bytes into the link's stages. It is false if there are none: then
// what was sent before has been delivered.
func (l *link) through(data []byte) bool {
	for {
		f := l.flow.Load()
		if f == nil {
			return false
		}
		if l.staged() != nil {
			f.pipe.Send(data, l.quiet)
			return true
		}
		l.drained(f)
		l.s.mu.Lock()
		l.flow.Store(nil)
		l.openFlow()
		l.s.mu.Unlock()
	}
}

// drained ends a flow and waits until what is in it was delivered, or the link is
// silent.
func (l *link) drained(f *flow) {
	f.pipe.End()
	select {
	case <-f.done:
	case <-l.quiet:
	}
}

// deliver writes what comes out of a flow, and passes on the end that comes behind
// it: the sender's, or one that a stage makes.
func (l *link) deliver(f *flow) {
	for {
		p, ok := f.pipe.Next()
		if !ok {
			break
		}
		if !l.put(p, nil) {
			f.pipe.Abandon()
		}
	}
	s := l.s
	s.mu.Lock()
	f.over = true
	end := f.end
	s.mu.Unlock()
	close(f.done)
	if how := f.pipe.Outcome(); how != faults.NoEnd {
		s.breakOff(l, string(how))
	} else if end != "" && !l.isSilent() {
		s.end(l.dir, end, history.CauseForwarded)
	}
}

// breakOff ends both connections for a stage.
func (s *session) breakOff(l *link, how string) {
	if !l.cutting(func() {
		s.hush(l.other())
		s.hush(l)
	}) {
		return
	}
	for dir := range s.links {
		s.end(s.links[dir].dir, how, history.CauseFault)
	}
}

// pastEnd notes that the link sends no more, and leaves the sender's end, if there
// is one to be passed on, to the link's flow, behind what is in it. It is false if
// there is no flow.
func (l *link) pastEnd(how string) bool {
	l.s.mu.Lock()
	f := l.flow.Load()
	later := f != nil && !f.over
	if later && how != "" {
		f.end = how
	}
	l.past = true
	l.s.mu.Unlock()
	if later {
		f.pipe.End()
	}
	return later
}
