/** With a fake clock. The services test readers over real sockets. */
import { EventEmitter } from 'node:events';
import type { Server } from 'node:http';
import ava, { type ExecutionContext } from 'ava';
import sinon, { type SinonFakeTimers } from 'sinon';
import { PACE_DEBT_MS_MAX, requireReadingPace } from '../reader-pace.ts';

const test = ava.serial;
const SAMPLE_MS = 1000;
let nowMs: number;
let endedFor: string[];
let timers: SinonFakeTimers;

/** A reader with 64 KiB waiting, of which it takes none. */
class Reader {
  readonly bytesWritten = 65_536;
  readonly writableLength = 65_536;
  readonly destroy = (): void => undefined;
}

function watchOne(t: ExecutionContext): void {
  [nowMs, endedFor] = [0, []];
  timers = sinon.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const now = sinon.stub(performance, 'now').callsFake(() => nowMs);
  t.teardown(() => {
    now.restore();
    timers.restore();
  });
  const server = new EventEmitter();
  requireReadingPace(server as Server, { onEnded: cause => endedFor.push(cause) });
  server.emit('request', { socket: new Reader() }, new EventEmitter());
}

function checkAfter(elapsedMs: number): void {
  nowMs += elapsedMs;
  timers.tick(SAMPLE_MS);
}

test('the pace of readers › ends a reader that takes nothing for longer than it may', t => {
  watchOne(t);
  for (let ms = 0; ms < PACE_DEBT_MS_MAX; ms += SAMPLE_MS) checkAfter(SAMPLE_MS);
  t.deepEqual(endedFor, []);
  checkAfter(SAMPLE_MS);
  t.deepEqual(endedFor, ['slow_reader']);
});

test('the pace of readers › holds no reader to the time in which the process stood still', t => {
  watchOne(t);
  checkAfter(10 * PACE_DEBT_MS_MAX);
  t.deepEqual(endedFor, []);
});
