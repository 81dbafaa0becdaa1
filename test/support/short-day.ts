/** Preloaded: timers of 20 s or more end after 0.5 s. */
import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';

const LONG_MS = 20_000;
const SHORT_MS = 500;
const short = (ms: number | undefined) => ((ms ?? 0) < LONG_MS ? ms : SHORT_MS);

for (const name of ['setTimeout', 'setInterval'] as const) {
  const real = globalThis[name] as (...args: unknown[]) => unknown;
  const shortened = (run: unknown, ms?: number, ...args: unknown[]) =>
    real(run, short(ms), ...args);
  Object.assign(globalThis, { [name]: Object.assign(shortened, real) });
}
const delay = timers.setTimeout;
timers.setTimeout = ((ms, ...rest) => delay(short(ms), ...rest)) as typeof delay;
syncBuiltinESMExports();
