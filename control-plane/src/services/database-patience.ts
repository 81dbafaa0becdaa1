/** Writes that must not be lost to a database that is away for a moment. */
import { setTimeout as delay } from 'node:timers/promises';
import { ContractError } from '#contract/errors.ts';

const RETRY_WAIT_MIN_MS = 100;
const RETRY_WAIT_MAX_MS = 2000;
/** Longer than a database's restart or fail-over; then the lease's expiry is the way on. */
const PATIENCE_MS_MAX = 120_000;

/**
 * Repeats an operation that is safe to repeat while the store says that it is not available, until
 * `giveUp` aborts or the patience ends; then, and on any other error, it rejects with the last one.
 * One try is always made.
 */
export async function withDatabasePatience<T>(
  operation: () => Promise<T>,
  giveUp: AbortSignal,
): Promise<T> {
  const startedAtMs = performance.now();
  let waitMs = RETRY_WAIT_MIN_MS;
  for (;;) {
    try {
      return await operation();
    } catch (error) {
      const away = error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE';
      const late = performance.now() - startedAtMs >= PATIENCE_MS_MAX;
      if (!away || late || giveUp.aborted) throw error;
      // Rejects when it is told to give up: one last try follows.
      await delay(waitMs, undefined, { signal: giveUp }).catch(() => undefined);
      waitMs = Math.min(RETRY_WAIT_MAX_MS, waitMs * 2);
    }
  }
}
