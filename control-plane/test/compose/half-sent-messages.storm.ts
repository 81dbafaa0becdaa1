/**
 * 9,000 messages to /mcp of three accounts that stop half-way, in two waves, at a control plane in a
 * memory group of the chart's size: it stays far below it, and another account is served meanwhile.
 * Needs: mcp.
 */
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { submitTo } from '@matting/core/test/support/replicas.ts';
import { startMain } from '@matting/core/test/support/started-main.ts';
import { imageBody } from '@matting/core/test/support/test-app.ts';
import { openFilesMax } from '@matting/program/ports/listening.ts';
import { MemoryGroup, skipWithoutMemoryGroups } from '@matting/test-support/memory-group.ts';
import ava from 'ava';
import { openCaller } from '../fixtures.ts';

const test = ava.serial;

const MIB = 1024 * 1024;
const GROUP_BYTES = 1024 * MIB;
const PEAK_BYTES_MAX = 768 * MIB;
const MESSAGES = 9000;
const WAVES = 2;
const OPENING_MAX = 64;
const CALLS = 30;
/** A call that does not end ends the storm. */
const ANSWER_MS_MAX = 20_000;
const HALF = `{"a":${' '.repeat(60_000)}`;

const filesMax = openFilesMax() ?? Number.POSITIVE_INFINITY;
const fewFiles = filesMax < 1.1 * MESSAGES && `only ${filesMax} files may be open`;
const skip = fewFiles || skipWithoutMemoryGroups();

/** Opens all of them once, and holds those that are let. */
async function openWave(port: number, tokens: readonly string[]): Promise<() => void> {
  const sockets: net.Socket[] = [];
  const one = async (number: number) => {
    const socket = net
      .connect(port, '127.0.0.1')
      .on('error', () => undefined)
      .resume();
    sockets.push(socket);
    const head = [
      'POST /mcp HTTP/1.1',
      'Host: x',
      `Authorization: Bearer ${tokens[number % tokens.length]}`,
      'Content-Type: application/json',
      'Content-Length: 70000',
    ];
    await new Promise<void>(resolve => {
      socket.once('close', () => resolve());
      socket.write(`${head.join('\r\n')}\r\n\r\n${HALF}`, () => resolve());
    });
  };
  let next = 0;
  const lane = async () => {
    while (next < MESSAGES) await one(next++);
  };
  await Promise.all(Array.from({ length: OPENING_MAX }, lane));
  return () => {
    for (const socket of sockets) socket.destroy();
  };
}

/** Takes the median of the calls' milliseconds. It throws where a call is refused or does not end. */
async function timeOf(origin: string, token: string): Promise<number> {
  const times: number[] = [];
  for (let call = 0; call < CALLS; call += 1) {
    const beganMs = performance.now();
    const signal = AbortSignal.timeout(ANSWER_MS_MAX);
    const answer = await submitTo(origin, token, imageBody(), { signal });
    await answer.arrayBuffer();
    if (answer.status !== 202) throw new Error(`a good caller was answered with ${answer.status}`);
    times.push(performance.now() - beganMs);
  }
  return times.toSorted((one, other) => one - other)[CALLS / 2] ?? 0;
}

test.skipIf(skip !== false)(
  'half-sent messages leave memory to others, and a good caller is served meanwhile',
  async t => {
    const group = new MemoryGroup('half-sent', GROUP_BYTES);
    const main = await startMain(
      {
        MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
        MATTING_JOBS_IN_FLIGHT_MAX: '1000000',
        MATTING_QUEUE_MEGAPIXELS_MAX: '1000000',
        MATTING_NODES_ON_DEMAND: 'true',
      },
      undefined,
      group.within,
    );
    try {
      const { http: port } = await main.line<{ http: number }>('listening');
      const origin = `http://127.0.0.1:${port}`;
      const tokens: string[] = [];
      for (let account = 0; account < 3; account += 1) {
        tokens.push(await openCaller(main.databaseUrl, 10));
      }
      const good = await openCaller(main.databaseUrl, 1_000_000);
      await timeOf(origin, good);
      const ratios: number[] = [];
      for (let wave = 0; wave < WAVES; wave += 1) {
        const alone = await timeOf(origin, good);
        const close = await openWave(port, tokens);
        ratios.push((await timeOf(origin, good)) / alone);
        t.log(`wave ${wave + 1}: ${(group.peakBytes / MIB).toFixed(0)} MiB at most`);
        close();
        await delay(1000);
      }
      t.log(`the good caller takes ${ratios.map(ratio => ratio.toFixed(2)).join(', ')} times`);
      t.is(group.kills, 0);
      t.true(group.peakBytes < PEAK_BYTES_MAX, `${group.peakBytes} bytes at most`);
    } finally {
      await main.stop();
      group.remove();
    }
  },
);
