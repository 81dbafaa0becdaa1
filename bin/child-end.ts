/**
 * Bounded waits for children: one asleep in the kernel ignores SIGKILL, and a dead one may have
 * left its pipes to a process of its own.
 */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';

export interface ChildEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** For the last output of an ended child. */
const LAST_WORDS_MAX_MS = 1000;
/** Longest wait after SIGKILL. */
export const KILL_MAX_MS = 5000;

/** Resolves when the child is gone and its output read. Call it right after the spawn. */
export async function endOf(child: ChildProcess): Promise<ChildEnd> {
  const closed = new Promise<void>(resolve => child.once('close', () => resolve()));
  const end = await new Promise<ChildEnd>(resolve => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    // The owner handles the start's error.
    child.on('error', () => {
      if (child.pid === undefined) resolve({ code: null, signal: null });
    });
  });
  await withinMs(LAST_WORDS_MAX_MS, closed);
  letGo(child);
  return end;
}

/** @returns true if it is gone by then; otherwise nobody waits for it any more */
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

export async function withinMs(maxMs: number, work: Promise<unknown>): Promise<boolean> {
  const over = new AbortController();
  const timeUp = delay(maxMs, false, { signal: over.signal }).catch(() => false);
  try {
    return await Promise.race([work.then(() => true), timeUp]);
  } finally {
    over.abort();
  }
}

/** Closes all handles of the child, so that it does not keep this process running. */
function letGo(child: ChildProcess): void {
  if (child.connected) child.disconnect();
  for (const stream of child.stdio ?? []) stream?.destroy();
  child.unref();
}
