// tornwire adapter around the public client saro-ticketing, unmodified.
// The protocol is spec/adapter.md: JSON Lines on stdin and stdout, nothing else on stdout.
import { readFileSync } from 'node:fs';
import { TicketBroker } from 'saro-ticketing';

const DIALECT = 'ticketing-v0';
const MAX_LINE = 64 * 1024; // bytes in the protocol; characters are near enough to stop a flood
const MAX_RAW = 4096;
const MAX_SPENT = 4096; // released tickets that can be released again
const READY_SECONDS = 4; // acquire fails at once while no connection is up

const library = JSON.parse(readFileSync(new URL('./node_modules/saro-ticketing/package.json', import.meta.url)));
console.log = console.info = console.debug = console.error; // stdout belongs to the protocol

let pending = '';
let blocked = false;
function send(message) {
  if (pending === '') queueMicrotask(flush);
  pending += JSON.stringify(message) + '\n';
}
function flush() {
  if (blocked || pending === '') return;
  const batch = pending;
  pending = '';
  if (process.stdout.write(batch)) return;
  blocked = true;
  process.stdout.once('drain', () => {
    blocked = false;
    flush();
  });
}

const brokers = new Map(); // client name → broker; it cannot be closed, so it stays
const held = new Map(); // call id → { client, ticket }
const spent = new Map(); // the same, released at least once, oldest first
let dialect;

const raw = (text) => String(text).slice(0, MAX_RAW);
const words = (err) => raw(err?.kind ? `${err.name} ${err.kind}: ${err.message}` : String(err));
const seconds = (value) => Number.isFinite(value) && value >= 0;
const fail = (id, detail) => send({ type: 'error', id, detail });
const unsupported = (id, detail) => send({ type: 'unsupported', id, detail });
const result = (id, outcome, rest) => send({ type: 'result', id, outcome, ...rest });
const refuse = (id, why) => result(id, 'error', { raw: raw(`adapter: ${why}`) });

// Every look for a connection that is up, waitReady's too, makes the library begin its next one at another of them. Which
// of them a call goes to would hang on how long connecting took, so the number of looks is kept even.
async function ready(broker) {
  const until = performance.now() + READY_SECONDS * 1000;
  let up = false;
  for (let looks = 0; looks % 2 === 1 || (!up && performance.now() < until); looks++) {
    if (looks > 0 && !up) await new Promise((resolve) => setTimeout(resolve, 10));
    up = await broker.waitReady(0); // one look
  }
}

const requests = {
  init({ id, version, dialect: wanted }) {
    if (version !== 1) return fail(id, 'this adapter speaks protocol version 1');
    dialect = wanted;
    send({
      type: 'init_ok', id, client: `${library.name} ${library.version}`,
      dialects: [DIALECT], features: [], outcomes: ['acquired', 'timeout', 'error'],
    });
  },

  async open({ id, client, addresses, secret }) {
    if (dialect !== DIALECT) return fail(id, `init has not chosen ${DIALECT}`);
    if (typeof client !== 'string' || brokers.has(client)) return fail(id, 'the client needs a name of its own');
    if (!Array.isArray(addresses) || addresses.length === 0) return fail(id, 'open without addresses');
    let broker;
    try {
      broker = new TicketBroker({ addrs: addresses, token: secret ?? '' });
    } catch (err) {
      return fail(id, words(err));
    }
    brokers.set(client, null); // taken; open for acquires once it was given time to connect
    await ready(broker);
    brokers.set(client, broker);
    send({ type: 'open_ok', id });
  },

  async acquire({ id, client, key, wait, lease }) {
    const broker = brokers.get(client);
    if (!broker) return refuse(id, `client ${client} is not open`);
    if (!seconds(wait) || !seconds(lease)) return refuse(id, 'wait and lease must be seconds');
    send({ type: 'started', id });
    try {
      const ticket = await broker.acquire(key, wait, lease);
      held.set(id, { client, ticket });
      result(id, 'acquired', { token: ticket.token.toString() });
    } catch (err) {
      result(id, err?.kind === 'timeout' ? 'timeout' : 'error', { raw: words(err) });
    }
  },

  async release({ id, client, call }) {
    const entry = held.get(call) ?? spent.get(call);
    if (entry?.client !== client) return refuse(id, `call ${call} of client ${client} holds no ticket`);
    if (held.delete(call)) spent.set(call, entry);
    if (spent.size > MAX_SPENT) spent.delete(spent.keys().next().value);
    try {
      const was = await entry.ticket.release();
      result(id, was ? 'released' : 'not_held', { raw: String(was) });
    } catch (err) {
      result(id, 'error', { raw: words(err) });
    }
  },

  cancel: ({ id }) => unsupported(id, 'the library has no cancel'),
  close: ({ id }) => unsupported(id, 'the library has no close'),
  ping: ({ id }) => send({ type: 'pong', id }),
};

function handle(line) {
  if (line.trim() === '') return;
  let request;
  try {
    request = JSON.parse(line);
  } catch (err) {
    return console.error(`adapter: request ignored: ${err.message}`);
  }
  if (!Number.isSafeInteger(request?.id) || request.id < 0) return console.error('adapter: request without an id ignored');
  if (!Object.hasOwn(requests, request.type)) return unsupported(request.id, `unknown request type ${raw(request.type)}`);
  requests[request.type](request); // what it throws is a defect of the adapter: node prints it and exits 1
}

// Not node:readline: it also splits at U+2028, which JSON strings may contain.
let rest = '';
let skipping = false;
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop();
  for (const line of lines) {
    if (!skipping && line.length < MAX_LINE) handle(line);
    else console.error(`adapter: a line of more than ${MAX_LINE} bytes ignored`);
    skipping = false;
  }
  if (rest.length >= MAX_LINE) {
    rest = '';
    skipping = true;
  }
});
// The library reconnects for ever, so the process has to be ended.
process.stdin.on('end', () => {
  if (!skipping) handle(rest);
  setTimeout(() => process.exit(0), 1000); // in case nobody reads the last answers
  queueMicrotask(() => {
    const last = pending;
    pending = '';
    process.stdout.write(last, () => process.exit(0));
  });
});
