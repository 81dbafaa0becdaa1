import { get } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { CommandError } from 'matting-client/src/command/command-error.ts';

/** A first start takes many seconds on a slow CPU. */
export const READY_TIMEOUT_MS = 300_000;
const READY_POLL_MS = 50;
const ANSWER_TIMEOUT_MS = 5000;

/** Resolves when `url` answers 200. @throws CommandError */
export async function untilOk(
  url: string,
  signal: AbortSignal,
  maxMs: number = READY_TIMEOUT_MS,
): Promise<void> {
  const deadline = Date.now() + maxMs;
  while (Date.now() < deadline) {
    signal.throwIfAborted();
    if (await answersOk(url, signal)) return;
    await delay(READY_POLL_MS, undefined, { signal });
  }
  throw new CommandError(`the service was not ready within ${maxMs / 1000} s; see its logs`);
}

/** Uses node:http: fetch would load a library while everything else needs the cores. */
function answersOk(url: string, signal: AbortSignal): Promise<boolean> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]);
  return new Promise(resolve => {
    const request = get(url, { agent: false, signal: within }, answer => {
      answer.resume();
      resolve(answer.statusCode === 200);
    });
    // Not listening yet. The programs' exits end the wait if they never will.
    request.once('error', () => resolve(false));
  });
}
