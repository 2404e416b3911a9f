package checker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"tornwire/history"
)

// Limits of the search for an order of the operations on a key.
const (
	maxOperations = 256     // on one key; more are not judged
	maxOrderSteps = 200_000 // of the model; then nothing is known
)

// operation is something that the lock of a key did, or may have done, between two
// moments. Operations are numbered from 1, and a grant is named by its number.
type operation struct {
	what     what
	grant    int    // of an expiry: whose
	token    uint64 // of a grant or a release
	hasToken bool
	exact    bool // only the grant with this token, in a dialect without tokens too
	optional bool // it may have had no effect: its answer was never seen
	from, to int  // order numbers; to is math.MaxInt for what may still come
	text     string
	reply    *wireFrame // its answer, if that is known
}

type what int

const (
	granted    what = iota // the key, which was free
	released               // the grant with its token, or in a dialect without tokens any
	notHeld                // there was no such grant
	leaseEnded             // of its grant; always optional
)

// linearizable searches, for each key, for an order of all that was asked of the
// server in which every answer is that of a lock: granted only when free, released
// only the grant that is named, not held only without it. An operation takes effect
// between the first byte of its request being forwarded and the first byte of its
// answer being received (F and U); one that was not answered has an effect or none,
// any time after; a lease ends, if at all, a lease after its request began to be
// forwarded, or later. A refusal is right at any time. What the tool itself held and
// released at the server counts as well.
//
// That no order exists is certain where the whole world is seen: with the table, which
// tells what the tool did, or in a declared closed world (P14). If there is none even
// when every release may have done anything, two grants were live at once, and it is
// a matter of safety; else what the releases were told is wrong, and it is for the
// contract. Where the rule has found something already there is no search.
func (j *judge) linearizable() {
	if slices.ContainsFunc(j.res.Findings, func(f Finding) bool { return f.Rule == j.rule.ID }) {
		return
	}
	certainty := Suspect
	if j.policy.SawTable || j.policy.ClosedWorld {
		certainty = Certain
	}
	byKey, keys := j.operations()
	for _, key := range keys {
		ops := byKey[key]
		if len(ops) < 2 {
			continue
		}
		if len(ops) > maxOperations {
			j.res.Unknown = append(j.res.Unknown, key)
			continue
		}
		severity := Contract
		switch j.inOrder(ops, maxOrderSteps) {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			j.res.Unknown = append(j.res.Unknown, key)
			continue
		}
		free := slices.Clone(ops)
		for i := range free {
			switch free[i].what {
			case released, notHeld:
				free[i].what, free[i].optional = released, true
			}
		}
		if j.inOrder(free, maxOrderSteps) == porcupine.Illegal {
			severity = Safety
		}
		j.find(severity, certainty, fmt.Sprintf("no order of what was asked about key %q makes the server's answers those of a lock: %s", key, effects(ops)),
			j.evidence(lastReply(ops, key)))
	}
}

// lastReply is the scene of a key, with the answer received last.
func lastReply(ops []operation, key string) scene {
	s := scene{key: key, at: never}
	for _, o := range ops {
		if o.reply != nil && (s.frame == nil || s.frame.first().before(o.reply.first())) {
			s.frame, s.offset = o.reply, len(o.reply.data)
		}
	}
	return s
}

// effects names the operations that certainly had an effect, as many as fit.
func effects(ops []operation) string {
	const most = 8
	s, n := "", 0
	for _, o := range ops {
		if o.optional {
			continue
		}
		if n++; n > most {
			return s + " …"
		}
		if s != "" {
			s += "; "
		}
		s += o.text
	}
	return s
}

