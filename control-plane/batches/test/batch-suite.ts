import assert from 'node:assert/strict';
import {
  bounded,
  type Exercise,
  exercisesOf,
  OPEN_READS_MAX,
  OPEN_WHY,
  TABLES,
} from '@matting/core/test/exercise.ts';
import { assertBalanced, claimed, IMAGE_FAULT, LIMITS } from '@matting/core/test/fixtures.ts';
import type { MethodSuite } from '@matting/core/test/method-suite.ts';
import {
  accountOf,
  apiKeyOf,
  fillLargeLog,
  fillLargeTables,
} from '@matting/test-support/large-tables.ts';
import { CHANGING } from './changing.ts';
import { BATCH_FIXTURES, newBatch, type Stores } from './fixtures.ts';

async function largestBatch(stores: Stores) {
  const batch = newBatch({ accountId: accountOf(0), apiKeyId: apiKeyOf(0) }, 3);
  assert.ok((await stores.batches.submitBatch(batch)).created);
  await stores.batches.enterItems(batch.id, batch.accountId, LIMITS.jobsInFlightMax);
  const found = await stores.batches.findForKey(batch.id, batch.apiKeyId);
  assert.ok(found);
  return { batch, found };
}

const READING: Readonly<Record<string, Exercise<Stores>>> = {
  'batches.findForKey': bounded<Stores>(OPEN_READS_MAX, OPEN_WHY, async stores => {
    const { batch } = await largestBatch(stores);
    assert.ok(await stores.batches.findForKey(batch.id, batch.apiKeyId));
  }),
  'batches.findForAccount': bounded<Stores>(OPEN_READS_MAX, OPEN_WHY, async stores => {
    const { batch } = await largestBatch(stores);
    assert.ok(await stores.batches.findForAccount(batch.id, batch.accountId));
  }),
  'batches.findByIdempotencyKey': bounded<Stores>(OPEN_READS_MAX, OPEN_WHY, async stores => {
    const { batch } = await largestBatch(stores);
    const { apiKeyId, idempotencyKeyHash } = batch;
    assert.ok(await stores.batches.findByIdempotencyKey(apiKeyId, idempotencyKeyHash));
  }),
  'queue.isKeyTaken': bounded<Stores>(OPEN_READS_MAX, OPEN_WHY, async stores => {
    const { apiKeyId, idempotencyKeyHash } = (await largestBatch(stores)).batch;
    assert.ok(await stores.queue.isKeyTaken(apiKeyId, idempotencyKeyHash));
  }),
  'batches.listOpen': async ({ batches }) => {
    const open = await batches.listOpen();
    assert.ok(open.length > 0);
    await batches.listOpen(open.at(-1));
  },
  'batches.listOf': async ({ batches }) => {
    assert.ok((await batches.listOf(accountOf(0), 100)).length > 0);
  },
  'batches.listOfKey': async ({ batches }) => {
    const filter = { apiKeyId: apiKeyOf(0), limit: 10 };
    const { batches: found, next } = await batches.listOfKey(filter);
    assert.ok(found.length > 0);
    await batches.listOfKey({ ...filter, after: next ?? undefined });
    await batches.listOfKey({ ...filter, status: 'finished' });
  },
  'batches.failedItems': bounded<Stores>(OPEN_READS_MAX, OPEN_WHY, async stores => {
    const { batch, found } = await largestBatch(stores);
    const claim = await claimed(stores, { id: batch.items[1]!.jobId });
    assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
    const { items } = await stores.batches.failedItems(found);
    assert.deepEqual(items, [{ imageUrl: batch.items[1]!.imageUrl, reference: 'picture 1' }]);
  }),
  'batches.items': bounded<Stores>(OPEN_READS_MAX, OPEN_WHY, async stores => {
    const { batch, found } = await largestBatch(stores);
    assert.equal((await stores.batches.items(found, 0, 100)).length, batch.items.length);
  }),
  'batches.jobs': bounded<Stores>(OPEN_READS_MAX, OPEN_WHY, async stores => {
    const { batches, queue } = stores;
    const { batch, found } = await largestBatch(stores);
    await queue.remove(batch.items[1]!.jobId, batch.apiKeyId);
    assert.equal((await batches.jobs(found, { from: 0, limit: 100 })).length, batch.items.length);
    const failed = await batches.jobs(found, { from: 0, limit: 100, only: 'failed' });
    assert.deepEqual(
      failed.map(({ group }) => group?.item),
      [1],
    );
  }),
};

export const BATCH_SUITE: MethodSuite<Stores> = {
  fixtures: BATCH_FIXTURES,
  own: database => {
    const { batches } = BATCH_FIXTURES.storesOn(database);
    return { batches };
  },
  changing: CHANGING,
  likeAnother: {},
  reading: READING,
  exercises: {
    ...READING,
    ...exercisesOf(CHANGING, {
      beside: {},
      bounds: {
        'batches.enterItems': [OPEN_READS_MAX, OPEN_WHY],
        'batches.finishBatch': [OPEN_READS_MAX, OPEN_WHY],
        'batches.removeOldBatches': [OPEN_READS_MAX, OPEN_WHY],
      },
    }),
  },
  assertSound: stores => assertBalanced(stores),
  fillLarge: async database => {
    await fillLargeTables(database, TABLES);
    await fillLargeLog(database);
  },
  opening: ['batches.findForKey'],
  folders: ['batches', 'core/groups'],
};
