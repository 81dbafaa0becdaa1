/**
 * Short bounded waits whose error says what was waited for. After a file's first timeout, later
 * waits are a tenth as long, so that one leak does not cost fifty timeouts.
 */

// Taken before a test replaces the clock.
const { setImmediate, setTimeout, setInterval, clearInterval } = globalThis;

/** Such as `the call to end`; a function is called after the timeout. */
type What = string | (() => string);

const SECONDS_MAX = 10;
/** Factor for waits after a file's first timeout. */
const SHORTER = 0.1;
const LOOK_MS = 5;
/** The first polls come at once, so that a short wait costs nothing. */
const QUICK_LOOKS = 200;
const TICK_MS = 100;

let hasRunOut = false;
const boundOf = (seconds: number) => (hasRunOut ? seconds * SHORTER : seconds);

/** Resolves when the condition holds. @throws Error after 10 s */
export async function until(what: What, holds: () => boolean | Promise<boolean>): Promise<void> {
  const seconds = boundOf(SECONDS_MAX);
  // Polls, not time: a stalled machine polls nothing.
  const looksMax = (seconds * 1000) / LOOK_MS;
  for (let looks = -QUICK_LOOKS; !(await holds()); looks += 1) {
    if (looks > looksMax) throw inVain(what, seconds);
    await new Promise<void>(resolve => {
      if (looks < 0) setImmediate(resolve);
      else setTimeout(resolve, LOOK_MS);
    });
  }
}

/**
 * @param secondsMax more than 10 if a process has to start or end first
 * @throws Error on timeout
 */
export async function soon<T>(
  what: What,
  promise: Promise<T>,
  secondsMax = SECONDS_MAX,
): Promise<T> {
  const late = Promise.withResolvers<never>();
  const seconds = boundOf(secondsMax);
  let ticks = 0;
  const timer = setInterval(() => {
    ticks += 1;
    if (ticks * TICK_MS > seconds * 1000) late.reject(inVain(what, seconds));
  }, TICK_MS);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearInterval(timer);
  }
}

function inVain(what: What, seconds: number): Error {
  hasRunOut = true;
  return new Error(`waited ${seconds} s for ${typeof what === 'string' ? what : what()}`);
}
