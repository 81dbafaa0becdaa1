/** The methods that change batches, their items and their money. */
import assert from 'node:assert/strict';
import type {
  ChangingMethod as ChangingMethodOf,
  Fixture as FixtureOf,
} from '@matting/core/test/changing-methods.ts';
import { LIMITS, OPERATOR } from '@matting/core/test/fixtures.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import type { NewBatch, SubmittedBatch } from '../batch-submission.ts';
import { newBatch, type Stores } from './fixtures.ts';

type ChangingMethod = ChangingMethodOf<Stores>;
type Fixture = FixtureOf<Stores>;

const CALLBACK = {
  url: 'https://receiver.example/hook',
  secret: new Uint8Array([1, 2, 3]),
  secretKeyId: 'key-1',
};

/** Has two items. The account has credits for only these. */
async function batchOf(fixture: Fixture): Promise<NewBatch> {
  const accountId = await fixture.account(2);
  return newBatch({ accountId, apiKeyId: fixture.apiKeyId }, 2, { callback: CALLBACK });
}

async function submitted(fixture: Fixture): Promise<NewBatch> {
  const batch = await batchOf(fixture);
  assert.ok((await fixture.stores.batches.submitBatch(batch)).created);
  return batch;
}

async function ended(fixture: Fixture): Promise<NewBatch> {
  const { batches, queue } = fixture.stores;
  const batch = await submitted(fixture);
  await batches.enterItems(batch.id, batch.accountId, LIMITS.jobsInFlightMax);
  for (const { jobId } of batch.items) await queue.remove(jobId, batch.apiKeyId);
  return batch;
}

async function assertReserved(stores: Stores, { id, apiKeyId, items }: NewBatch, entered: boolean) {
  const found = await stores.batches.findForKey(id, apiKeyId);
  assert.equal(found?.nextItem, entered ? items.length : 0);
  const listed = await stores.batches.items(found, 0, 10);
  assert.equal(listed.filter(({ job }) => job !== undefined).length, entered ? items.length : 0);
}

/** A key of its own, since other tests need the fixture's. */
async function ofOwnKey(fixture: Fixture): Promise<NewBatch> {
  const accountId = await fixture.account(2);
  const { key } = await fixture.stores.apiKeys.create(accountId, 'its own');
  const batch = newBatch({ accountId, apiKeyId: key.id }, 2);
  assert.ok((await fixture.stores.batches.submitBatch(batch)).created);
  return batch;
}

async function assertCancelledOnce(stores: Stores, accountId: string, log: readonly string[]) {
  const [batch] = await stores.batches.listOf(accountId, 1);
  assert.ok(batch && batch.cancelledAtMs !== null);
  const entries = await stores.audit.list(accountId, { limit: 9 });
  assert.deepEqual(entries.map(({ action }) => action).sort(), log);
}

export const CHANGING: readonly ChangingMethod[] = [
  {
    name: 'batches.submitBatch',
    arrange: async fixture => {
      const batch = await batchOf(fixture);
      return {
        act: stores => stores.batches.submitBatch(batch),
        check: async outcome => {
          assert.ok((outcome as SubmittedBatch).created);
          await assertReserved(fixture.stores, batch, false);
        },
      };
    },
  },
  {
    name: 'batches.enterItems',
    arrange: async fixture => {
      const batch = await submitted(fixture);
      return {
        act: stores => stores.batches.enterItems(batch.id, batch.accountId, LIMITS.jobsInFlightMax),
        check: () => assertReserved(fixture.stores, batch, true),
      };
    },
  },
  {
    name: 'batches.cancelBatch',
    arrange: async fixture => {
      const { id, apiKeyId } = await submitted(fixture);
      return {
        act: stores => stores.batches.cancelBatch(id, apiKeyId),
        check: async () => {
          const found = await fixture.stores.batches.findForKey(id, apiKeyId);
          assert.notEqual(found?.cancelledAtMs, null);
        },
      };
    },
  },
  {
    name: 'batches.cancelBatchBy',
    arrange: async fixture => {
      const { id, accountId } = await submitted(fixture);
      return {
        act: stores => stores.batches.cancelBatchBy(id, { actor: OPERATOR }),
        check: () => assertCancelledOnce(fixture.stores, accountId, ['batch.cancelled']),
      };
    },
  },
  {
    name: 'apiKeys.revoke',
    which: 'with an open batch',
    arrange: async fixture => {
      const { accountId, apiKeyId } = await ofOwnKey(fixture);
      return {
        act: stores => stores.apiKeys.revoke(apiKeyId, { accountId, actor: OPERATOR }),
        check: () =>
          assertCancelledOnce(fixture.stores, accountId, ['batch.cancelled', 'key.revoked']),
      };
    },
  },
  {
    name: 'batches.finishBatch',
    again: false,
    arrange: async fixture => {
      const { id, apiKeyId } = await ended(fixture);
      return {
        act: stores => stores.batches.finishBatch(id),
        check: async () => {
          const found = await fixture.stores.batches.findForKey(id, apiKeyId);
          assert.notEqual(found?.finishedAtMs, null);
          assert.equal((await rowsOf(fixture.database.kysely, 'outbox', { id })).length, 1);
        },
      };
    },
  },
  {
    name: 'batches.removeOldBatches',
    arrange: async fixture => {
      const { id, apiKeyId } = await ended(fixture);
      await fixture.stores.batches.finishBatch(id);
      return {
        act: stores => stores.batches.removeOldBatches(0, 5),
        check: async () => {
          assert.equal(await fixture.stores.batches.findForKey(id, apiKeyId), undefined);
        },
      };
    },
  },
];
