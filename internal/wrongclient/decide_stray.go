package wrongclient

import (
	"bytes"
	"slices"
	"time"

	"tornwire/frames"
)

// slowness is how long after its bytes have come a slow reader acts on them: less than
// the lateness that a living client is allowed.
const slowness = 100 * time.Millisecond

// readsAfter is how long the client leaves lie what it has read.
func (d defect) readsAfter() time.Duration {
	if d == oddSlowReader {
		return slowness
	}
	return 0
}

// dropsStrays tells whether an answer that nobody waits for has no consequence.
func (d defect) dropsStrays() bool { return d == strayIgnored }

// releasesOrphan tells whether a grant that nobody waits for is released; matched says
// that its token is known from a call.
func (d defect) releasesOrphan(matched bool) bool {
	switch d {
	case releaseDeadLane:
		return false // the session that it would go out on is over
	case duplicateReleased:
		return true
	}
	return !matched
}

// releasesTorn tells whether the token of a grant without its newline is released.
func (d defect) releasesTorn() bool { return d == oddReleasesTorn }

// passesOver tells whether an error has no consequence.
func (d defect) passesOver(reason string) bool {
	return d == errorSkipped && !slices.Contains([]string{"no_leader", "not_active", "auth_failed"}, reason)
}

// skips tells whether some frame that cannot be read is passed over.
func (d defect) skips() bool {
	return d == unknownSkipped || d == malformedSkipped || d == overlongSkipped
}

// skippingSplitter is a countSplitter that passes over what its client skips.
type skippingSplitter struct {
	g        *frames.Grammar
	d        defect
	dec      *frames.Decoder
	skipping bool // up to the next newline
}

func (k *skippingSplitter) next(p []byte) (frame, []byte, bool, error) {
	for len(p) > 0 {
		if k.skipping {
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				return frame{}, nil, false, nil
			}
			p = p[i+1:]
			k.skipping = false
			k.dec.Reset(k.g, frames.ServerToClient)
			k.dec.Next([]byte("-\n")) // the preface is behind it
			continue
		}
		under, _ := k.dec.Pending()
		at := p
		var pc frames.Piece
		pc, p = k.dec.Next(p)
		switch {
		case pc.Kind == frames.Opaque && (under == nil && k.d == unknownSkipped || under != nil && k.d == overlongSkipped):
			p, k.skipping = at, true
		case pc.Kind == frames.Opaque:
			return frame{}, nil, false, k.dec.Err()
		case pc.Last:
			err := pc.Shape.Check(pc.Whole)
			if err != nil && k.d == malformedSkipped {
				continue
			}
			return frame{shape: pc.Shape, raw: pc.Whole, got: len(pc.Whole)}, p, true, err
		}
	}
	return frame{}, nil, false, nil
}

func (k *skippingSplitter) begun() frame {
	s, b := k.dec.Pending()
	return frame{shape: s, raw: b, got: len(b), cut: true}
}

// torn takes a grant whose newline never came when its session ends: its token is
// known, and its key from the call that has its owner.
func (r *reader) torn() {
	c := r.s.c
	f := r.split.begun()
	if !c.defect.releasesTorn() || !c.exact || f.shape == nil || f.shape.Op != "A" || f.got < f.shape.Header {
		return
	}
	r.s.mu.Lock()
	var key string
	for _, x := range r.s.pending {
		if x.ops == acquireAnswers && x.id == f.id() {
			key = x.key
		}
	}
	r.s.mu.Unlock()
	if key != "" {
		c.releaseLater(&grant{key: key, token: f.token(), owner: f.id(), avoid: r.s})
	}
}
