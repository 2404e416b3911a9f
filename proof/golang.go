package proof

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

type golang struct{}

func (golang) comment() string { return "//" }

func (golang) binding(c Case) string {
	words := make([]string, len(c.Command))
	for i, s := range c.Command {
		words[i] = strconv.Quote(s)
	}
	return `import ("encoding/json"; "os/exec")
type object map[string]any
var adapter, answers, ask = exec.Command(` + strings.Join(words, ", ") + `), map[float64]chan object{}, func(float64, object) object { return nil }
func connect(addr string) {
	in, _ := adapter.StdinPipe(); out, _ := adapter.StdoutPipe(); if err := adapter.Start(); err != nil { panic(err) }
	go func() { for d, a := json.NewDecoder(out), (object{}); d.Decode(&a) == nil; a = nil { if a["type"] != "started" { lock(func() { answers[a["id"].(float64)] <- a }) } }; panic("the adapter has ended, or wrote what is not JSON") }()
	ask = func(id float64, q object) object {
		q["id"] = id
		c, line := make(chan object, 1), []byte{}; line, _ = json.Marshal(q)
		lock(func() { answers[id] = c; io.WriteString(in, string(line)+"\n") })
		return <-c
	}
	ask(0, object{"type": "init", "version": 1, "dialect": ` + strconv.Quote(c.Dialect) + `})
	ask(1, object{"type": "open", "client": "c1", "addresses": []string{addr}, "secret": ""})
}
func acquire(n int, key string, wait, lease float64) [2]string {
	a := ask(float64(10+n), object{"type": "acquire", "client": "c1", "key": key, "wait": wait, "lease": lease})
	return [2]string{a["outcome"].(string), fmt.Sprint(a["token"])}
}
func release(n int) string { return ask(float64(20+n), object{"type": "release", "client": "c1", "call": 10 + n})["outcome"].(string) }`
}

func (v golang) text(head, binding string, w *writer, c Case) string {
	imports, rest := hoisted(binding, func(l string) bool { return strings.HasPrefix(l, "import ") })
	var b strings.Builder
	b.WriteString(head + "package proof\nimport (\"bufio\"; \"encoding/hex\"; \"fmt\"; \"io\"; \"net\"; \"strings\"; \"sync\"; \"testing\"; \"time\")\n" + imports)
	b.WriteString("// The library: connect(addr), acquire(n, key, wait, lease) [2]string{outcome, token}, release(n) outcome; times are seconds.\n")
	b.WriteString(rest)
	b.WriteString(`type request struct { c *net.TCPConn; op byte; head []byte; taken bool }
var ( mu sync.Mutex; seen []*request; told, freed, left = map[int][2]string{}, map[int]string{}, map[net.Conn]bool{}; _, _, _ = fmt.Sprint, hex.Dump, strings.Repeat )
func lock(f func()) { mu.Lock(); defer mu.Unlock(); f() }
func serve(c *net.TCPConn) { // says only what the script below says
	io.WriteString(c, "tornwire 0000000000000000\n")
	in := bufio.NewReader(c)
	in.ReadString('\n') // the digest of secret and nonce
	for op, err := in.ReadByte(); err == nil; op, err = in.ReadByte() {
		r := &request{c: c, op: op, head: make([]byte, map[byte]int{` + fmt.Sprintf("'A': %d, 'R': %d", w.fixed("A"), w.fixed("R")) + `}[op])}
		if io.ReadFull(in, r.head); op != '\n' { in.ReadString('\n'); lock(func() { seen = append(seen, r) }) }
	}
	lock(func() { left[c] = true })
}
func until(limit time.Duration, done func() bool) (ok bool) {
	for end := time.Now().Add(limit); !ok && time.Now().Before(end); time.Sleep(5 * time.Millisecond) { lock(func() { ok = done() }) }
	return ok
}
func fresh(op byte, take bool) (r *request) { for _, x := range seen { if r == nil && x.op == op && !x.taken { r, x.taken = x, take } }; return r }
func want(op byte, limit time.Duration) (r *request) { until(limit, func() bool { r = fresh(op, true); return r != nil }); return r }
`)
	if w.has(doSend) {
		owner := "r.head[:0]"
		if w.owned() {
			owner = "r.head[2:]"
		}
		fmt.Fprintf(&b, "func send(r *request, text string, from, to int) { b, _ := hex.DecodeString(strings.ReplaceAll(text, \"*\", hex.EncodeToString(%s))); r.c.Write(b[from:to]) }\n", owner)
	}
	b.WriteString("func TestProof(t *testing.T) {\n")
	b.WriteString("l, _ := net.ListenTCP(\"tcp\", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})\n")
	if w.silent > 0 {
		fmt.Fprintf(&b, "n := 0 // connection %d never gets ready\n", w.silent)
		fmt.Fprintf(&b, "go func() { for c, err := l.AcceptTCP(); err == nil; c, err = l.AcceptTCP() { if n++; n != %d { go serve(c) } } }()\n", w.silent)
	} else {
		b.WriteString("go func() { for c, err := l.AcceptTCP(); err == nil; c, err = l.AcceptTCP() { go serve(c) } }()\n")
	}
	fmt.Fprintf(&b, "time.AfterFunc(%d*time.Second, func() { panic(\"the client or its adapter hangs\") })\nconnect(l.Addr().String())\n", w.longest())
	w.render(&b, "; ", func(l line) string { return v.line(l, c) })
	b.WriteString("}\n")
	return b.String()
}

