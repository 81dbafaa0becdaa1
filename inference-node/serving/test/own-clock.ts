import type { Ending } from '@matting/test-support/temporary-folder.ts';
import sinon from 'sinon';

const TIMERS = ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] as const;

/** Time that passes by itself, and which the test may put forward; until the test ends. */
export function ownClock(context: Ending, { measured = false } = {}) {
  const clock = sinon.useFakeTimers({
    now: Date.now(),
    toFake: measured ? [...TIMERS, 'performance', 'Date'] : [...TIMERS],
    shouldAdvanceTime: true,
    shouldClearNativeTimers: true,
  });
  context.teardown(() => clock.restore());
  return clock;
}
