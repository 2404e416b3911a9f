package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/history"
)

// maxApplication is the most lines that a finding tells of the application.
const maxApplication = 4

// stay is one time in the critical section: of a call's application, or of the tool's
// own holder. On its way in and out it writes to a resource that knows the highest token
// it has seen.
type stay struct {
	call    *call
	client  string
	key     string
	token   uint64
	in, out moment
	refused bool // the resource would have refused one of its writes
}

// stayEvent notes an entry or an exit.
func (v *view) stayEvent(e *history.Event, m moment) {
	switch e.Kind {
	case history.Entered:
		st := &stay{call: v.byCall[e.Call], client: e.Client, key: e.Key, token: e.Token, in: m, refused: e.Refused}
		if st.call != nil {
			st.client = st.call.client
		}
		v.stays = append(v.stays, st)
	case history.Left:
		for _, st := range v.stays {
			if st.call == v.byCall[e.Call] && st.key == e.Key && st.token == e.Token && !st.out.happened() {
				st.out, st.refused = m, st.refused || e.Refused
				return
			}
		}
	}
}

func (st *stay) String() string {
	who := "the tool's own holder"
	switch {
	case st.call != nil:
		who = fmt.Sprintf("call %d of client %s", st.call.id, st.call.client)
	case st.client != "":
		who = "client " + st.client
	}
	return fmt.Sprintf("%s (token %d)", who, st.token)
}

// application tells what a finding came to in the application: who entered without a
// grant, and which two were inside at a time. With calls it is about these.
func (v *view) application(key string, calls map[int]bool) []string {
	var mine []*stay
	about := func(st *stay) bool { return len(calls) == 0 || st.call != nil && calls[st.call.id] }
	var out []string
	for _, st := range v.stays {
		if st.key != key {
			continue
		}
		mine = append(mine, st)
		if why := v.ungranted(st); why != "" && about(st) {
			out = append(out, fmt.Sprintf("%s entered at %s without a grant: %s", st, ms(st.in.at), why))
		}
	}
	for i, b := range mine {
		for _, a := range mine[:i] {
			if !a.out.before(b.in) && (about(a) || about(b)) {
				out = append(out, v.bothInside(a, b))
			}
		}
	}
	return out[:min(len(out), maxApplication)]
}

// ungranted tells why an entry had no grant; "" if it had one, or that is not known.
func (v *view) ungranted(st *stay) string {
	if !v.policy.SawTable {
		return ""
	}
	g := v.grantOf(st.key, st.token)
	switch {
	case g == nil || !g.before(st.in):
		return fmt.Sprintf("the server had granted no such token; the key was %s", v.state(st.key, st.in.ord))
	case st.client != "" && g.session != nil && g.session.client != st.client, st.client != "" && g.peer == "":
		return fmt.Sprintf("that token had been granted to %s", g.holder())
	case g.end.before(st.in) && g.how == history.Expired:
		return fmt.Sprintf("its lease had ended at %s; the key was %s", ms(g.end.at), v.state(st.key, st.in.ord))
	case g.end.before(st.in):
		return fmt.Sprintf("its grant had been released at %s; the key was %s", ms(g.end.at), v.state(st.key, st.in.ord))
	case st.call != nil && !v.blind(st.client, st.in.ord) && !v.delivered(st):
		return "the server had granted that token, but no whole A with it had been delivered"
	}
	return ""
}

// delivered tells whether a whole A with the token of a stay had begun to be written
// to the client before it went in.
func (v *view) delivered(st *stay) bool {
	return slices.ContainsFunc(v.sessionsOf(st.client), func(s *session) bool {
		return slices.ContainsFunc(s.delivered(), func(f *wireFrame) bool {
			t, _, ok := f.field(fieldToken)
			return ok && t == st.token && f.isOp(opAcquired) && f.end().before(st.in) && f.whole
		})
	})
}

// bothInside tells of two stays that overlap, b being the later one.
func (v *view) bothInside(a, b *stay) string {
	line := fmt.Sprintf("%s and %s were both inside from %s on", a, b, ms(b.in.at))
	until := slices.MinFunc([]moment{v.outOf(a), v.outOf(b)}, func(x, y moment) int { return x.ord - y.ord })
	if d := since(b.in, until); d >= time.Millisecond {
		line += ", for " + ms(d)
	}
	for _, st := range []*stay{a, b} {
		if st.refused {
			line += fmt.Sprintf("; a resource that checks tokens refuses token %d", st.token)
		}
	}
	return line
}

// outOf is when a stay ended, or the end of the history.
func (v *view) outOf(st *stay) moment {
	if st.out.happened() {
		return st.out
	}
	return moment{len(v.events), v.events[len(v.events)-1].At}
}
