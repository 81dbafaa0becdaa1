/**
 * The end of a child, waited for with a bound: one that sleeps in the kernel ignores SIGKILL, and
 * one that is gone may have left its pipes to a process of its own that does.
 */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';

export interface ChildEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The time in which the last output of a child that ended is read. */
const LAST_WORDS_MAX_MS = 1000;
/** The time after SIGKILL until the parent stops waiting for a child. */
export const KILL_MAX_MS = 5000;

/** Resolves when it is gone and what it wrote is read. To be called as soon as it is spawned. */
export async function endOf(child: ChildProcess): Promise<ChildEnd> {
  const closed = new Promise<void>(resolve => child.once('close', () => resolve()));
  const end = await new Promise<ChildEnd>(resolve => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    // Why it could not be started is its owner's to read.
    child.on('error', () => {
      if (child.pid === undefined) resolve({ code: null, signal: null });
    });
  });
  await withinMs(LAST_WORDS_MAX_MS, closed);
  letGo(child);
  return end;
}

/** @returns whether it is gone by then. One that is not is let go: nothing of it is waited for. */
export async function killWithin(
  child: ChildProcess,
  end: Promise<ChildEnd>,
  killMaxMs = KILL_MAX_MS,
): Promise<boolean> {
  child.kill('SIGKILL');
  if (await withinMs(killMaxMs, end)) return true;
  letGo(child);
  return false;
}

/** Whether `work` was over before the time was. */
export async function withinMs(maxMs: number, work: Promise<unknown>): Promise<boolean> {
  const over = new AbortController();
  const timeUp = delay(maxMs, false, { signal: over.signal }).catch(() => false);
  try {
    return await Promise.race([work.then(() => true), timeUp]);
  } finally {
    over.abort();
  }
}

/** Closes what ties it to this process, so that it does not keep it up. */
function letGo(child: ChildProcess): void {
  if (child.connected) child.disconnect();
  for (const stream of child.stdio ?? []) stream?.destroy();
  child.unref();
}
