import { TicketBroker } from 'saro-ticketing';
let broker;
const tickets = new Map();
async function connect(addr) {
  broker = new TicketBroker({ addrs: [addr], token: '' });
  await broker.waitReady(4);
}
async function acquire(n, key, wait, lease) {
  try {
    tickets.set(n, await broker.acquire(key, wait, lease));
    return { outcome: 'acquired', token: String(tickets.get(n).token) };
  } catch (err) {
    return { outcome: err.kind === 'timeout' ? 'timeout' : 'error' };
  }
}
const release = async (n) => ((await tickets.get(n).release()) ? 'released' : 'not_held');
