package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tornwire/frames"
)

// replyRules are the rules about what a server answers, and when.
func replyRules() []implemented {
	return []implemented{
		{Rule{
			"one-reply-per-attempt", sideServer, Contract,
			"An attempt is answered by one A, T or B.",
			"spec/ticketing.md §1.2, §3.7",
			"More whole A, T and B frames for an owner and key (v0: for a key) were received from the server on a session than A frames for it had begun to be forwarded there.",
			"Every workload.",
		}, oneReplyPerAttempt},
		{Rule{
			"no-early-timeout", sideServer, Contract,
			"A T comes when the wire wait has passed, not before.",
			"spec/ticketing.md §2",
			"The T was received sooner after the write of the request's last byte had begun than the wire wait, by more than two clocks may differ.",
			"Every workload in which a wait ends without a grant.",
		}, noEarlyTimeout},
		{Rule{
			"zero-never-queues", sideServer, Contract,
			"An attempt with wait 0 is answered at once and never queued.",
			"spec/ticketing.md §2",
			"A grant that held the key when the request was forwarded ended at least a second after the request's last byte had been accepted, and only then was the attempt granted.",
			"Every workload that acquires with wait 0 while the key is held.",
		}, zeroNeverQueues},
		{Rule{
			"lease-ends", sideServer, Contract,
			"When a lease has ended the next waiter is granted.",
			"spec/ticketing.md §2",
			"At grant + lease + 1 s an attempt was still waiting, its session alive and its wait not over, and nobody had been granted the key since; without a table certain in a closed world only.",
			"Every workload in which a lease passes while another client waits.",
		}, leaseEnds},
		{Rule{
			"token-increases", sideServer, Safety,
			"The token of a grant is above that of every earlier grant, whatever the key.",
			"spec/ticketing.md §2",
			"The table granted a token not above an earlier one; without a table, and in a closed world, an attempt that began after a token had been received was granted one not above it (hygiene in the current dialect).",
			"Every workload with two grants.",
		}, tokenIncreases},
	}
}

// dialogue is what was asked and answered on a session about one owner and key, or
// in a dialect without owners about one key.
type dialogue struct {
	session *session
	owner   uint64
	key     string
	asked   []*wireFrame // A frames forwarded, as they began; one that never ended is the last
	replies []*wireFrame // whole A, T and B frames received that can belong to them
	excess  []*wireFrame // those that no attempt is left for
}

type subject struct {
	owner uint64
	key   string
}

// dialogues stands on F and U. An A that only began to be forwarded counts as
// asked, though a right server cannot have read it. What was received after
// something unreadable had been forwarded is left out: it may answer that.
func (v *view) dialogues() []*dialogue {
	var out []*dialogue
	for _, s := range v.sessions {
		out = append(out, v.dialoguesOf(s)...)
	}
	return out
}

func (v *view) dialoguesOf(s *session) []*dialogue {
	var out []*dialogue
	by := map[subject]*dialogue{}
	at := func(owner uint64, key string) *dialogue {
		d := by[subject{owner, key}]
		if d == nil {
			d = &dialogue{session: s, owner: owner, key: key}
			by[subject{owner, key}] = d
			out = append(out, d)
		}
		return d
	}
	var partial *wireFrame
	for _, f := range s.forwarded() {
		if !f.isOp(opAcquire) || f.unknown {
			continue
		}
		owner, _, ok := f.field(fieldOwner)
		if key, whole := f.tail(); whole && ok == v.owners {
			d := at(owner, key)
			d.asked = append(d.asked, f)
		} else {
			partial = f
		}
	}
	obscure := s.obscured()
	for _, r := range s.replies() {
		owner, _, ok := r.field(fieldOwner)
		key, whole := r.tail()
		if !whole || !answersAcquire(r) || ok != v.owners || obscure.happened() && !r.first().before(obscure) {
			continue
		}
		d := at(owner, key)
		d.replies = append(d.replies, r)
	}
	for _, d := range out {
		if partial != nil && d.mayBe(partial) {
			d.asked = append(d.asked, partial)
		}
		d.settle()
	}
	return out
}

