/** Whether a port can be reached from here. */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { reasonOf } from './findings.ts';

const CONNECT_MS_MAX = 3000;
const PORT_MAX = 65_535;

/** Why no connection is made; undefined: one was, and is closed again. */
export async function refusalOf(address: string): Promise<string | undefined> {
  const at = address.lastIndexOf(':');
  const host = address.slice(0, at).replace(/^\[(.*)\]$/, '$1');
  const port = Number(address.slice(at + 1));
  if (!(port > 0 && port <= PORT_MAX)) return `it names no port from 1 to ${PORT_MAX}`;
  const socket = connect({ host, port });
  const ended = new AbortController();
  const opened = new Promise<string | undefined>(resolve => {
    socket.once('connect', () => resolve(undefined));
    socket.once('error', error => resolve(reasonOf(error)));
  });
  const late = delay(CONNECT_MS_MAX, `no answer in ${CONNECT_MS_MAX} ms`, { signal: ended.signal });
  try {
    return await Promise.race([opened, late]);
  } finally {
    ended.abort();
    late.catch(() => undefined);
    socket.destroy();
  }
}
