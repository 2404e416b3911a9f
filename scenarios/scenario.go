// Package scenarios holds scenarios: failures as stories that a test engineer writes. A
// scenario names a server, clients and rules, tells in steps what happens, and says what
// is expected of it. It is read from TOML, checked as a whole before any socket opens, and
// run by the same engine, judged by the same oracle, as a case of package verify.
package scenarios

import (
	"time"

	"tornwire/faults"
)

// Limits of a scenario.
const (
	MaxSource  = 1 << 20 // bytes of its text
	MaxSteps   = 200
	MaxClients = 16
	MaxNodes   = 9
	MaxRules   = 64
	MaxExpects = 64
	MaxWithin  = 5 * time.Minute // of a condition
	MaxTimeout = 30 * time.Minute
	// DefaultWithin is how long a condition is waited for that does not say.
	DefaultWithin = 10 * time.Second
	// DefaultTimeout is how long a run may take whose scenario does not say.
	DefaultTimeout = time.Minute
)

// Scenario is one that was read and checked. It is not changed afterwards.
type Scenario struct {
	Name    string // [a-z0-9-]+, at most 64 bytes
	About   string // one sentence: what it shows
	Clause  string // of the client contract that it is about, such as "3.5" (spec/ticketing.md); "": none
	Dialect string // of a built-in grammar
	Profile string // checker.ProfileAny, or ProfileOfficial, the default where all clients are the reference client
	Busy    string // checker.Busy…
	Seed    uint64
	Timeout time.Duration

	Server  Server
	Proxies []Proxy
	Clients []Client
	Rules   []Rule
	Steps   []Step
	Expect  []Expectation

	// Source is the text that it was read from, File where that was; Lines of what errors
	// and results point at are kept with each part.
	Source, File string

	gates []string // that its rules name, by name
}

// ServerKind says what stands behind the proxies.
type ServerKind string

// The kinds of servers.
const (
	Embedded ServerKind = "embedded" // the lock server of this tool, one node
	Cluster  ServerKind = "cluster"  // nodes with one table, of which the first leads
	Upstream ServerKind = "upstream" // one that is there already; its table is not seen
)

// Server is what stands behind the proxies. A scenario without one has an Embedded one.
type Server struct {
	Kind       ServerKind
	Nodes      int    // of a Cluster, 2 to MaxNodes
	FirstToken uint64 // of an Embedded or a Cluster; 0: its default
	QueueLimit int    // likewise
	Address    string // of an Upstream, HOST:PORT or unix:/PATH
	SecretFile string // of an Upstream, relative to the scenario's file
	Line       int
}

// Proxy is an address at which clients reach a node. A scenario without one has a proxy
// for each node, named "n1", "n2", and so on.
type Proxy struct {
	Name   string
	Node   int    // from 1
	Listen string // HOST:PORT; "": any free port. Only one client can use a proxy with one
	Line   int
}

// ClientKind says who plays a client.
type ClientKind string

// The kinds of clients.
const (
	Reference ClientKind = "reference" // the client of this tool, or the adapter that a run is given in its place
	Adapter   ClientKind = "adapter"   // a program that speaks the adapter protocol
	Command   ClientKind = "command"   // a program that the run starts: the one behind "--", or its own
	Anyone    ClientKind = "anyone"    // whoever connects
)

// Client is a client of a scenario. A scenario without one has a Reference named "c1", or,
// where the run is given a command, a Command.
type Client struct {
	Name    string
	Kind    ClientKind
	Command []string // of an Adapter; of a Command "" is the one behind "--"
	Proxies []string // that it knows, in this order; none: all
	Secret  string
	Line    int
}

// Rule is a rule of the proxies, as the REST API takes it.
type Rule struct {
	faults.Rule
	Client string // whose connections it is about; "": all
	Armed  bool   // from the start; else a step arms it
	Line   int
}

// Action is the word of a step.
type Action string

// The actions. The value of the word in TOML is what Step.Name holds.
const (
	DoOpen      Action = "open"      // a client: connects, as far as it does that unasked; clients without one are opened by their first acquire
	DoAcquire   Action = "acquire"   // a new call: Client asks for Key
	DoSettle    Action = "settle"    // a call: until it has ended
	DoEnter     Action = "enter"     // a call: the application goes in, if it is acquired
	DoLeave     Action = "leave"     // a call
	DoRelease   Action = "release"   // a call: asks for it, and waits for the result
	DoReleasing Action = "releasing" // a call: asks for it, and does not wait
	DoReleased  Action = "released"  // a call: until its release has ended, 6 s at most
	DoCancel    Action = "cancel"    // a call
	DoClose     Action = "close"     // a client
	DoHold      Action = "hold"      // a key: the tool's own holder acquires it
	DoTake      Action = "take"      // a key: it acquires it and enters
	DoFree      Action = "free"      // a key: it leaves, and releases it
	DoExpired   Action = "expired"   // a key: until no lease of it runs
	DoArm       Action = "arm"       // a rule
	DoDisarm    Action = "disarm"    // a rule
	DoGate      Action = "gate"      // a gate: is opened, which ends what is held until then
	DoShut      Action = "shut"      // a gate
	DoLead      Action = "lead"      // a proxy: its node leads from now on; "nobody": none does
	DoNotice    Action = "notice"    // a proxy: every node tells its clients by L that its node leads
	DoStandby   Action = "standby"   // a proxy: its node serves no more
	DoActive    Action = "active"    // a proxy: its node serves again
	DoPause     Action = "pause"     // a time
	DoWait      Action = "await"     // nothing but its condition; the value is a sentence for people
)

// Step is one step: what is waited for, then what is done.
type Step struct {
	When   *Condition // nil: at once
	Do     Action
	Name   string // of the client, call, key, rule, gate or proxy that it is about
	Client string // of an acquire
	Key    string // of an acquire
	Wait   time.Duration
	Lease  time.Duration // of an acquire
	Time   time.Duration // of a pause
	Line   int
}

// Condition is what a step waits for: Count times, within a time, something was recorded.
// Exactly one of Frame, Event, Fired and After is set.
type Condition struct {
	Frame  string        // "s2c.A": the last byte was received; "s2c.A.2": the second of its kind
	Event  string        // a kind of event (history.Kind)
	Fired  string        // a rule acted
	After  time.Duration // since the run began
	Client string        // of Frame and Event; "": any
	Call   string        // of Event; "": any
	Key    string        // of Event; "": any
	Count  int           // 1 if it is not said
	Within time.Duration
	Line   int
}

// Expectation is one thing that a run has to show. Exactly one of Verdict, Finding,
// NoFinding, Checked, Call, Fired, Frame and Event is set.
type Expectation struct {
	Verdict   string   // of the oracle: "safe", "unsafe", …
	Finding   string   // a rule that has to be broken for certain
	NoFinding string   // a rule that must not be; "*": any
	Checked   string   // a rule that has to have been judged
	Call      string   // with Outcomes
	Outcomes  []string // of which the call's has to be one
	Fired     string   // a rule; with Count
	Frame     string   // "c2s.A", of which there have to be Count; Client may narrow it
	Event     string   // a kind of event, of which there have to be Count; Client, Key may narrow it
	Client    string
	Key       string
	Count     Range // of Fired, Frame and Event; at least 1 if it is not said
	Line      int
}

// Range is how often something is expected: "2", "1..", "..3", "1..3".
type Range struct {
	Least, Most int // Most is -1 for no limit
}