func answersAcquire(f *wireFrame) bool {
	return f.isOp(opAcquired) || f.isOp(opTimeout) || f.isOp(opBusy)
}

// obscured is the first moment at which something was forwarded on a session that
// could not be read and may have been a request.
func (s *session) obscured() moment {
	out := &s.link(frames.ClientToServer).out
	first := out.dark
	for _, f := range out.frames {
		if f.unknown && hides(f) && f.first().before(first) {
			first = f.first()
		}
	}
	return first
}

// mayBe tells whether an A of which a part was forwarded may be of this dialogue.
func (d *dialogue) mayBe(f *wireFrame) bool {
	owner, _, ok := f.field(fieldOwner)
	return keyFits(f, d.key) && (!ok || owner == d.owner)
}

// settle sets the replies apart for which no attempt is left.
func (d *dialogue) settle() {
	var kept []*wireFrame
	for _, r := range d.replies {
		if d.askedBefore(r) > len(kept) {
			kept = append(kept, r)
		} else {
			d.excess = append(d.excess, r)
		}
	}
	d.replies = kept
}

// askedBefore counts the attempts that had begun to be forwarded before a reply
// was received. They are the first ones, since writes have an order.
func (d *dialogue) askedBefore(r *wireFrame) int {
	n, _ := slices.BinarySearchFunc(d.asked, r.first().ord, func(f *wireFrame, ord int) int { return f.first().ord - ord })
	return n
}

// window is a stretch of a dialogue in which it is open which reply answers which
// attempt: before it every attempt was answered. It is mostly one and one.
type window struct {
	*dialogue
	from, to int          // the attempts, of asked
	replies  []*wireFrame // no more than there are attempts
}

// candidates are the attempts that a reply of the window can answer.
func (w *window) candidates(r *wireFrame) []*wireFrame { return w.asked[w.from:w.askedBefore(r)] }

// windows cuts a dialogue wherever all that was asked is answered. The last one
// has what is not.
func (d *dialogue) windows() []window {
	var out []window
	w := window{dialogue: d}
	for i, r := range d.replies {
		w.replies = append(w.replies, r)
		if n := d.askedBefore(r); n == i+1 {
			w.to = n
			out = append(out, w)
			w = window{dialogue: d, from: n}
		}
	}
	if w.to = len(d.asked); w.to > w.from {
		out = append(out, w)
	}
	return out
}

// oneReplyPerAttempt counts: on a session, the replies for an owner and key that
// were received against the attempts that had begun to be forwarded. It is for the
// contract: a second grant that would harm is one for mutual-exclusion. A reply
// for what was never asked on the session is one for echo-matches.
func oneReplyPerAttempt(j *judge) {
	for _, d := range j.dialogues() {
		if len(d.asked) == 0 {
			continue
		}
		if len(d.replies) > 0 {
			j.checked()
		}
		for _, r := range d.excess {
			n := d.askedBefore(r)
			if n == 0 {
				continue
			}
			k := min(n, len(d.replies)) - 1
			if k < 0 {
				continue
			}
			j.find(Contract, Certain, fmt.Sprintf("%s on session %d answers %s a second time: for %s there were only %s, all answered, the last by %s",
				r.ref, d.session.id, d.asked[n-1].ref, d.about(j.view), counted(n, "attempt"), d.replies[k].ref), j.about(d, r))
		}
	}
}

