/** The store's pauses between two tries, over at once: what they are for is another test's. */
import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';

export function shortenWaits(msMax: number): void {
  const wait = timers.setTimeout;
  timers.setTimeout = (ms = 0, value, options) => wait(Math.min(ms, msMax), value, options);
  // Without this call, modules keep the function that they imported.
  syncBuiltinESMExports();
}