// inOrder searches for an order. The search is bounded in steps, not in time, so that
// it ends the same way each time.
func (j *judge) inOrder(ops []operation, most int) porcupine.CheckResult {
	known := map[uint64]bool{}
	list := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		if o.what == granted && o.hasToken {
			known[o.token] = true
		}
		list[i] = porcupine.Operation{ClientId: 0, Input: i, Call: int64(o.from), Return: int64(o.to)}
	}
	if j.asAnswered(ops, known) {
		return porcupine.Ok
	}
	steps := 0
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{0} },
		Step: func(state, input, _ any) []any {
			if steps++; steps > most {
				return nil
			}
			i := input.(int)
			holder := state.(int)
			next, ok := ops[i].apply(i+1, holder, func() bool { return j.names(&ops[i], &ops[holder-1], known) })
			switch {
			case !ops[i].optional && !ok:
				return nil
			case !ops[i].optional:
				return []any{next}
			case !ok || next == holder:
				return []any{holder}
			}
			return []any{holder, next}
		},
		Hash: func(state any) uint64 { return uint64(state.(int)) },
	}
	m := model.ToModel()
	ok := porcupine.CheckOperations(m, list)
	switch {
	case ok:
		return porcupine.Ok
	case steps > most:
		return porcupine.Unknown
	}
	return porcupine.Illegal
}

// asAnswered tells whether the order of the answers is one, with no effect of what may
// have had none. It mostly is, and then there is nothing to search for.
func (j *judge) asAnswered(ops []operation, known map[uint64]bool) bool {
	order := make([]int, len(ops))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ops[a].to, ops[b].to) })
	holder := 0
	for _, i := range order {
		if ops[i].optional {
			continue
		}
		next, ok := ops[i].apply(i+1, holder, func() bool { return j.names(&ops[i], &ops[holder-1], known) })
		if !ok {
			return false
		}
		holder = next
	}
	return true
}

// apply returns the holder after an operation, if it can take effect.
func (o *operation) apply(self, holder int, named func() bool) (next int, ok bool) {
	switch o.what {
	case granted:
		return self, holder == 0
	case released:
		return 0, holder != 0 && named()
	case notHeld:
		return holder, holder == 0 || !named()
	}
	return 0, holder == o.grant
}

// names tells whether a release is of the grant that holds the key. The token of a
// grant that was not seen can be any that no other grant has.
func (j *judge) names(release, held *operation, known map[uint64]bool) bool {
	switch {
	case !j.tokens && !release.exact:
		return true
	case held.hasToken:
		return held.token == release.token
	}
	return !known[release.token]
}

// operations lists what was asked of the server, by key, in the order in which the
// keys came up. A key about which something cannot be read, or of which an answer
// came too many, is left out.
func (j *judge) operations() (map[string][]operation, []string) {
	l := &ledger{judge: j, clock: clockOf(j.events), byKey: map[string][]operation{}, out: map[string]bool{}}
	for _, s := range j.sessions {
		if s.obscured().happened() {
			return nil, nil
		}
	}
	for _, d := range j.dialogues() {
		l.acquires(d)
	}
	for _, s := range j.sessions {
		l.releases(s)
	}
	l.ofTheTool()
	keys := slices.DeleteFunc(l.keys, func(k string) bool { return l.out[k] })
	return l.byKey, keys
}

// ledger collects operations.
type ledger struct {
	*judge
	clock *clock
	byKey map[string][]operation
	keys  []string
	out   map[string]bool // keys that are not judged
}

// add returns the operation's number.
func (l *ledger) add(key string, o operation) int {
	if l.byKey[key] == nil {
		l.keys = append(l.keys, key)
	}
	l.byKey[key] = append(l.byKey[key], o)
	return len(l.byKey[key])
}

// grant adds a grant, and the end of its lease if that may have come.
func (l *ledger) grant(key string, o operation, asked, lease time.Duration) {
	o.what = granted
	n := l.add(key, o)
	if lease <= 0 || lease > maxLease {
		l.out[key] = true
		return
	}
	if due := l.clock.seen(asked + lease - clockSlack - lease/1000); due.happened() {
		l.add(key, operation{what: leaseEnded, grant: n, optional: true, from: due.ord, to: math.MaxInt})
	}
}

