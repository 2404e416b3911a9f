package proof

import (
	"fmt"
	"strings"
)

type python struct{}

func (python) comment() string { return "#" }

func (python) binding(c Case) string {
	return `import collections, json, queue, subprocess
adapter = subprocess.Popen(` + quoted(c.Command) + `, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
answers = collections.defaultdict(queue.Queue)
def ask(n, kind, **more):
    print(json.dumps({"type": kind, "id": n, **more}), file=adapter.stdin, flush=True)
    while (a := answers[n].get())["type"] == "started": pass
    return a
def connect(addr):
    spawn(lambda: ([answers[a["id"]].put(a) for a in map(json.loads, adapter.stdout)], broken("the adapter has ended")))
    ask(0, "init", version=1, dialect=` + quoted(c.Dialect) + `)
    ask(1, "open", client="c1", addresses=[addr], secret="")
def acquire(n, key, wait, lease):
    a = ask(10 + n, "acquire", client="c1", key=key, wait=wait, lease=lease)
    return a["outcome"], a.get("token")
def release(n): return ask(20 + n, "release", client="c1", call=10 + n)["outcome"]`
}

func (p python) text(head, binding string, w *writer, c Case) string {
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("# It needs Python 3.8 or later; the exit code is 0 if the client is right, 1 if it is not, 2 if that cannot be told.\n")
	b.WriteString("import os, socket, struct, sys, threading, time, types\n")
	b.WriteString("def spawn(f, *args): threading.Thread(target=f, args=args, daemon=True).start()\n")
	b.WriteString("def broken(*why): print(*why, file=sys.stderr, flush=True); os._exit(2)\nsys.excepthook = threading.excepthook = broken; ")
	fmt.Fprintf(&b, "spawn(lambda: (time.sleep(%d), broken(\"the client or its adapter hangs\")))\n", w.longest())
	b.WriteString("# The library: connect(addr), acquire(n, key, wait, lease) -> outcome, token, release(n) -> outcome.\n")
	b.WriteString(binding + "\n")
	fmt.Fprintf(&b, "seen, told, freed, left, fixed = [], {}, {}, set(), {b\"A\": %d, b\"R\": %d}\n", w.fixed("A"), w.fixed("R"))
	b.WriteString("def serve(n, c):  # says only what the script below says\n    try:\n")
	if w.silent > 0 {
		fmt.Fprintf(&b, "        if n == %d: return  # a connection that never gets ready\n", w.silent-1)
	}
	b.WriteString(`        c.sendall(b"tornwire 0000000000000000\n")
        f = c.makefile("rb")
        f.readline()  # the digest of secret and nonce
        while op := f.read(1):
            if op != b"\n": seen.append(types.SimpleNamespace(c=c, op=op.decode(), head=f.read(fixed[op]), key=f.readline(), taken=False))
    except OSError: pass
    left.add(c)
def until(limit, done):
    end = time.monotonic() + limit
    while not done() and time.monotonic() < end: time.sleep(.005)
    return done()
def fresh(op): return next((r for r in seen if r.op == op and not r.taken), None)
def want(op, limit):
    r = until(limit, lambda: fresh(op))
    if r: r.taken = True
    return r
`)
	if w.has(doSend) {
		owner := "\"\""
		if w.owned() {
			owner = "r.head[2:].hex()"
		}
		fmt.Fprintf(&b, "def send(r, text, start, end):\n    try: r.c.sendall(bytes.fromhex(text.replace(\"*\", %s))[start:end])\n    except OSError: pass\n", owner)
	}
	if w.has(doRST) {
		b.WriteString("def rst(r):\n    r.c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(\"ii\", 1, 0))\n    r.c.shutdown(socket.SHUT_RD); os.close(r.c.detach())\n")
	}
	b.WriteString("def start(into, n, f, *args): spawn(lambda: into.update({n: f(n, *args)}))\n")
	b.WriteString("def check(ok, why): ok or (print(\"FAIL:\", why, flush=True), os._exit(1))\n")
	b.WriteString("server = socket.create_server((\"127.0.0.1\", 0)); spawn(lambda: [spawn(serve, n, c) for n, (c, _) in enumerate(iter(server.accept, None))])\n")
	b.WriteString("connect(\"127.0.0.1:%d\" % server.getsockname()[1])\n")
	w.render(&b, "; ", func(l line) string { return p.line(l, c) })
	b.WriteString("print(\"ok\", flush=True); os._exit(0)\n")
	return b.String()
}

func (python) line(l line, c Case) string {
	limit := fmt.Sprintf("%.4g", l.limit.Seconds())
	why := quoted(sentence(c))
	switch l.kind {
	case doCall:
		return fmt.Sprintf("start(told, %d, acquire, %s, %v, %v)", l.n, quoted(l.key), l.wait.Seconds(), l.lease.Seconds())
	case doWant:
		if l.optional {
			return fmt.Sprintf("r%d = want(%q, %s)  # or none", l.req, l.op, limit)
		}
		end := fmt.Sprintf("broken(%q)", l.absent())
		if l.req > 1 {
			end = fmt.Sprintf("(print(%q, flush=True), os._exit(0))", l.absent())
		}
		return fmt.Sprintf("r%d = want(%q, 5) or %s", l.req, l.op, end)
	case doSend:
		return fmt.Sprintf("if r%d: send(r%d, %q, %d, %d)", l.req, l.req, l.text, l.from, l.to)
	case doFIN:
		return fmt.Sprintf("if r%d and r%d.c not in left: r%d.c.shutdown(socket.SHUT_WR)", l.req, l.req, l.req)
	case doRST:
		return fmt.Sprintf("if r%d: rst(r%d)", l.req, l.req)
	case doTold:
		return fmt.Sprintf("until(%s, lambda: %d in told)", limit, l.n)
	case doRelease:
		return fmt.Sprintf("if told.get(%d, [\"\"])[0] == \"acquired\": start(freed, %d, release)", l.n, l.n)
	case doFreed:
		return fmt.Sprintf("until(%s, lambda: %d in freed)", limit, l.n)
	case doSleep:
		return fmt.Sprintf("time.sleep(%s)", limit)
	case checkNot:
		if l.token != "" {
			return fmt.Sprintf("check(told.get(%d) != (%q, %q), %s)", l.n, l.outcome, l.token, why)
		}
		return fmt.Sprintf("check(told.get(%d, [\"\"])[0] != %q, %s)", l.n, l.outcome, why)
	case checkFreed:
		return fmt.Sprintf("check(freed.get(%d) != %q, %s)", l.n, l.outcome, why)
	case checkNoMore:
		return fmt.Sprintf("check(not until(%s, lambda: fresh(%q)), %s)", limit, l.op, why)
	case checkToken:
		return fmt.Sprintf("check(told.get(%d) == (\"acquired\", %q), %s)", l.n, l.token, why)
	case checkHead:
		return fmt.Sprintf("check(r%d.head.hex() == %q, %s)", l.req, l.text, why)
	case checkEnds:
		return fmt.Sprintf("check(until(%s, lambda: %d in told), %s)", limit, l.n, why)
	default:
		return fmt.Sprintf("check(until(%s, lambda: r%d.c in left or any(r.op == \"R\" and r.head.hex() == %q for r in seen)), %s)", limit, l.req, l.text, why)
	}
}
