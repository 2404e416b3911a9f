package wrongclient

import (
	"slices"
	"testing"
	"time"

	"tornwire/adapter"
)

const (
	firstNode  = "10.0.0.1:7000"
	secondNode = "10.0.0.2:7000"
	decoyNode  = "10.9.9.9:7000" // nobody gave it to the client
)

// saying has a node say something before it grants: to the first request on its first
// session.
func saying(op, text string) func(*peer) {
	return onAcquire(func(k *link, r request) {
		if k.n == 1 && len(k.p.requestsNow("A")) == 1 {
			_ = k.send("raw", []byte(op+text+"\n"))
			time.Sleep(100 * time.Millisecond)
		}
		k.grant(r)
	})
}

// What each client makes of a word, and whether its session goes on.
func TestWordsOfTheCluster(t *testing.T) {
	for _, c := range []struct {
		defect, op, text string
		outcome          string
		token            uint64
		ends             bool
	}{
		{"", "M", secondNode, indeterminate, 0, true},
		{"", "M", decoyNode, indeterminate, 0, true},
		{"", "M", "", indeterminate, 0, true},
		{"", "L", secondNode, acquired, 7, false},
		{"", "L", decoyNode, acquired, 7, false},
		{"", "L", "", acquired, 7, false},
		{"", "E", "no_leader", indeterminate, 0, true},
		{"", "E", "not_active", indeterminate, 0, true},
		{"", "E", "auth_failed", indeterminate, 0, true},
		{"moved-keeps", "M", secondNode, acquired, 7, false},
		{"moved-keeps", "E", "no_leader", indeterminate, 0, true},
		{"moved-as-reply", "M", secondNode, timeout, 0, true},
		{"moved-as-reply", "L", secondNode, acquired, 7, false},
		{"leader-closes", "L", secondNode, indeterminate, 0, true},
		{"leader-as-reply", "L", secondNode, acquired, 0, true}, // by the grant that then comes
		{"error-keeps", "E", "no_leader", acquired, 7, false},
		{"error-keeps", "E", "not_active", acquired, 7, false},
		{"error-keeps", "E", "auth_failed", acquired, 7, false},
		{"error-keeps", "E", "bad_frame", indeterminate, 0, true},
		{"odd-reads-late", "M", secondNode, indeterminate, 0, true},
		{"odd-reads-late", "L", secondNode, acquired, 7, false},
	} {
		stage(t, dialectCurrent, c.defect, func(p *peer, cl adapter.Client) {
			r := <-p.begin(cl, testKey, time.Second)
			time.Sleep(200 * time.Millisecond)
			if r.Outcome != c.outcome || r.Token != c.token || p.endedAt(1).IsZero() == c.ends {
				t.Errorf("%+v: %+v, session ended at %v", c, r, p.endedAt(1))
			}
			late := time.Duration(0)
			if c.defect == "odd-reads-late" {
				late = readLate
			}
			if c.ends && c.outcome != acquired && r.at != late {
				t.Errorf("%+v: told after %v", c, r.at)
			}
		}, saying(c.op, c.text))
	}
}

// Which node is dialled after a word, with the back-offs over.
func TestWhereToAfterAWord(t *testing.T) {
	for _, c := range []struct{ defect, op, text, next string }{
		{"", "M", secondNode, secondNode},
		{"", "M", decoyNode, firstNode},
		{"moved-anywhere", "M", decoyNode, decoyNode},
		{"moved-anywhere", "M", secondNode, secondNode},
		{"moved-anywhere", "E", "no_leader", firstNode},
		{"odd-returns", "M", secondNode, firstNode},
	} {
		stage(t, dialectCurrent, c.defect, func(p *peer, cl adapter.Client) {
			<-p.begin(cl, testKey, time.Second)
			time.Sleep(time.Second)
			<-p.begin(cl, "next", time.Second)
			if d := p.dials(); len(d) < 2 || d[1] != c.next {
				t.Errorf("%+v: dialled %v", c, d)
			}
		}, saying(c.op, c.text))
	}
}

// no_leader drops what an L said; the other errors do not.
func TestErrorsAndTheHint(t *testing.T) {
	for _, c := range []struct{ defect, reason, next string }{
		{"", "no_leader", firstNode},
		{"", "not_active", secondNode},
		{"hint-sticky", "no_leader", secondNode},
	} {
		stage(t, dialectCurrent, c.defect, func(p *peer, cl adapter.Client) {
			<-p.begin(cl, testKey, time.Second)
			time.Sleep(time.Second)
			<-p.begin(cl, "next", time.Second)
			if d := p.dials(); !slices.Equal(d, []string{firstNode, c.next}) {
				t.Errorf("%+v: dialled %v", c, d)
			}
		}, onAcquire(func(k *link, r request) {
			if k.n > 1 {
				k.grant(r)
				return
			}
			_ = k.send("raw", []byte("L"+secondNode+"\nE"+c.reason+"\n"))
		}))
	}
}