// about names what a dialogue is about.
func (d *dialogue) about(v *view) string {
	if v.owners {
		return fmt.Sprintf("owner %d and key %q", d.owner, d.key)
	}
	return fmt.Sprintf("key %q", d.key)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// about is the evidence of a finding about a reply, with the calls that asked, and what
// happened on other sessions that it is held against.
func (v *view) about(d *dialogue, r *wireFrame, also ...int) Evidence {
	s := scene{frame: r, offset: len(r.data), at: r.end().ord, key: d.key, also: also}
	for _, a := range v.attempts {
		if a.session == d.session.id && slices.ContainsFunc(d.asked, func(f *wireFrame) bool { return f.ref == a.ref }) {
			s.others = append(s.others, known(a.only())...)
		}
	}
	return v.evidence(s)
}

// maxWindow bounds the attempts of a window in which replies are held against each
// of them; a larger one is not judged by rules that need that.
const maxWindow = 64

// clockSlack is by how much a T may be early before the finding is certain: the
// server's clock is not ours. Over a long wait it is a thousandth of it more.
const clockSlack = 50 * time.Millisecond

// noEarlyTimeout stands on P7 and P9, one-sided: the request cannot have arrived
// before the write of its last byte had begun, and the T was sent before it was
// received, so the server waited no longer than that. A T for wait 0 is right at
// any time in the current dialect and never in v0, where it waits for ever. Where
// it is open which attempt a T answers, the T frames are early only if no way of
// pairing them with attempts makes all of them right.
func noEarlyTimeout(j *judge) {
	for _, d := range j.dialogues() {
		for _, w := range d.windows() {
			if w.to-w.from > maxWindow || !slices.ContainsFunc(w.replies, func(r *wireFrame) bool { return r.isOp(opTimeout) }) {
				continue
			}
			j.checked()
			certain := w.early(func(f, r *wireFrame) bool { return j.ripe(f, r, true) })
			for _, r := range w.early(func(f, r *wireFrame) bool { return j.ripe(f, r, false) }) {
				c := Suspect
				if slices.Contains(certain, r) {
					c = Certain
				}
				f := slices.MinFunc(w.candidates(r), func(a, b *wireFrame) int { return cmp.Compare(j.missing(a, r), j.missing(b, r)) })
				j.find(Contract, c, fmt.Sprintf("%s on session %d was received %s after the write of %s had begun, which asked for %s",
					r.ref, d.session.id, ms(since(f.end(), r.first())), f.ref, j.patience(f)), j.about(d, r))
			}
		}
	}
}

// early lists the T frames of a window that find no attempt when each reply needs
// one of its own and a T one that is ripe.
func (w *window) early(ripe func(f, r *wireFrame) bool) []*wireFrame {
	candidates := make([][]int, len(w.replies))
	for i, r := range w.replies {
		for k, f := range w.candidates(r) {
			if !r.isOp(opTimeout) || ripe(f, r) {
				candidates[i] = append(candidates[i], k)
			}
		}
	}
	var out []*wireFrame
	for i, k := range pairUp(candidates, w.to-w.from) {
		if k < 0 && w.replies[i].isOp(opTimeout) {
			out = append(out, w.replies[i])
		}
	}
	return out
}

// ripe tells whether a T can answer an attempt. One that was not forwarded whole
// says nothing about time.
func (v *view) ripe(f, r *wireFrame, lenient bool) bool {
	if !f.whole {
		return true
	}
	wait, _, ok := f.field(fieldWait)
	if !ok {
		return true
	}
	if wait == 0 {
		return v.owners
	}
	missing := v.missing(f, r)
	return missing <= 0 || lenient && missing <= clockSlack+time.Duration(wait)*time.Millisecond
}

// missing is how much of the wait had not passed.
func (v *view) missing(f, r *wireFrame) time.Duration {
	wait, _, _ := f.field(fieldWait)
	if wait == 0 && !v.owners {
		return forever
	}
	return time.Duration(wait)*time.Second - since(f.end(), r.first())
}

// forever is longer than any wait.
const forever = 1 << 20 * time.Second

func (v *view) patience(f *wireFrame) string {
	wait, _, _ := f.field(fieldWait)
	if wait == 0 && !v.owners {
		return "a wait for ever"
	}
	return fmt.Sprintf("a wait of %d s", wait)
}
