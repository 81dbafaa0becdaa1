/**
 * Waits of tests. Each has a short bound. One that runs out says what it waited for, and what is
 * still held if the test knows: a leak has a name within seconds. Once a wait of a file has run out
 * the later ones are a tenth as long, or a leak at the bottom of fifty tests took fifty bounds.
 */

// Taken before a test replaces the clock.
const { setImmediate, setTimeout, setInterval, clearInterval } = globalThis;

/** Names what a wait is for, such as `the call to end`; functions run when the wait ran out. */
type What = string | (() => string);

const SECONDS_MAX = 10;
/** A file in which a wait has run out waits so much shorter: it fails already. */
const SHORTER = 0.1;
const LOOK_MS = 5;
/** The first looks come at once, so that a short wait costs nothing. */
const QUICK_LOOKS = 200;
const TICK_MS = 100;

let hasRunOut = false;
const boundOf = (seconds: number) => (hasRunOut ? seconds * SHORTER : seconds);

/** Resolves when the condition holds. @throws Error after 10 s */
export async function until(what: What, holds: () => boolean | Promise<boolean>): Promise<void> {
  const seconds = boundOf(SECONDS_MAX);
  // Counted in looks: a machine that stands still takes none.
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
 * Settles as the promise does.
 * @param secondsMax more than 10 if a process has to start or end before
 * @throws Error once they have passed
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
