/** The picture at the sizes of further models, asked for after it was decoded. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import pino from 'pino';
import { at } from '../../../../test/support/at.ts';
import { openPicturePool } from '../../../src/picture/pool/open-picture-pool.ts';
import { asSharp, paintSlope } from '../pictures.ts';

const NEVER = new AbortController().signal;
const FIRST = { width: 16, height: 16 };
const FURTHER = { width: 7, height: 9 };
const png = await asSharp(paintSlope(40, 30)).png().toBuffer();

async function openLease(context: TestContext) {
  const log = pino({ level: 'silent' });
  const pool = await openPicturePool({ workers: 1, childEnv: {}, log });
  context.after(() => pool.close(0));
  const lease = await pool.acquire('sync', NEVER);
  const decode = (modelInputs = [FIRST]) =>
    lease.decode({ file: png, declared: undefined, modelInputs }, NEVER);
  return { pool, lease, decode, pid: at(pool.processes(), 0).pid };
}

test('a further model sees what it would have seen with the first', async context => {
  const { lease, decode } = await openLease(context);
  const { modelInputs } = await decode([FIRST, FURTHER]);
  for (const [index, size] of [FIRST, FURTHER].entries()) {
    const { rgb, resampleMs } = await lease.resample(size, NEVER);
    assert.deepEqual(rgb, modelInputs[index]);
    assert.ok(resampleMs > 0);
  }
});

test('nothing was decoded: a bug, and the worker is well after it', async context => {
  const { pool, lease, decode, pid } = await openLease(context);
  await assert.rejects(lease.resample(FURTHER, NEVER), { code: 'NODE_FAULT' });
  await decode();
  assert.equal((await lease.resample(FURTHER, NEVER)).rgb.length, 3 * 7 * 9);
  lease.release();
  assert.equal(at(pool.processes(), 0).pid, pid);
});

test('a caller that goes ends the worker, and a released one is not asked', async context => {
  const { pool, lease, decode } = await openLease(context);
  await decode();
  const caller = new AbortController();
  const gone = assert.rejects(lease.resample(FURTHER, caller.signal), /gone/);
  caller.abort(new Error('gone'));
  await gone;
  assert.equal(pool.ends().abandoned, 1);
  await assert.rejects(lease.resample(FURTHER, NEVER), { code: 'PICTURE_WORKER_LOST' });
  lease.release();
  await assert.rejects(lease.resample(FURTHER, NEVER), /after its release/);
});
