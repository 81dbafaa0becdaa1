/** A doctor's questions to other programs: for an HTTP answer, and whether a port is open. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { within } from '../waiting.ts';
import { wholeBody } from '../whole-body.ts';
import { reasonOf } from './findings.ts';

const ANSWER_MS_MAX = 5000;
/** A control plane's metrics are some 100 KB. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024;

interface HttpAnswer {
  readonly status: number;
  readonly text: string;
}

/** One GET, without a secret. Undefined: nobody answered, or not within the bounds. */
export async function askHttp(url: string): Promise<HttpAnswer | undefined> {
  try {
    const signal = AbortSignal.timeout(ANSWER_MS_MAX);
    const answer = await fetch(url, { signal, redirect: 'error' });
    const tooLong = () => new Error('the answer is too long');
    const whole = await wholeBody(answer.body ?? [], ANSWER_BYTES_MAX, tooLong);
    return { status: answer.status, text: whole.toString('utf8') };
  } catch {
    return undefined;
  }
}

const CONNECT_MS_MAX = 3000;
const PORT_MAX = 65_535;

/** Why no connection is made; undefined: one was, and is closed again. */
export async function connectionFailureOf(address: string): Promise<string | undefined> {
  const at = address.lastIndexOf(':');
  const host = address.slice(0, at).replace(/^\[(.*)\]$/, '$1');
  const port = Number(address.slice(at + 1));
  if (!(port > 0 && port <= PORT_MAX)) return `the port must be 1 to ${PORT_MAX}`;
  const socket = connect({ host, port });
  try {
    const tooLate = () => new Error(`no answer in ${CONNECT_MS_MAX} ms`);
    await within(once(socket, 'connect'), CONNECT_MS_MAX, tooLate);
    return undefined;
  } catch (error) {
    return reasonOf(error);
  } finally {
    socket.destroy();
  }
}
