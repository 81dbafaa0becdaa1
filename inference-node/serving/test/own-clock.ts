import { makeTimersDisposable } from '@matting/test-support/disposable-timers.ts';
import type { Ending } from '@matting/test-support/temporary-folder.ts';
import sinon from 'sinon';

const TIMERS = ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] as const;

/** Runs by itself until the test ends, and the test can put it forward. */
export function ownClock(context: Ending, { measured = false } = {}) {
  const clock = sinon.useFakeTimers({
    now: Date.now(),
    toFake: measured ? [...TIMERS, 'performance', 'Date'] : [...TIMERS],
    shouldAdvanceTime: true,
    shouldClearNativeTimers: true,
  });
  context.teardown(() => clock.restore());
  makeTimersDisposable();
  return clock;
}
