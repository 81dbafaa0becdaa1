/** The pace of readers by a clock that the test turns; over real sockets the services test it. */
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Server } from 'node:http';
import { beforeEach, it, type TestContext } from 'node:test';
import { PACE_DEBT_MS_MAX, requireReadingPace } from '../http-guard.ts';

const SAMPLE_MS = 1000;

let nowMs: number;
let ended: string[];

/** A reader for whom 64 KiB wait, of which it takes none. */
class Reader {
  readonly bytesWritten = 65_536;
  readonly writableLength = 65_536;
  readonly destroy = (): void => undefined;
}

beforeEach(() => {
  nowMs = 0;
  ended = [];
});

function watchOne(t: TestContext): void {
  t.mock.timers.enable({ apis: ['setInterval'] });
  t.mock.method(performance, 'now', () => nowMs);
  const server = new EventEmitter();
  requireReadingPace(server as Server, { onEnded: cause => ended.push(cause) });
  server.emit('request', { socket: new Reader() }, new EventEmitter());
}

/** The next check of the readers, so long after the one before. */
function checkAfter(t: TestContext, elapsedMs: number): void {
  nowMs += elapsedMs;
  t.mock.timers.tick(SAMPLE_MS);
}

it('ends a reader that takes nothing for longer than it may', t => {
  watchOne(t);
  for (let ms = 0; ms < PACE_DEBT_MS_MAX; ms += SAMPLE_MS) checkAfter(t, SAMPLE_MS);
  assert.deepEqual(ended, []);
  checkAfter(t, SAMPLE_MS);
  assert.deepEqual(ended, ['slow_reader']);
});

it('holds no reader to the time in which the process stood still', t => {
  watchOne(t);
  checkAfter(t, 10 * PACE_DEBT_MS_MAX);
  assert.deepEqual(ended, []);
});
