import test from 'ava';
import { noteConnection, yieldToEventLoop } from '../event-loop.ts';

/** Notes a connection in each tick of the event loop, as Node accepts them, up to a number. */
function connecting(ticksMax: number) {
  let ticks = 0;
  const connect = () => {
    if (ticks === ticksMax) return;
    ticks += 1;
    noteConnection();
    setImmediate(connect);
  };
  connect();
  return {
    get ticks() {
      return ticks;
    },
    stop: () => {
      ticksMax = ticks;
    },
  };
}

test('work continues once no caller connects', async t => {
  const callers = connecting(20);
  await yieldToEventLoop();
  t.is(callers.ticks, 20);
});

test('work continues while callers connect without end', async t => {
  const callers = connecting(Number.POSITIVE_INFINITY);
  await yieldToEventLoop();
  callers.stop();
  t.true(callers.ticks > 1);
});
