package verify

import (
	"fmt"
	"slices"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/server/stub"
)

// serverID is the first word of the greeting. With a nonce of 16 digits the
// line has 26 bytes in every case, so that its offsets are fixed.
const serverID = "tornwire"

const (
	greetingTail = len(serverID) + 1 + 16
	authTail     = 43 // base64url of a SHA-256, without padding
)

// Workload is what the tool's application does in a case, and the exchange
// that this makes on the wire.
type Workload struct {
	ID         string
	Sentence   string
	Dialects   []string // empty: all
	FirstToken uint64   // of the embedded server; 0: its default
	QueueLimit int      // of the embedded server; 0: its default
	Nodes      int      // of a cluster with one table in place of the embedded server; 0: a server alone
	Smoke      bool     // part of the smoke sweep
	Alone      bool     // it stops its adapter, and so has one to itself
	Own        *OwnFault
	// Only restricts the faults that are swept; nil for all.
	Only func(t *faults.Type, x Expected) bool
	// Args are the arguments of swept faults, by their ids.
	Args map[string]faults.Args
	// EachSession: the case's frame is meant on every session, not once a case.
	EachSession bool
	// Exchange lists the frames that a right client's run without a fault can
	// contain, in order.
	Exchange func(g *frames.Grammar) []Expected
	Run      func(r *caseRun)
	// Control is the run without a fault, where Run without its own fault would
	// not do.
	Control func(r *caseRun)
	// Anywhere: it can run in front of a server that is not ours, by what acquireOwn,
	// keepAlive and the like do there.
	Anywhere bool
	// Needs is, where it cannot, what only the embedded server gives.
	Needs string
	// Probe: there is no client in it, only connections of the tool's own, by which the
	// server is judged and nobody else.
	Probe bool
	// Stub puts a scripted server in front of the embedded one, for what no right
	// server does. What it does accuses no server, and the table, which did not decide
	// all that the client was told, is not seen.
	Stub func(g *frames.Grammar) []stub.Step

	play *Play // somebody else tells it
}

// OwnFault is the one fault of a workload that withholds by itself; it is swept
// with no other.
type OwnFault struct {
	Fault string
	Frame FrameID
	At    int
	Args  faults.Args
	// Each gives the arguments by client, where they differ; the fault then acts on
	// the first such frame of each of these clients.
	Each map[string]faults.Args
	// AtEnd: the fault acts behind the frame, whose size depends on the dialect.
	AtEnd bool
	// Payload builds what is injected, if that depends on a request. The run has no
	// rule then until the workload arms one with interject, when the request has come.
	Payload func(g *frames.Grammar, q request) []byte
}

// holdsEach tells whether the workload's own fault is meant on every client that
// gets a frame like f.
func (w *Workload) holdsEach(f FrameID) bool {
	return w.EachSession && w.Own != nil && f.Dir == w.Own.Frame.Dir && f.Op == w.Own.Frame.Op
}

// Expected is a frame of an exchange.
type Expected struct {
	Frame FrameID
	Size  int    // in bytes; 0 for a connection
	Tail  string // of a message
	Token uint64 // of the answer to a release, where it is fixed
	// Client and ClientNth say whose connection an open is: its nth.
	Client    string
	ClientNth int
}

// Knows tells whether the workload exists in a dialect.
func (w *Workload) Knows(dialect string) bool {
	return len(w.Dialects) == 0 || slices.Contains(w.Dialects, dialect)
}

// bound says why the workload cannot run in front of a server that is not ours.
func (w *Workload) bound() string {
	return fmt.Sprintf("it needs %s, which only the embedded server gives", w.Needs)
}

// Workloads lists all workloads that are swept.
func Workloads() []*Workload { return slices.Clone(workloads) }

var workloads = slices.Concat([]*Workload{
	single, immediate, expired, lateReply, contended, timesOut, fullQueue, pipelined, lateGrant,
	halfClose, keepAlive, reconnect, lateConnect,
}, strayWorkloads, sessionWorkloads, clusterWorkloads, paceWorkloads, tableWorkloads, nearWorkloads)

// WorkloadByID finds a workload, also one with a story in its name.
func WorkloadByID(id string) (*Workload, bool) {
	for _, w := range append(Workloads(), sanity) {
		if w.ID == id {
			return w, true
		}
	}
	if w, _, err := storyByID(id); err == nil {
		return w, true
	}
	return nil, false
}

// exchange builds the list of a workload's frames.
type exchange struct {
	g    *frames.Grammar
	nth  map[string]int
	list []Expected
}

func newExchange(g *frames.Grammar) *exchange { return &exchange{g: g, nth: map[string]int{}} }

// session adds the connection and the preface of client cN's only session N.
func (x *exchange) session(n int) *exchange { return x.sessionOf(n, fmt.Sprintf("c%d", n), 1) }

// sessionOf adds the connection and the preface of session n, a client's nth.
func (x *exchange) sessionOf(n int, client string, nth int) *exchange {
	s := n
	if n == 1 {
		s = 0
	}
	x.list = append(x.list, Expected{
		Frame: FrameID{Session: s, Dir: frames.ClientToServer, Op: opOpen, Nth: 1}, Client: client, ClientNth: nth,
	})
	x.add(FrameID{Session: s, Dir: frames.ServerToClient, Op: opGreeting, Nth: 1}, greetingTail)
	x.add(FrameID{Session: s, Dir: frames.ClientToServer, Op: opAuth, Nth: 1}, authTail)
	return x
}

// c2s adds a request, s2c a reply, with a tail.
func (x *exchange) c2s(op, tail string) *exchange { return x.frame(frames.ClientToServer, op, tail) }

func (x *exchange) s2c(op, tail string) *exchange { return x.frame(frames.ServerToClient, op, tail) }

// token says which token the frame added last carries.
func (x *exchange) token(t uint64) *exchange {
	x.list[len(x.list)-1].Token = t
	return x
}

func (x *exchange) frame(dir frames.Direction, op, tail string) *exchange {
	k := dir.String() + op
	x.nth[k]++
	x.add(FrameID{Dir: dir, Op: op, Nth: x.nth[k]}, len(tail))
	x.list[len(x.list)-1].Tail = tail
	return x
}

// keepAlive adds a lone newline of the server.
func (x *exchange) keepAlive() *exchange {
	x.nth[frames.OpKeepAlive]++
	x.list = append(x.list, Expected{
		Frame: FrameID{Dir: frames.ServerToClient, Op: frames.OpKeepAlive, Nth: x.nth[frames.OpKeepAlive]}, Size: 1,
	})
	return x
}

func (x *exchange) add(f FrameID, tail int) *exchange {
	x.list = append(x.list, Expected{Frame: f, Size: x.g.MustShape(f.Dir, f.Op).Size(tail)})
	return x
}

// current tells whether the dialect is the current one, which has owners,
// immediate attempts and exact-token releases.
func current(g *frames.Grammar) bool { return g.Name == dialectCurrent }

const (
	dialectCurrent = "ticketing"
	dialectV0      = "ticketing-v0"
)

const second = time.Second
