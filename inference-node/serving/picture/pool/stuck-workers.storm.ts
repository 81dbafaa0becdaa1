/** Killed workers that do not die, as with a hanging disk. */
import assert from 'node:assert/strict';
import { at } from '@matting/test-support/at.ts';
import { killStopped } from '@matting/test-support/stopped-cannot-be-killed.ts';
import test, { type ExecutionContext } from 'ava';
import pino from 'pino';
import { asSharp, paintSlope } from '../../test/pictures.ts';
import { untilPool } from '../../test/pool-harness.ts';
import { openPicturePool } from './open-picture-pool.ts';
import type { PictureLease, PicturePool } from './picture-pool.ts';

const NEVER = new AbortController().signal;
const MODEL_SIZE = { width: 16, height: 16 };
const png = await asSharp(paintSlope(40, 30)).png().toBuffer();

async function openPool(context: ExecutionContext, workers: number, killWaitMaxMs = 100) {
  const lines: { msg: string; workerPid?: number }[] = [];
  const log = pino({}, { write: line => void lines.push(JSON.parse(line)) });
  const pool = await openPicturePool({ workers, childEnv: {}, log, limits: { killWaitMaxMs } });
  context.teardown(() => pool.close(0));
  return { pool, lines };
}

function decode(lease: PictureLease, signal = NEVER) {
  return lease.decode({ file: png, declared: undefined, modelInputs: [MODEL_SIZE] }, signal);
}

/** Returns the process, which the test must end. */
async function loseImage(context: ExecutionContext, pool: PicturePool): Promise<number> {
  const before = pool.snapshot().workersStuck;
  const free = new Set(pool.processes().map(({ pid }) => pid));
  const lease = await pool.acquire('sync', NEVER);
  // The worker with the image is the first that is not stuck.
  const pid = at([...free], before);
  context.teardown(() => killStopped(pid));
  process.kill(pid, 'SIGSTOP');
  const caller = new AbortController();
  const given = assert.rejects(decode(lease, caller.signal), /the caller went away/);
  caller.abort(new Error('the caller went away'));
  await given;
  lease.release();
  return pid;
}

test('the image ends at once, counted, while its process is waited for', async t => {
  const { pool } = await openPool(t, 2, 3_600_000);
  const pid = await loseImage(t, pool);
  t.deepEqual([pool.ends().abandoned, pool.snapshot().busy], [1, 0]);
  const next = await pool.acquire('sync', NEVER);
  t.is((await decode(next)).width, 40);
  next.release();
  killStopped(pid);
});

test('the slot of a stuck worker stays empty until its process is gone', async t => {
  const { pool, lines } = await openPool(t, 2);
  const pid = await loseImage(t, pool);
  await untilPool(pool, () => pool.snapshot().workersStuck === 1);
  t.is(pool.snapshot().state, 'ready');
  t.true(lines.some(line => line.workerPid === pid && line.msg.endsWith('does not die')));
  const held = await pool.acquire('sync', NEVER);
  const waiting = pool.acquire('sync', NEVER);
  t.is(pool.snapshot().waiting, 1, 'one worker is left of two');
  killStopped(pid);
  (await waiting).release();
  held.release();
  t.is(pool.snapshot().workersStuck, 0);
  t.deepEqual(pool.ends().abandoned, 1, 'counted once');
});

test('more than half of the workers: the pool has failed, and closes all the same', async t => {
  const { pool } = await openPool(t, 2);
  await loseImage(t, pool);
  await untilPool(pool, () => pool.snapshot().workersStuck === 1);
  const pid = await loseImage(t, pool);
  const waiting = t.throwsAsync(pool.acquire('sync', NEVER), { code: 'NODE_UNAVAILABLE' });
  await untilPool(pool, () => pool.snapshot().state === 'failed');
  await waiting;
  t.regex(pool.snapshot().failure ?? '', new RegExp(`^process ${pid} of picture worker 1 `));
  await t.throwsAsync(pool.acquire('sync', NEVER), { code: 'NODE_UNAVAILABLE' });
  await pool.close(60_000);
  t.is(pool.processes().length, 2, 'they are named for who ends the node');
});

test('closing waits for no worker that does not die', async t => {
  const { pool } = await openPool(t, 1);
  const { pid } = at(pool.processes(), 0);
  t.teardown(() => killStopped(pid));
  const lease = await pool.acquire('sync', NEVER);
  process.kill(pid, 'SIGSTOP');
  const decoding = t.throwsAsync(decode(lease), { code: 'NODE_UNAVAILABLE' });
  await pool.close(0);
  await decoding;
});
