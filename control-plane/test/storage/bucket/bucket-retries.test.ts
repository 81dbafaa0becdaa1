import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BucketRetries } from '../../../src/storage/bucket/bucket-retries.ts';

type Failure = Parameters<BucketRetries['refreshRetryTokenForRetry']>[1];

const TRANSIENT = { errorType: 'TRANSIENT' } as const;
const THROTTLING = { errorType: 'THROTTLING' } as const;

/** What is waited before each attempt, until there is no further one. */
async function waitsMs(retries: BucketRetries, failure: Failure): Promise<number[]> {
  const waits: number[] = [];
  let token = await retries.acquireInitialRetryToken();
  for (;;) {
    try {
      token = await retries.refreshRetryTokenForRetry(token, failure);
    } catch (error) {
      assert.match(String(error), /no further attempt/);
      return waits;
    }
    waits.push(token.getRetryDelay());
  }
}

describe('requests to a bucket', () => {
  it('are made again as often as they may, after longer and longer waits', async () => {
    assert.deepEqual(await waitsMs(new BucketRetries(4, () => 1), TRANSIENT), [100, 200, 400]);
    assert.deepEqual(await waitsMs(new BucketRetries(4, () => 0), TRANSIENT), [0, 0, 0]);
  });

  it('wait longer where the store asks for less, never above five seconds', async () => {
    const waits = await waitsMs(new BucketRetries(7, () => 1), THROTTLING);
    assert.deepEqual(waits, [500, 1000, 2000, 4000, 5000, 5000]);
  });

  it('wait as long as the store says, never above five seconds', async () => {
    const hint = (ms: number) => ({ ...TRANSIENT, retryAfterHint: new Date(Date.now() + ms) });
    const [asked] = await waitsMs(new BucketRetries(2, () => 0), hint(3000));
    assert.ok(asked !== undefined && asked > 2000 && asked <= 3000, `${asked}`);
    const [capped] = await waitsMs(new BucketRetries(2, () => 0), hint(60_000));
    assert.equal(capped, 5000);
  });

  const named = (name: string) =>
    ({ errorType: 'CLIENT_ERROR', error: Object.assign(new Error(name), { name }) }) as Failure;
  for (const name of ['BadDigest', 'IncompleteBody', 'ConditionalRequestConflict']) {
    it(`are made again after ${name}: what was refused is not what was sent`, async () => {
      assert.equal((await waitsMs(new BucketRetries(3), named(name))).length, 2);
    });
  }
  for (const name of ['AccessDenied', 'NoSuchKey', 'PreconditionFailed']) {
    it(`are not made again after ${name}`, async () => {
      assert.deepEqual(await waitsMs(new BucketRetries(3), named(name)), []);
    });
  }

  it('have attempts of their own: what others spent is not missing', async () => {
    const retries = new BucketRetries(3, () => 0);
    const counts: number[] = [];
    for (let request = 0; request < 50; request += 1) {
      counts.push((await waitsMs(retries, TRANSIENT)).length);
    }
    assert.deepEqual(new Set(counts), new Set([2]));
  });
});
