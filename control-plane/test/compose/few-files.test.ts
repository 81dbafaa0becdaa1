/** A control plane that may open few files: it says so, and takes no more connections than fit. */
import assert from 'node:assert/strict';
import net from 'node:net';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startMain } from '../support/started-main.ts';

const FILES_MAX = 256;
/** Silent ones, more than there may be files. */
const STRANGERS = 400;

const skip = process.platform !== 'linux';
test('few open files are said, and silent connections close it to nobody', { skip }, async () => {
  const main = await startMain({}, FILES_MAX);
  const strangers: net.Socket[] = [];
  try {
    const { http: port, connectionsMax } = await main.line<{ http: number }>('listening');
    assert.equal(connectionsMax, FILES_MAX / 2);
    const few = await main.line('few files may be open');
    assert.deepEqual([few.connectionsMax, few.openFilesMax], [FILES_MAX / 2, FILES_MAX]);
    for (let count = 0; count < STRANGERS; count += 1) {
      strangers.push(net.connect(port, '127.0.0.1').on('error', () => undefined));
    }
    // Who came first made room for the last.
    while (strangers.some(({ connecting }) => connecting)) await delay(10);
    for (let count = 0; count < 24; count += 1) {
      const headers = { connection: 'close' };
      const answer = await fetch(`http://127.0.0.1:${port}/livez`, { headers });
      assert.equal(answer.status, 200);
    }
  } finally {
    for (const socket of strangers) socket.destroy();
    await main.stop();
  }
});