// acquires adds the attempts of a dialogue. Where it is open which attempt a reply
// answers, it may be any that had begun.
func (l *ledger) acquires(d *dialogue) {
	if len(d.excess) > 0 {
		l.out[d.key] = true
	}
	for _, w := range d.windows() {
		asked := w.asked[w.from:w.to]
		if len(asked) == 0 {
			continue
		}
		from := asked[0].first()
		lease := maxLease + time.Second
		for _, f := range asked {
			if n, _, ok := f.field(fieldLease); ok {
				lease = min(lease, time.Duration(n)*time.Second)
			}
		}
		for _, r := range w.replies {
			if r.isOp(opAcquired) {
				l.grant(d.key, operation{
					token: tokenOf(r), hasToken: true, from: from.ord, to: r.first().ord, reply: r,
					text: fmt.Sprintf("token %d granted between %s and %s", tokenOf(r), ms(from.at), ms(r.first().at)),
				}, from.at, lease)
			}
		}
		for _, f := range asked[len(w.replies):] {
			if f.whole {
				l.grant(d.key, operation{optional: true, from: from.ord, to: math.MaxInt}, from.at, lease)
			}
		}
	}
}

// releases adds the releases of a session, by what they name.
func (l *ledger) releases(s *session) {
	type named struct {
		key   string
		token uint64
	}
	asked, answers := map[named][]*wireFrame{}, map[named][]*wireFrame{}
	var order []named
	for _, f := range s.forwarded() {
		key, whole := f.tail()
		if f.isOp(opRelease) && whole {
			n := named{key, tokenOf(f)}
			if asked[n] == nil {
				order = append(order, n)
			}
			asked[n] = append(asked[n], f)
		}
	}
	for _, r := range s.replies() {
		key, whole := r.tail()
		if (r.isOp(opReleased) || r.isOp(opNotHeld)) && whole {
			n := named{key, tokenOf(r)}
			answers[n] = append(answers[n], r)
			if len(answers[n]) > len(asked[n]) {
				l.out[key] = true
			}
		}
	}
	for _, n := range order {
		from := asked[n][0].first()
		for i, r := range answers[n] {
			// Where all before were answered when it was asked, it is known whose this is.
			if i > 0 && i < len(asked[n]) && answers[n][i-1].end().before(asked[n][i].first()) {
				from = asked[n][i].first()
			}
			o := operation{what: released, token: n.token, hasToken: l.tokens, from: from.ord, to: r.first().ord, reply: r}
			word := "released"
			if r.isOp(opNotHeld) {
				o.what, word = notHeld, "said not to be held"
			}
			o.text = fmt.Sprintf("token %d %s between %s and %s", n.token, word, ms(from.at), ms(r.first().at))
			if !l.tokens {
				o.text = fmt.Sprintf("%s between %s and %s", word, ms(from.at), ms(r.first().at))
			}
			l.add(n.key, o)
		}
		for range max(len(asked[n])-len(answers[n]), 0) {
			l.add(n.key, operation{what: released, token: n.token, hasToken: l.tokens, optional: true, from: from.ord, to: math.MaxInt})
		}
	}
}

// ofTheTool adds what the tool held and released itself; in front of another server
// it is told behind a grant, and before a release. Where the table is seen, it tells
// when a grant ended, whoever ended it.
func (l *ledger) ofTheTool() {
	for i := range l.events {
		e := &l.events[i]
		o := operation{token: e.Token, hasToken: true, exact: true, from: i + 1, to: i + 1}
		switch {
		case e.Kind == history.Granted && e.Peer == "":
			o.text = fmt.Sprintf("token %d granted to the tool itself at %s", e.Token, ms(e.At))
			asked := e.At
			if !l.policy.SawTable {
				o.from, asked = 0, 0
			}
			l.grant(e.Key, o, asked, e.Lease)
		case e.Kind == history.GrantEnded:
			if !l.policy.SawTable {
				o.to = math.MaxInt
			}
			o.what, o.optional = released, true
			l.add(e.Key, o)
		}
	}
}
