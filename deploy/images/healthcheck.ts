/**
 * Asks the program of its own container how it is, without curl: exits 0 where the answer is 200,
 * else 1 with one line. matting-healthcheck, made by assemble.sh, gives it host and port.
 *   node healthcheck.ts HOST PORT [livez|readyz]
 */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';

const [host = '', port = '', page = 'livez'] = process.argv.slice(2);
/** Below the time-out of the image's HEALTHCHECK, so that the line is seen. */
const ANSWER_MAX_MS = 4000;

/** An address that means every interface is reached by loopback. */
function reachable(): string {
  if (host === '' || host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

async function check(): Promise<string | undefined> {
  if (page !== 'livez' && page !== 'readyz') return `livez or readyz, not ${page}`;
  try {
    const signal = AbortSignal.timeout(ANSWER_MAX_MS);
    // An agent of its own takes no proxy from the environment.
    const request = get(`http://${reachable()}:${port}/${page}`, { signal, agent: false });
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    const text = (await answer.toArray()).join('').slice(0, 500);
    return answer.statusCode === 200 ? undefined : `${page} ${answer.statusCode} ${text}`;
  } catch (error) {
    const { cause, message } = error as Error;
    return cause instanceof Error ? cause.message : message;
  }
}

const problem = await check();
if (problem !== undefined) console.error(problem);
process.exit(problem === undefined ? 0 : 1);
