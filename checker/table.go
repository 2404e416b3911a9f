package checker

import (
	"fmt"
	"time"

	"tornwire/history"
)

// grant is one grant of a key in the server's table.
type grant struct {
	moment
	key      string
	token    uint64
	owner    uint64
	hasOwner bool
	wait     time.Duration
	lease    time.Duration
	peer     string
	session  *session // that carried it; nil for the tool's own, or if unknown
	call     *call    // that it was made for, if that is known
	end      moment
	how      string
	endPeer  string
}

// live tells whether the grant held its key at an order number.
func (g *grant) live(ord int) bool {
	return g.ord < ord && (!g.end.happened() || g.end.ord > ord)
}

// holder names whose grant it is.
func (g *grant) holder() string {
	switch {
	case g.call != nil:
		return fmt.Sprintf("call %d of client %s", g.call.id, g.call.client)
	case g.session != nil && g.session.client != "":
		return "client " + g.session.client
	case g.peer == "":
		return "the tool's own holder"
	}
	return "the peer " + g.peer
}

func (v *view) tableEvent(e *history.Event, m moment) {
	if !v.policy.SawTable {
		return
	}
	switch e.Kind {
	case history.Granted:
		v.grants = append(v.grants, &grant{
			moment: m, key: e.Key, token: e.Token, owner: e.Owner, hasOwner: e.HasOwner, wait: e.Wait, lease: e.Lease, peer: e.Peer,
		})
	case history.GrantEnded:
		for _, g := range v.grants {
			if g.key == e.Key && g.token == e.Token && !g.end.happened() {
				g.end, g.how, g.endPeer = m, e.How, e.Peer
				return
			}
		}
	case history.Queued, history.AttemptEnded:
		v.queued = append(v.queued, e)
	}
}

// nameGrants says which session and which call each grant was made for, where
// that can be told: by the server's peer, then by the attempt with its owner or
// key, else by the token that a call was told.
func (v *view) nameGrants() {
	for _, g := range v.grants {
		if g.peer == "" {
			continue
		}
		g.session = v.peers[g.peer]
		if g.session == nil {
			continue
		}
		for _, c := range v.calls {
			if c.client != g.session.client || c.key != g.key {
				continue
			}
			if c.outcome == history.OutcomeAcquired && c.hasToken && c.token == g.token {
				g.call = c
				break
			}
			if g.call == nil && v.asks(c, g) {
				g.call = c
			}
		}
	}
}

// asks tells whether g must be the grant of an attempt of c.
func (v *view) asks(c *call, g *grant) bool {
	for _, a := range c.attempts {
		if a.session == g.session.id && a.only() == c && a.end().before(g.moment) &&
			(!g.hasOwner || !a.hasOwner || g.owner == a.owner) {
			return !c.hasToken || c.token == g.token
		}
	}
	return false
}

func (v *view) grantOf(key string, token uint64) *grant {
	for _, g := range v.grants {
		if g.key == key && g.token == token {
			return g
		}
	}
	return nil
}

// state describes a key in the server's table at an order number; "" if the
// table was not seen.
func (v *view) state(key string, ord int) string {
	if !v.policy.SawTable || key == "" {
		return ""
	}
	for _, g := range v.grants {
		if g.key == key && g.live(ord) {
			return fmt.Sprintf("held by %s, token %d, since %s", g.holder(), g.token, ms(g.at))
		}
	}
	return "free"
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond))
}
