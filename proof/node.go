package proof

import (
	"fmt"
	"strings"
)

type node struct{}

func (node) comment() string { return "//" }

func (node) binding(c Case) string {
	cmd := c.Command
	return `import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
const adapter = spawn(` + quoted(cmd[0]) + `, ` + quoted(append([]string{}, cmd[1:]...)) + `, { stdio: ['pipe', 'pipe', 'inherit'] }), answers = new Map();
for (const e of ['error', 'close']) adapter.on(e, () => broken('the adapter has ended'));
adapter.stdin.on('error', () => {});
createInterface({ input: adapter.stdout }).on('line', (l) => { const a = JSON.parse(l); if (a.type !== 'started') answers.get(a.id)(a); });
const ask = (id, type, more) => new Promise((done) => {
  answers.set(id, done);
  adapter.stdin.write(JSON.stringify({ type, id, ...more }) + '\n');
});
async function connect(addr) {
  await ask(0, 'init', { version: 1, dialect: ` + quoted(c.Dialect) + ` });
  await ask(1, 'open', { client: 'c1', addresses: [addr], secret: '' });
}
const acquire = (n, key, wait, lease) => ask(10 + n, 'acquire', { client: 'c1', key, wait, lease });
const release = async (n) => (await ask(20 + n, 'release', { client: 'c1', call: 10 + n })).outcome;`
}

func (v node) text(head, binding string, w *writer, c Case) string {
	imports, rest := hoisted(binding, func(l string) bool { return strings.HasPrefix(l, "import ") })
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("// It is a module for Node 18.3 or later (.mjs); the exit code is 0 if the client is right, 1 if it is not, 2 if that cannot be told.\n")
	b.WriteString("import net from 'node:net';\nimport { setTimeout as sleep } from 'node:timers/promises';\n" + imports)
	fmt.Fprintf(&b, "const broken = (why) => { console.error(why); process.exit(2); }; process.on('uncaughtException', broken); setTimeout(broken, %d000, 'the client or its adapter hangs');\n", w.longest())
	b.WriteString("// The library: connect(addr), acquire(n, key, wait, lease) -> { outcome, token }, release(n) -> outcome; all are promises.\n")
	b.WriteString(rest)
	fmt.Fprintf(&b, "const seen = [], told = {}, freed = {}, left = new Set(), fixed = { A: %d, R: %d };\n", w.fixed("A"), w.fixed("R"))
	b.WriteString("const server = net.createServer({ allowHalfOpen: true }, (c) => { // says only what the script below says\n")
	if w.silent > 0 {
		fmt.Fprintf(&b, "  if ((server.count = (server.count ?? 0) + 1) === %d) return; // a connection that never gets ready\n", w.silent)
	}
	b.WriteString(`  let buf = '', ready = false; // one character a byte
  c.write('tornwire 0000000000000000\n');
  c.on('error', () => {}).on('close', () => left.add(c)).on('end', () => left.add(c)).on('data', (d) => {
    buf += d.toString('latin1');
    for (;;) {
      if (ready) buf = buf.replace(/^\n+/, ''); // keep-alives
      const size = ready ? fixed[buf[0]] + 1 : 0, end = buf.indexOf('\n', size);
      if (buf === '' || end < 0) return;
      if (ready) seen.push({ c, op: buf[0], head: Buffer.from(buf.slice(1, size), 'latin1').toString('hex') });
      [buf, ready] = [buf.slice(end + 1), true]; // the first line was the digest of secret and nonce
    }
  });
});
async function until(ms, done) { for (const end = Date.now() + ms; !done() && Date.now() < end;) await sleep(5); return done(); }
const fresh = (op) => seen.find((r) => r.op === op && !r.taken);
const want = async (op, ms) => (await until(ms, () => fresh(op))) && Object.assign(fresh(op), { taken: true });
`)
	if w.has(doSend) {
		owner := "''"
		if w.owned() {
			owner = "r.head.slice(4)"
		}
		fmt.Fprintf(&b, "const send = (r, text, start, end) => r?.c.write(Buffer.from(text.replace('*', %s), 'hex').subarray(start, end));\n", owner)
	}
	b.WriteString("const start = (into, n, f, ...args) => f(n, ...args).then((x) => { into[n] = x; });\n")
	b.WriteString("const check = (ok, why) => ok || (console.log('FAIL:', why), process.exit(1));\n")
	b.WriteString("await new Promise((done) => server.listen(0, '127.0.0.1', done));\nawait connect(`127.0.0.1:${server.address().port}`);\n")
	w.render(&b, " ", func(l line) string { return v.line(l, c) })
	b.WriteString("console.log('ok'); process.exit(0);\n")
	return b.String()
}

func (node) line(l line, c Case) string {
	ms := l.limit.Milliseconds()
	why := quoted(sentence(c))
	switch l.kind {
	case doCall:
		return fmt.Sprintf("start(told, %d, acquire, %s, %v, %v);", l.n, quoted(l.key), l.wait.Seconds(), l.lease.Seconds())
	case doWant:
		if l.optional {
			return fmt.Sprintf("const r%d = await want('%s', %d); // or none", l.req, l.op, ms)
		}
		end := "broken('" + l.absent() + "')"
		if l.req > 1 {
			end = "process.exit(console.log('" + l.absent() + "'))"
		}
		return fmt.Sprintf("const r%d = (await want('%s', 5000)) || %s;", l.req, l.op, end)
	case doSend:
		return fmt.Sprintf("send(r%d, '%s', %d, %d);", l.req, l.text, l.from, l.to)
	case doFIN:
		return fmt.Sprintf("r%d?.c.end();", l.req)
	case doRST:
		return fmt.Sprintf("r%d?.c.resetAndDestroy();", l.req)
	case doTold:
		return fmt.Sprintf("await until(%d, () => told[%d]);", ms, l.n)
	case doRelease:
		return fmt.Sprintf("if (told[%d]?.outcome === 'acquired') start(freed, %d, release);", l.n, l.n)
	case doFreed:
		return fmt.Sprintf("await until(%d, () => freed[%d]);", ms, l.n)
	case doSleep:
		return fmt.Sprintf("await sleep(%d);", ms)
	case checkNot:
		also := ""
		if l.token != "" {
			also = fmt.Sprintf(" || told[%d].token !== '%s'", l.n, l.token)
		}
		return fmt.Sprintf("check(told[%d]?.outcome !== '%s'%s, %s);", l.n, l.outcome, also, why)
	case checkFreed:
		return fmt.Sprintf("check(freed[%d] !== '%s', %s);", l.n, l.outcome, why)
	case checkNoMore:
		return fmt.Sprintf("check(!(await until(%d, () => fresh('%s'))), %s);", ms, l.op, why)
	case checkToken:
		return fmt.Sprintf("check(told[%d]?.outcome === 'acquired' && told[%d].token === '%s', %s);", l.n, l.n, l.token, why)
	case checkHead:
		return fmt.Sprintf("check(r%d.head === '%s', %s);", l.req, l.text, why)
	case checkEnds:
		return fmt.Sprintf("check(await until(%d, () => told[%d]), %s);", ms, l.n, why)
	default:
		return fmt.Sprintf("check(await until(%d, () => left.has(r%d.c) || seen.some((r) => r.op === 'R' && r.head === '%s')), %s);", ms, l.req, l.text, why)
	}
}
