import test from 'ava';
import { letOthersIn, noteConnection } from '../turns.ts';

/** Notes a connection in each turn of the event loop, as Node takes them, until it is told to end. */
function connecting(turnsMax: number) {
  let turns = 0;
  const connect = () => {
    if (turns === turnsMax) return;
    turns += 1;
    noteConnection();
    setImmediate(connect);
  };
  connect();
  return {
    get turns() {
      return turns;
    },
    stop: () => {
      turnsMax = turns;
    },
  };
}

test('work goes on once no caller connects any more', async t => {
  const callers = connecting(20);
  await letOthersIn();
  t.is(callers.turns, 20);
});

test('work goes on beside callers who connect without end', async t => {
  const callers = connecting(Number.POSITIVE_INFINITY);
  await letOthersIn();
  callers.stop();
  t.true(callers.turns > 1);
});
