import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';

export function shortenWaits(msMax: number): void {
  const wait = timers.setTimeout;
  timers.setTimeout = (ms = 0, value, options) => wait(Math.min(ms, msMax), value, options);
  // Modules would otherwise keep the imported function.
  syncBuiltinESMExports();
}