func (golang) line(l line, c Case) string {
	limit := goTime(l.limit)
	fail := fmt.Sprintf("{ t.Fatal(%s) }", strconv.Quote(sentence(c)))
	isTold := fmt.Sprintf("func() bool { return told[%d][0] != \"\" }", l.n)
	switch l.kind {
	case doCall:
		return fmt.Sprintf("go func() { a := acquire(%d, %s, %v, %v); lock(func() { told[%d] = a }) }()", l.n, strconv.Quote(l.key), l.wait.Seconds(), l.lease.Seconds(), l.n)
	case doWant:
		if l.optional {
			return fmt.Sprintf("r%d := want('%s', %s); _ = r%d // or none", l.req, l.op, limit, l.req)
		}
		end := "Fatal"
		if l.req > 1 {
			end = "Skip"
		}
		return fmt.Sprintf("r%d := want('%s', 5*time.Second); if r%d == nil { t.%s(%q) }", l.req, l.op, l.req, end, l.absent())
	case doSend:
		return fmt.Sprintf("if r%d != nil { send(r%d, %q, %d, %d) }", l.req, l.req, l.text, l.from, l.to)
	case doFIN:
		return fmt.Sprintf("if r%d != nil { r%d.c.CloseWrite() }", l.req, l.req)
	case doRST:
		return fmt.Sprintf("if r%d != nil { r%d.c.SetLinger(0); r%d.c.Close() }", l.req, l.req, l.req)
	case doTold:
		return fmt.Sprintf("until(%s, %s)", limit, isTold)
	case doRelease:
		return fmt.Sprintf("if told[%d][0] == \"acquired\" { go func() { a := release(%d); lock(func() { freed[%d] = a }) }() }", l.n, l.n, l.n)
	case doFreed:
		return fmt.Sprintf("until(%s, func() bool { return freed[%d] != \"\" })", limit, l.n)
	case doSleep:
		return fmt.Sprintf("time.Sleep(%s)", limit)
	case checkNot:
		also := ""
		if l.token != "" {
			also = fmt.Sprintf(" && told[%d][1] == %q", l.n, l.token)
		}
		return fmt.Sprintf("if told[%d][0] == %q%s %s", l.n, l.outcome, also, fail)
	case checkFreed:
		return fmt.Sprintf("if freed[%d] == %q %s", l.n, l.outcome, fail)
	case checkNoMore:
		return fmt.Sprintf("if until(%s, func() bool { return fresh('%s', false) != nil }) %s", limit, l.op, fail)
	case checkToken:
		return fmt.Sprintf("if told[%d] != [2]string{\"acquired\", %q} %s", l.n, l.token, fail)
	case checkHead:
		return fmt.Sprintf("if fmt.Sprintf(\"%%x\", r%d.head) != %q %s", l.req, l.text, fail)
	case checkEnds:
		return fmt.Sprintf("if !until(%s, %s) %s", limit, isTold, fail)
	default:
		return fmt.Sprintf("if !until(%s, func() bool { for _, r := range seen { if r.op == 'R' && fmt.Sprintf(\"%%x\", r.head) == %q { return true } }; return left[r%d.c] }) %s", limit, l.text, l.req, fail)
	}
}

// goTime writes a time as a Go expression.
func goTime(d time.Duration) string { return fmt.Sprintf("%d*time.Millisecond", d.Milliseconds()) }
