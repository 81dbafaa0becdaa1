/** Places of readers of result links: what a few accounts hold leaves room for another's. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContractError } from '#contract/errors.ts';
import { ResultReaders } from '../../../src/services/reading/result-download.ts';

const BOUNDS = { linkMax: 2, accountMax: 8, max: 16 };

/** Takes places for links of the account until it is refused; says with which code. */
function fill(readers: ResultReaders, accountId: string) {
  for (let job = 0; ; job += 1) {
    try {
      readers.enter({ jobId: `${accountId}-${job}`, accountId });
    } catch (error) {
      return { held: job, code: (error as ContractError).code };
    }
  }
}

test('an account alone reads as much as one account may', () => {
  assert.deepEqual(fill(new ResultReaders(BOUNDS), 'a'), { held: 8, code: 'RATE_LIMITED' });
});

test('accounts that take all they can leave a place for one that comes', () => {
  const readers = new ResultReaders(BOUNDS);
  fill(readers, 'a');
  assert.deepEqual(fill(readers, 'b'), { held: 4, code: 'SERVICE_UNAVAILABLE' });
  assert.deepEqual(fill(readers, 'c'), { held: 2, code: 'SERVICE_UNAVAILABLE' });
  assert.deepEqual(fill(readers, 'd'), { held: 1, code: 'SERVICE_UNAVAILABLE' });
  assert.equal(readers.open, 15);
  const leave = readers.enter({ jobId: 'e-0', accountId: 'e' });
  leave();
  leave();
  assert.equal(readers.open, 15);
});

test('a link has its own bound, and a place that was left can be taken again', () => {
  const readers = new ResultReaders(BOUNDS);
  const link = { jobId: 'job', accountId: 'a' };
  readers.enter(link);
  const leave = readers.enter(link);
  assert.throws(() => readers.enter(link), { code: 'RATE_LIMITED' });
  leave();
  readers.enter(link);
});
